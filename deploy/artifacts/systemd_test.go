package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// optional are the unit's lines that are commented out.
var optional = regexp.MustCompile(`(?m)^#([A-Z][A-Za-z]+=)`)

// The unit is one that systemd understands, and exposes little: 2 of 10 at the most; with
// its optional lines, too.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		lacks(t, "systemd-analyze is not here: apt-get install systemd")
	}
	// Verified where the program is, and without what another machine has installed.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(read(t, "../systemd/pgmill-host.service"), "ExecStart=/usr/local/bin/host ", "ExecStart="+self+" ", 1)
	for _, text := range []string{text, optional.ReplaceAllString(text, "$1")} {
		unit := filepath.Join(t.TempDir(), "pgmill-host.service")
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"verify", "--man=no", "--recursive-errors=no", unit},
			{"security", "--offline=true", "--threshold=20", "--no-pager", unit},
		} {
			if out, err := exec.Command(analyze, args...).CombinedOutput(); err != nil || args[0] == "verify" && len(out) > 0 {
				t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
			}
		}
	}
}

// Each setting that the environment file shows as a file is a secret, which the unit's
// user cannot read where the page has it put: it is a credential of the unit, and the
// unit has no other.
func TestUnitHandsSecretsOver(t *testing.T) {
	t.Parallel()
	unit, page := read(t, "../systemd/pgmill-host.service"), read(t, "../README.md")
	secrets := regexp.MustCompile(`(?m)^#([A-Z_]+_FILE)=/run/secrets/pgmill/([a-z_]+)$`).FindAllStringSubmatch(read(t, "../env/single-db-pilot.env"), -1)
	for _, m := range secrets {
		variable, name := m[1], m[2]
		if lines := fmt.Sprintf("LoadCredential=%[2]s:/etc/pgmill/%[2]s\nEnvironment=%[1]s=%%d/%[2]s\n", variable, name); !strings.Contains(optional.ReplaceAllString(unit, "$1"), lines) {
			t.Errorf("the unit does not have\n%s", lines)
		}
		if !strings.Contains(page, "/etc/pgmill/"+name) {
			t.Errorf("deploy/README.md does not say what /etc/pgmill/%s is", name)
		}
	}
	if n := strings.Count(unit, "LoadCredential="); n != len(secrets) || n < 3 {
		t.Errorf("the unit has %d credentials, the environment file shows %q", n, secrets)
	}
}

// lacks skips a test for want of a tool; in CI, where nobody looks for what was skipped,
// the test fails.
func lacks(t *testing.T, what string) {
	t.Helper()
	if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
		t.Fatal(what)
	}
	t.Skip(what)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
