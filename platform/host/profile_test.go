package host

import (
	"strings"
	"testing"
)

func TestShippedProfilesAreWhole(t *testing.T) {
	t.Parallel()
	for _, name := range profileNames() {
		p, err := shippedProfile(name)
		if err != nil {
			t.Error(err)
		}
		if p.Name != name || p.Description == "" || p.HAEvidence || !strings.Contains(p.Label(), "non-HA") {
			t.Errorf("%s: %+v", name, p)
		}
		if local := name == "local"; (p.Database.Absent == private) != local || p.Migrate != local {
			t.Errorf("%s: absent %q, migrate %v", name, p.Database.Absent, p.Migrate)
		}
	}
}

func TestProfilesAreStrict(t *testing.T) {
	t.Parallel()
	good := "name: x\nposture: single-db-pilot\nha_reason: none\ndatabase: {absent: refuse}\n"
	for _, tt := range []struct{ name, text, want string }{
		{"the good one", good, ""},
		{"an unknown key", good + "migrates: true\n", "migrates"},
		{"a key twice", good + "name: y\n", "already"},
		{"no name", strings.Replace(good, "name: x", "name: ''", 1), "name is missing"},
		{"a posture that is none", strings.Replace(good, "single-db-pilot", "ha", 1), `posture is "ha"`},
		{"an HA claim", good + "ha_evidence: true\n", "nothing here can show it"},
		{"no reason for no HA", strings.Replace(good, "ha_reason: none", "", 1), "ha_reason is missing"},
		{"a private database elsewhere", strings.Replace(good, "refuse", "private", 1), "only the posture local may start"},
		{"no word on an absent database", strings.Replace(good, "refuse", "''", 1), "write private or refuse"},
		{"migrating by itself elsewhere", good + "migrate: true\n", "only the posture local migrates"},
		{"a DSN", good + "settings: {database_url: postgres://u:C4NARY@h/d}\n", "database_url has no place in a profile"},
		{"a type that is wrong", good + "functions: postgres://u:C4NARY@h/d\n", "cannot unmarshal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseProfile("profile x", []byte(tt.text))
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "C4NARY")):
				t.Errorf("got %v; want %q", err, tt.want)
			}
		})
	}
}
