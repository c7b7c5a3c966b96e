package host

import (
	"testing"

	"github.com/pgmill/pgmill/platform/api"
)

// The API is open on a developer's machine, to that machine, and nowhere else.
func TestWhereTheAPIIsOpen(t *testing.T) {
	t.Parallel()
	key, err := api.ParseKeys("a:0123456789abcdef:*")
	if err != nil {
		t.Fatal(err)
	}
	local := Profile{Posture: postureLocal}
	for _, tt := range []struct {
		name string
		cfg  Config
		open bool
	}{
		{"local, loopback", Config{Profile: local, Addr: "127.0.0.1:8081"}, true},
		{"local, localhost", Config{Profile: local, Addr: "localhost:0"}, true},
		{"local, every address", Config{Profile: local, Addr: ":8081"}, false},
		{"local, another address", Config{Profile: local, Addr: "10.0.0.1:8081"}, false},
		{"local, with keys", Config{Profile: local, Addr: "127.0.0.1:8081", APIKeys: key}, false},
		{"another posture", Config{Profile: Profile{Posture: "x"}, Addr: "127.0.0.1:8081"}, false},
	} {
		if got := tt.cfg.apiOpen(); got != tt.open {
			t.Errorf("%s: open %v, want %v", tt.name, got, tt.open)
		}
	}
}
