package api_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/api"
)

func TestKeysAreAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct {
		name, key, method, path string
		header                  []string
		status                  int
		code                    string
	}{
		{"no key", "", "GET", "/api/v1/jobs", nil, 401, "unauthorized"},
		{"a wrong key", "root-key-012345678", "GET", "/api/v1/jobs", nil, 401, "unauthorized"},
		{"no key, no route", "", "GET", "/api/v1/nothing", nil, 401, "unauthorized"},
		{"no route", root, "GET", "/api/v1/nothing", nil, 404, "not_found"},
		{"no such method", root, "PUT", "/api/v1/jobs", nil, 405, "method_not_allowed"},
		{"a bearer", "", "GET", "/api/v1/jobs", []string{"Authorization", "Bearer " + acme}, 200, ""},
		{"a viewer looks", reads, "GET", "/api/v1/jobs", nil, 200, ""},
		{"a viewer submits", reads, "POST", "/api/v1/jobs", nil, 403, "denied"},
		{"a viewer retries", reads, "POST", "/api/v1/dlq/x/retry", nil, 403, "denied"},
		{"a viewer claims", reads, "POST", "/api/v1/worker/claim", nil, 403, "denied"},
		{"a worker looks", works, "GET", "/api/v1/jobs", nil, 403, "denied"},
		{"a page of others", root, "GET", "/api/v1/jobs", []string{"Origin", "https://evil.example"}, 403, "origin_not_allowed"},
		{"a page of this machine", root, "GET", "/api/v1/jobs", []string{"Origin", "http://localhost:3000"}, 200, ""},
		{"what a page asks first", "", "OPTIONS", "/api/v1/jobs", []string{"Origin", "http://localhost:3000"}, 204, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := w.call(tt.key, tt.method, tt.path, "", tt.header...)
			if a.status != tt.status || tt.code != "" && a.text("code") != tt.code {
				t.Errorf("answered %d %s; want %d %s", a.status, a.body, tt.status, tt.code)
			}
		})
	}
	if strings.Contains(w.log.String(), "key-0") {
		t.Errorf("the log has a key: %s", w.log)
	}
}

// Without keys the API is open where it was said, and closed anywhere else.
func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := func(open bool) *api.Server {
		return &api.Server{Pool: func() *pgxpool.Pool { return w.pool }, Open: open, Log: slog.New(slog.DiscardHandler)}
	}
	w.serve(server(true))
	w.want(w.call("", "POST", "/api/v1/jobs", `{"prompt": "x"}`), 200, "")
	if a := w.call("", "GET", "/api/v1/jobs", ""); a.items("items")[0]["tenant"] != "default" {
		t.Errorf("an open API lists %s", a.body)
	}
	w.serve(server(false))
	w.want(w.call("", "GET", "/api/v1/jobs", ""), 503, "no_api_keys")
	starting := server(true)
	starting.Pool = func() *pgxpool.Pool { return nil }
	w.serve(starting)
	w.want(w.call("", "GET", "/api/v1/jobs", ""), 503, "starting")
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef"
	good, err := api.ParseKeys("# ours\na:" + secret + ":*\n\nb:" + secret + ":org:acme:worker, c:" + secret + ":install:viewer,d:" + secret + ":org:admin")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a * admin", "b org:acme worker", "c install viewer", "d org:admin admin"}
	for i, k := range good {
		if got := k.Name + " " + k.Scope + " " + k.Role; got != want[i] {
			t.Errorf("key %d is %q; want %q", i, got, want[i])
		}
	}
	for _, bad := range []string{secret, "a:" + secret, "a:short:*", "a:" + secret + ":acme", "a:" + secret + ":org:acme:king", "a b:" + secret + ":*", "a:" + secret + ":*,a:" + secret + ":*"} {
		if _, err := api.ParseKeys(bad); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("ParseKeys(%q) = %v; want an error without the key", bad, err)
		}
	}
}
