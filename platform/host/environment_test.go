package host

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pgmill/pgmill/platform"
)

var assignment = regexp.MustCompile(`(?m)^(#?)([A-Z_]+)=(.*)$`)

// The environment files in deploy/env, one for each profile: what they name is a
// setting, every setting is named, and what they show is its default.
func TestEnvironmentFiles(t *testing.T) {
	t.Parallel()
	for _, name := range profileNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../deploy/env/" + name + ".env")
			if err != nil {
				t.Fatal(err)
			}
			environ, shown := []string{"DATABASE_URL=postgres://h/d"}, map[string]string{}
			for _, m := range assignment.FindAllStringSubmatch(string(text), -1) {
				out, variable, value := m[1] != "", m[2], m[3]
				env := strings.TrimSuffix(variable, "_FILE")
				if variable == "PGMILL_PROFILE_FILE" {
					env = variable
				}
				if _, known := settingBy(func(s setting) string { return s.env }, env); !known && !slices.Contains(otherEnv, variable) {
					t.Errorf("there is no setting %s", variable)
				}
				shown[env] = value
				if !out {
					environ = append(environ, variable+"="+value)
				}
			}
			cfg, err := loadConfig(sources{environ: environ}, platform.NewRegistry(), true)
			if err != nil || cfg.Profile.Name != name {
				t.Errorf("a host with this environment has profile %q: %v", cfg.Profile.Name, err)
			}
			for _, s := range settings {
				got, named := shown[s.env]
				if !named {
					t.Errorf("%s is not named", s.env)
				}
				if want := strings.TrimSuffix(s.preset, "s"); got != "" && s.preset != "" && strings.TrimSuffix(got, "s") != want && s.key != "profile" && s.key != "log_format" {
					t.Errorf("%s=%s; the default is %s", s.env, got, s.preset)
				}
			}
		})
	}
}
