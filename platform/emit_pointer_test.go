package platform_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// somewhere puts a member into an object at a random depth, among ordinary ones.
func somewhere(t *rapid.T, name string, value any) map[string]any {
	o := map[string]any{"order_id": rapid.Int64().Draw(t, "order"), name: value}
	for range rapid.IntRange(0, 4).Draw(t, "depth") {
		if rapid.Bool().Draw(t, "in a list") {
			o = map[string]any{"ids": []any{"a-1", o, []int{1}}}
		} else {
			o = map[string]any{"at": "2026-11-29T18:00:00Z", "inner": o}
		}
	}
	return o
}

// secrets are shapes of what must never get in (N5).
var secrets = []struct{ name, shape string }{
	{"a database URL with a password", `(postgres|postgresql|mysql|mongodb\+srv|amqps?|redis|https?)://[a-z]{1,8}:[A-Za-z0-9%!*-]{1,20}@[a-z]{1,10}(:[0-9]{4})?/[a-z]{0,8}`},
	{"a URL with a user", `https://[A-Za-z0-9_]{8,30}@[a-z]{1,10}\.example/[a-z]{0,8}`},
	{"a signed URL", `https://[a-z]{1,8}\.s3\.example/[a-z]{1,8}\?(X-Amz-Date=1&)?(X-Amz-Signature|sig|token|access_token|apikey|api_key|password)=[A-Za-z0-9]{1,40}`},
	{"a signed path", `/files/[a-z]{1,8}\?(sig|signature|token|access_token|api_key|Token|SIG)=[A-Za-z0-9]{1,40}`},
	{"a private key", `-----BEGIN (RSA |EC |OPENSSH )?PRIVATE KEY-----\n[A-Za-z0-9+/=]{1,100}`},
	{"a JSON web token", `eyJ[A-Za-z0-9_-]{10,40}\.eyJ[A-Za-z0-9_-]{10,40}\.[A-Za-z0-9_-]{10,40}`},
	{"an AWS key id", `(AKIA|ASIA)[0-9A-Z]{16}`},
	{"a GitHub token", `gh[pousr]_[A-Za-z0-9]{36}`},
	{"a fine-grained GitHub token", `github_pat_[A-Za-z0-9_]{22,60}`},
	{"a Slack token", `xox[abprs]-[0-9]{10,12}-[A-Za-z0-9]{10,24}`},
	{"an API key of OpenAI or Stripe", `sk[-_](live_|proj-|test_)?[A-Za-z0-9]{20,48}`},
	{"a Google API key", `AIza[0-9A-Za-z_-]{35}`},
	{"a GitLab token", `glpat-[A-Za-z0-9_-]{20}`},
	{"a bearer header", `(Authorization: )?[Bb](earer|EARER) [A-Za-z0-9._-]{16,60}`},
	{"a connection string", `(host=db )?(password|PASSWORD|Password) ?[=:] ?[A-Za-z0-9]{1,20}`},
}

// N5: whatever looks like a credential is refused, wherever in the data it is and
// whatever is around it, and nothing is stored.
func TestEmitNeverTakesCredentials(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	var forms []func(*rapid.T) any
	for _, s := range secrets {
		forms = append(forms, func(t *rapid.T) any {
			around := rapid.SampledFrom([]string{"%s", "dsn %s", "%s trailing", `"%s"`, "see (%s).", "\n%s\n", "größe %s"}).Draw(t, "around")
			secret := fmt.Sprintf(around, rapid.StringMatching(s.shape).Draw(t, s.name))
			if rapid.IntRange(0, 5).Draw(t, "as a name") == 0 {
				return somewhere(t, secret, 1)
			}
			return somewhere(t, "ref", secret)
		})
	}
	forms = append(forms, func(t *rapid.T) any { // by its name alone
		name := rapid.SampledFrom([]string{"password", "Password", "db_password", "passwd", "passphrase", "client_secret", "clientSecret", "secret_key",
			"aws_secret_access_key", "api_key", "apiKey", "private_key", "access_token", "refreshToken"}).Draw(t, "name")
		return somewhere(t, name, rapid.StringMatching(`[a-z0-9]{1,30}`).Draw(t, "value"))
	}, func(t *rapid.T) any { // document text, prompts, vectors
		return somewhere(t, "text", rapid.StringMatching(`[a-zé ]{257,400}`).Draw(t, "text"))
	}, func(t *rapid.T) any {
		return somewhere(t, "blob", base64.StdEncoding.EncodeToString(rapid.SliceOfN(rapid.Byte(), 193, 400).Draw(t, "blob")))
	}, func(t *rapid.T) any {
		return somewhere(t, "vector", rapid.SliceOfN(rapid.Float64Range(-1, 1), 700, 800).Draw(t, "vector"))
	})
	rapid.Check(t, func(rt *rapid.T) {
		data := forms[rapid.IntRange(0, len(forms)-1).Draw(rt, "form")](rt)
		e := event(func(e *platform.NewEvent) { e.Data = data })
		events := rapid.SampledFrom([][]platform.NewEvent{{e}, {event(nil), e}, {once(nil), e}}).Draw(rt, "how")
		_, err := emitAlone(t.Context(), pool, events...)
		if !errors.Is(err, platform.ErrNotPointer) && !errors.Is(err, platform.ErrSize) {
			text, _ := json.Marshal(data)
			rt.Fatalf("Emit of %s = %v; want it refused", text, err)
		}
	})
	nothingThere(t, pool)
}

// What a team points with is accepted.
func TestEmitTakesOrdinaryPointers(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	shapes := []string{
		`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}`, // UUID
		`[0-7][0-9A-HJKMNP-TV-Z]{25}`,                                    // ULID
		`[0-9a-f]{64}`,                                                   // SHA-256
		`(order|customer|task|risk|disk|desk)-[0-9]{1,9}`,
		`s3://[a-z]{3,10}/[a-z]{1,10}/[0-9]{1,5}\.pdf`,
		`https://[a-z]{1,10}\.example(:8443)?/[a-z]{1,10}/[0-9]{1,5}(\?page=[0-9]|#part)?`,
		`[a-z]{1,10}@[a-z]{1,10}\.example`,
		`20[0-9]{2}-1[0-2]-2[0-8]T1[0-9]:00:00Z`,
		`[a-z]{1,10}/[a-z]{1,10}:v[0-9]\.[0-9]@sha256:[0-9a-f]{64}`,
		`(EUR|USD) [0-9]{1,6}\.[0-9]{2}`,
		`größe|🦉|日本語`,
	}
	names := []string{"order_id", "ref", "password_reset_id", "token_id", "api_key_id", "secret_ref", "key", "keys", "kid", "accessKeyId"}
	rapid.Check(t, func(rt *rapid.T) {
		data := somewhere(rt, rapid.SampledFrom(names).Draw(rt, "name"), rapid.StringMatching(rapid.SampledFrom(shapes).Draw(rt, "shape")).Draw(rt, "pointer"))
		e := event(func(e *platform.NewEvent) { e.Data = data })
		events := rapid.SampledFrom([][]platform.NewEvent{{e}, {event(nil), e}}).Draw(rt, "how")
		if _, err := emitAlone(t.Context(), pool, events...); err != nil {
			text, _ := json.Marshal(data)
			rt.Fatalf("Emit of %s = %v", text, err)
		}
	})
}

// The quick look (pgmill.suspicious) lets nothing pass that the thorough one
// (pgmill.check_event) refuses.
func TestEmitQuickLookIsNoWayAround(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	pieces := []string{"://", "@", "?sig=", "&SIGNATURE=", "?Token=", "&api_key=", "?apikey=", "?PASSWORD=", "-----BEGIN", "eyJ", "abcdefgh.", "AKIA", "ASIA", "ABCDEFGHIJKL",
		"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xoxa-", "xoxs-", "sk-", "sk_", "AIza", "glpat-", "Bearer ", "BEARER ", "bearer ", "password", "PassWord", "passwd", " :", "=", " = ",
		"client_secret", "apiKey", "ACCESS_KEY", "id_token", "abcdefghijklmnopqrstuvwxyz0123456789", " ", "\n", "\"", "\\", "/", "é"}
	rapid.Check(t, func(rt *rapid.T) {
		word := func(label string) string {
			s := ""
			for _, p := range rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 4).Draw(rt, label) {
				s += p
			}
			return s
		}
		data, err := json.Marshal(somewhere(rt, word("name"), word("value")))
		if err != nil {
			rt.Fatal(err)
		}
		if suspicious, refused := looks(t, pool, string(data)); refused && !suspicious {
			rt.Fatalf("%s is refused, but not suspicious: mill.emit would take it", data)
		}
	})
}

// looks are the verdicts of the quick and of the thorough look.
func looks(t *testing.T, pool *pgxpool.Pool, data string) (suspicious, refused bool) {
	t.Helper()
	suspicious = ask[bool](t, pool, `select pgmill.suspicious($1::text::jsonb)`, data)
	_, err := pool.Exec(t.Context(), `select pgmill.check_event('a', 't', null, $1::text::jsonb, 'install', null, null)`, data)
	return suspicious, err != nil
}

// Emit takes a short way for plain events. It is the same way: what mill.emit
// refuses Emit refuses with the same SQLSTATE, and the other way round.
func TestEmitsShortWayIsNoOther(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	pieces := []string{"a", "order", ".", "..", "_", "17", "Z", "-", "@", "ä", " ", "'", `"`, `\`, "\t", "\x7f", "x=y", strings.Repeat("l", 60), strings.Repeat("é", 50),
		"github_pat_x", "password", "key", "://", "eyJabcdefgh.", "ghp_01234567890123456789"}
	rapid.Check(t, func(rt *rapid.T) {
		word := func(label string, most int) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, most).Draw(rt, label), "")
		}
		plain := func(label, otherwise string, most int) string { // so that not all is refused for its type
			if rapid.IntRange(0, 3).Draw(rt, label+" is odd") > 0 {
				return otherwise
			}
			return word(label, most)
		}
		e := platform.NewEvent{
			Type: plain("type", "orders.placed", 5), Target: plain("target", "order-17", 5), Key: plain("key", "", 5),
			Scope: rapid.SampledFrom([]string{"", "", "", "install", "provider", "org:acme", "org:", "x"}).Draw(rt, "scope"),
		}
		switch rapid.IntRange(0, 6).Draw(rt, "data") {
		case 0:
		case 6:
			e.Data = map[string]float64{"n": rapid.SampledFrom([]float64{1e20, 1e300, -2e-300}).Draw(rt, "number")}
		case 1:
			e.Data = []string{word("list", 2)}
		case 2:
			e.Data = map[string][]int{"n": make([]int, rapid.IntRange(0, 2000).Draw(rt, "length"))}
		default:
			e.Data = map[string]any{plain("name", "id", 3): word("value", 6), "n": 1}
		}
		_, got := emitAlone(t.Context(), pool, e)
		data, _, err := texts(e)
		if err != nil {
			rt.Fatal(err)
		}
		_, want := pool.Exec(t.Context(), `select mill.emit($1, $2, nullif($3, ''), $4::text::jsonb, coalesce(nullif($5, ''), 'install'))`, e.Type, e.Target, e.Key, data, e.Scope)
		if sqlState(got) != sqlState(want) || (got == nil) != (want == nil) {
			rt.Fatalf("Emit(%+v) = %v; mill.emit says %v", e, got, want)
		}
	})
}
