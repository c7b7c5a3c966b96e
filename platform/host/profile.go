package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pgmill/pgmill/deploy"
	"github.com/pgmill/pgmill/platform/policy"
)

// Profile is a deployment as data: deploy/profiles, or a file of one's own. Nothing
// in it has a default: a profile says everything but functions, retention and settings.
type Profile struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	// Posture of the database: local, or single-db-pilot, which is always non-HA.
	Posture string `yaml:"posture"`
	// HAEvidence says whether an HA claim can be shown; HAReason why not.
	HAEvidence bool   `yaml:"ha_evidence"`
	HAReason   string `yaml:"ha_reason"`
	Database   struct {
		// Absent is what no DSN means: private (start one) or refuse.
		Absent string `yaml:"absent"`
	} `yaml:"database"`
	// Migrate lets a host migrate by itself.
	Migrate bool `yaml:"migrate"`
	// Functions to run; none means all that are registered.
	Functions []string `yaml:"functions"`
	// Retention is how long clean-ups keep rows: a class of pgmill's own, or a clean-up's
	// name, to a time such as 7d. What it lacks is the declaration's.
	Retention map[string]string `yaml:"retention"`
	// Settings are the profile's own defaults.
	Settings map[string]any `yaml:"settings"`
}

// The postures, and what the absence of a DSN can mean.
const (
	postureLocal = "local"
	posturePilot = "single-db-pilot"

	private = "private"
	refuse  = "refuse"
)

// Label is how a profile is shown: never without saying that it is not HA.
func (p Profile) Label() string {
	if p.HAEvidence {
		return p.Name
	}
	return p.Name + " (non-HA)"
}

func profileNames() []string {
	files, _ := deploy.Profiles.ReadDir("profiles")
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

func shippedProfile(name string) (Profile, error) {
	if !slices.Contains(profileNames(), name) {
		return Profile{}, faultf("no profile %q%s There are: %s", name, didYouMean(name, profileNames()), strings.Join(profileNames(), ", "))
	}
	text, err := deploy.Profiles.ReadFile(path.Join("profiles", name+".yaml"))
	if err != nil {
		return Profile{}, faultf("profile %s: %v", name, err)
	}
	return parseProfile("profile "+name, text)
}

func readProfile(path string) (Profile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Profile{}, faultf("profile file: %v", err)
	}
	return parseProfile("profile file "+path, text)
}

// parseProfile is strict: what it does not know is a fault, and so is a claim that
// a profile cannot prove.
func parseProfile(where string, text []byte) (Profile, error) {
	var p Profile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return Profile{}, faultf("%s: %s", where, policy.Redact(oneLine(err.Error())))
	}
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, faultf("%s: %s", where, fmt.Sprintf(format, args...)))
	}
	if p.Name == "" {
		bad("name is missing")
	}
	if p.Posture != postureLocal && p.Posture != posturePilot {
		bad("posture is %q; write local or single-db-pilot", p.Posture)
	}
	if p.HAEvidence {
		bad("ha_evidence is true, but nothing here can show it; write false and say why in ha_reason")
	} else if p.HAReason == "" {
		bad("ha_reason is missing: say why there is no evidence of high availability")
	}
	switch p.Database.Absent {
	case refuse:
	case private:
		if p.Posture != postureLocal {
			bad("database.absent: only the posture local may start a private Postgres; write refuse")
		}
	default:
		bad("database.absent is %q; write private or refuse", p.Database.Absent)
	}
	if p.Migrate && p.Posture != postureLocal {
		bad("migrate is true, but only the posture local migrates by itself; write false")
	}
	for _, key := range []string{"profile", "profile_file", "database_url", "listen_url", "api_keys"} {
		if _, has := p.Settings[key]; has {
			bad("settings: %s has no place in a profile; use the environment", key)
			delete(p.Settings, key)
		}
	}
	return p, errors.Join(faults...)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
