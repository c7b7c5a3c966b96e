package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit is one that systemd understands, and exposes little: 2 of 10 at the most.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here: apt-get install systemd")
	}
	text, err := os.ReadFile("../systemd/pgmill-host.service")
	if err != nil {
		t.Fatal(err)
	}
	// Verified where the program is, and without what another machine has installed.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "pgmill-host.service")
	if err := os.WriteFile(unit, []byte(strings.Replace(string(text), "ExecStart=/usr/local/bin/host ", "ExecStart="+self+" ", 1)), 0o644); err != nil {
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
