package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"nothing to hide", "host works", "host works"},
		{"empty", "", ""},
		{"a database URL", "dial postgres://ann:pw@db:5432/app?sslmode=disable: refused", "dial postgres://[redacted] refused"},
		{"a database URL without a password", "dial postgres://db/app", "dial postgres://[redacted]"},
		{"a broker's", "AMQPS://u:p@mq", "AMQPS://[redacted]"},
		{"a cache's", "rediss://:p@cache/0", "rediss://[redacted]"},
		{"a secret reference", "secret://prod/stripe", "secret://[redacted]"},
		{"a URL in JSON", `{"url":"postgres://u:p@h/d","n":1}`, `{"url":"postgres://[redacted]","n":1}`},
		{"a quote in the password", `"postgres://u:a"b@h/d" is bad`, `"postgres://[redacted] is bad`},
		{"a blank in the password", "postgres://u:a b@h/d is bad", "postgres://[redacted] is bad"},
		{"a backtick around it", "cannot parse `postgres://u:p@h/d`: no", "cannot parse `postgres://[redacted]`: no"},
		{"two of them", "postgres://a:b@c redis://d:e@f", "postgres://[redacted] redis://[redacted]"},
		{"user and password of another URL", "GET https://u:p@api.example/x", "GET https://[redacted]@api.example/x"},
		{"another URL stays", "see https://example.com/a?b=c#d", "see https://example.com/a?b=c#d"},
		{"a token in a query", "https://x/cb?access_token=abc", "https://x/cb?access_token=[redacted]"},
		{"a keyword DSN", "host=db password=pw user=ann", "host=db password=[redacted] user=ann"},
		{"a quoted one", `password='it\'s' user=ann`, `password=[redacted] user=ann`},
		{"an escaped blank", `password=a\ b user=ann`, `password=[redacted] user=ann`},
		{"a JSON field", `{"client_secret": "a\"b", "id": 7}`, `{"client_secret": [redacted], "id": 7}`},
		{"JSON in a Go string", `"{\"password\":\"pw\",\"id\":7}"`, `"{\"password\":[redacted],\"id\":7}"`},
		{"SQL", "alter role x password 'it''s' login", "alter role x password [redacted] login"},
		{"what Postgres says of one", `password authentication failed for user "ann"`, `password authentication failed for user "ann"`},
		{"a header", "Authorization: Basic YTpi\nAccept: */*", "Authorization: [redacted]\nAccept: */*"},
		{"a bearer token", "sent Bearer abc.def-1", "sent Bearer [redacted]"},
		{"prose", "the bearer token is missing", "the bearer token is missing"},
		{"a JWT", "jwt eyJhbGciOi.eyJzdWIi.c2ln end", "jwt [redacted] end"},
		{"a JWT's beginning", "jwt eyJhbGciOi.eyJz", "jwt [redacted]"},
		{"a private key", "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nend", "[redacted]\nend"},
		{"a private key cut off", "-----BEGIN PRIVATE KEY-----\nMII", "[redacted]"},
		{"a cloud key", "AKIAIOSFODNN7EXAMPLE", "[redacted]"},
		{"a long key", "k YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY= end", "k [redacted] end"},
		{"40 hexadecimal digits", "0123456789abcdef0123456789abcdef01234567", "[redacted]"},
		{"a trace id stays", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"},
		{"a UUID stays", "018F4C2E-8B1A-7C3D-9E5F-0123456789ab", "018F4C2E-8B1A-7C3D-9E5F-0123456789ab"},
		{"a path stays", "/tmp/TestServeDrainsOnSignal123456/001/.pgmill/data", "/tmp/TestServeDrainsOnSignal123456/001/.pgmill/data"},
		{"a name stays", "subscription connectors_health_of_all_the_tenants_we_have", "subscription connectors_health_of_all_the_tenants_we_have"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Redact(tt.in); got != tt.want {
				t.Errorf("Redact(%q) = %q; want %q", tt.in, got, tt.want)
			}
		})
	}
}

// around are the places in which a credential turns up, each with one %s.
var around = []string{
	"postgres://ann:%s@db:5432/app", "cannot parse `postgres://ann:%s@db/app`: bad", `"amqp://u:%s@mq/vhost"`, "redis://:%s@cache:6379/0 down",
	"dial https://u:%s@api/x: refused", "password=%s", "PGPASSWORD=%s psql", `{"password":"%s"}`, `{"x":{"api_key": "%s"}}`, "token: %s",
	"Authorization: Bearer %s", "bearer %s", "Cookie: session=%s; a=b", "secret://vault/%s", "https://x/?signature=%s",
	"alter role r password '%s'", "-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----",
}

// F73: a canary in any of these places, in any text, is not in what is logged.
func TestRedactLeavesNoCanary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		canary := rapid.StringMatching(`[A-Za-z0-9!$*._~-]{8,24}`).Draw(t, "canary")
		where := rapid.SampledFrom(around).Draw(t, "where")
		before := rapid.SampledFrom([]string{"", "error: ", "(", "a=b ", "x\n"}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", ": refused", ")", " c=d", "\ny"}).Draw(t, "after")
		text := before + fmt.Sprintf(where, canary) + after
		got := Redact(text)
		if strings.Contains(got, canary) {
			t.Fatalf("Redact(%q) = %q, which still holds %q", text, got, canary)
		}
		if again := Redact(got); strings.Contains(again, canary) {
			t.Fatalf("twice: %q", again)
		}
	})
}

// A known secret is taken out in any spelling, wherever it stands.
func TestRedactorKnowsItsSecrets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		password := rapid.StringMatching(`[ -~]{8,20}`).Draw(t, "password")
		u := url.URL{Scheme: "postgres", User: url.UserPassword("ann", password), Host: "db", Path: "/app"}
		r := NewRedactor(u.String())
		asJSON, _ := json.Marshal(password)
		for _, spelt := range []string{password, fmt.Sprintf("%q", password), string(asJSON), url.QueryEscape(password), u.String(), errors.New(password).Error()} {
			if got := r.Text("say " + spelt + " now"); strings.Contains(got, password) {
				t.Fatalf("Text(%q) = %q", spelt, got)
			}
		}
	})
}

func TestRedactorReadsKeywordDSNs(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{`host=db password=hunter22 user=a`, `password = 'hunter22'`, `sslpassword=hunter22`, `postgres://a:hunter22@db`} {
		if got := NewRedactor(dsn).Text("it is hunter22"); got != "it is "+Mark {
			t.Errorf("with %q: %q", dsn, got)
		}
	}
	if got := NewRedactor("", "abc").Text("abc stays"); got != "abc stays" {
		t.Errorf("short secrets: %q", got)
	}
}

func TestWithoutTakesThePayloadOut(t *testing.T) {
	t.Parallel()
	data := []byte(`{"order":"order-4711","lines":[{"sku":"A-1234"}],"n":12}`)
	if got, want := Without(`no stock for A-1234 of "order-4711" (12)`, data), `no stock for [redacted] of "[redacted]" (12)`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Without("bad: {oops", []byte("{oops")); got != "bad: [redacted]" {
		t.Errorf("undecodable: %q", got)
	}
	if got := Without("fine", nil); got != "fine" {
		t.Errorf("no payload: %q", got)
	}
}

func TestPanicTellsTheTypeOnly(t *testing.T) {
	t.Parallel()
	if got := Panic("CANARY"); got != "panic of type string" {
		t.Errorf("a string: %q", got)
	}
	if got := Panic(errors.New("CANARY")); strings.Contains(got, "CANARY") {
		t.Errorf("an error: %q", got)
	}
	defer func() {
		if got := Panic(recover()); !strings.Contains(got, "index out of range") {
			t.Errorf("a runtime error: %q", got)
		}
	}()
	var none []int
	_ = none[len(t.Name())]
}

// Redact ends, keeps valid text valid, and hides the canary whatever surrounds it.
func FuzzRedact(f *testing.F) {
	for _, w := range around {
		f.Add(w, "x")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const canary = "c4n4ryc4n4ry"
		if got := Redact(before + " postgres://u:" + canary + "@h/d " + after); strings.Contains(got, canary) {
			t.Errorf("Redact kept the canary: %q", got)
		}
	})
}

func BenchmarkRedactOrdinaryLine(b *testing.B) {
	for b.Loop() {
		Redact("batch settled for subscription demo.branch_balance shard 3")
	}
}
