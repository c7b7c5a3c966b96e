package host

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pgmill/pgmill/platform"
)

// reported is a status as a test wants it.
type reported struct{ notReady, degraded []platform.Reason }

func (r reported) NotReady() []platform.Reason { return r.notReady }
func (r reported) Degraded() []platform.Reason { return r.degraded }
func (r reported) Identity() string            { return "w-1" }

// untouchable fails the test when it is asked.
type untouchable struct{ t *testing.T }

func (u untouchable) NotReady() []platform.Reason { u.t.Error("asked NotReady"); return nil }
func (u untouchable) Degraded() []platform.Reason { u.t.Error("asked Degraded"); return nil }
func (u untouchable) Identity() string            { u.t.Error("asked Identity"); return "" }

func get(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// N73: live whatever else is.
func TestLivezTouchesNothing(t *testing.T) {
	t.Parallel()
	code, body := get(t, newProbes("worker", untouchable{t}, newMetrics(platform.NewRegistry())), "GET", "/livez")
	if code != 200 || body != `{"status":"live","reasons":[]}` {
		t.Errorf("got %d %s", code, body)
	}
}

// N74, N75, N76, N77.
func TestReadyz(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		is   reported
		path string
		code int
		body string
	}{
		{"ready", reported{}, "/readyz", 200, `{"status":"ready","reasons":[]}`},
		{"degraded is still ready", reported{degraded: []platform.Reason{"listen_unavailable"}}, "/readyz", 200,
			`{"status":"degraded","reasons":["listen_unavailable"]}`},
		{"draining", reported{notReady: []platform.Reason{"draining"}}, "/readyz", 503, `{"status":"not_ready","reasons":["draining"]}`},
		{"both", reported{[]platform.Reason{"database_unreachable"}, []platform.Reason{"listen_unavailable"}}, "/readyz", 503,
			`{"status":"not_ready","reasons":["database_unreachable","listen_unavailable"]}`},
		{"verbose", reported{}, "/readyz?verbose", 200,
			`{"status":"ready","reasons":[],"worker":"w-1","kind":"worker","version":"` + Version() + `","target":"install","dependencies":["postgres"]}`},
		{"something else", reported{}, "/ready", 404, `{"message":"Not Found"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			probes := newProbes("worker", tt.is, newMetrics(platform.NewRegistry()))
			if code, body := get(t, probes, "GET", tt.path); code != tt.code || body != tt.body {
				t.Errorf("got %d %s; want %d %s", code, body, tt.code, tt.body)
			}
			if code, _ := get(t, probes, "HEAD", tt.path); code != tt.code {
				t.Errorf("HEAD: %d, want %d", code, tt.code)
			}
		})
	}
}
