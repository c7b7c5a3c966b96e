package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform/api"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// world is a database with an API before it.
type world struct {
	*testing.T
	pool *pgxpool.Pool
	url  string
	bell *api.Bell
	log  *bytes.Buffer
	late *atomic.Int64 // results that came too late
}

// The keys of a world, by name.
const (
	root  = "root-key-0123456789"
	acme  = "acme-key-0123456789"
	other = "other-key-123456789"
	reads = "viewer-key-12345678"
	works = "worker-key-12345678"
)

const keys = "root:" + root + ":*,acme:" + acme + ":org:acme:admin\nother:" + other + ":org:other\nsees:" + reads + ":org:acme:viewer,does:" + works + ":org:acme:worker"

// newWorld serves as a login role that has what a host's has and owns nothing.
func newWorld(t *testing.T) world {
	t.Helper()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	w := world{T: t, pool: pool, bell: &api.Bell{}, log: &bytes.Buffer{}, late: &atomic.Int64{}}
	w.exec(`do $$ begin create role pgmill_api_test login password 'pgmill_api_test' in role pgmill_runtime; exception when duplicate_object or unique_violation then null; end $$`)
	cfg := pool.Config()
	cfg.ConnConfig.User, cfg.ConnConfig.Password = "pgmill_api_test", "pgmill_api_test"
	host, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	all, err := api.ParseKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	w.serve(&api.Server{Pool: func() *pgxpool.Pool { return host }, Keys: all, Log: slog.New(slog.NewTextHandler(w.log, nil)), Bell: w.bell, Late: func() { w.late.Add(1) }})
	return w
}

func (w *world) serve(s *api.Server) {
	e := echo.New()
	s.Mount(e)
	server := httptest.NewServer(e)
	w.Cleanup(server.Close)
	w.url = server.URL
}

func (w world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.pool.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](w world, sql string, args ...any) T {
	w.Helper()
	rows, err := w.pool.Query(w.Context(), sql, args...)
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	v, err := pgx.CollectOneRow(rows, pgx.RowTo[T])
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return v
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
	object map[string]any // nil: it is none; numbers are json.Number
}

func (a answer) text(name string) string { s, _ := a.object[name].(string); return s }

// items is the array at name.
func (a answer) items(name string) []map[string]any {
	var all []map[string]any
	list, _ := a.object[name].([]any)
	for _, i := range list {
		all = append(all, i.(map[string]any))
	}
	return all
}

// call sends a request with a key; header pairs may follow.
func (w world) call(key, method, path, body string, header ...string) answer {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, body: string(b)}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	_ = d.Decode(&a.object)
	return a
}

// want fails unless the answer has this status and, if it is a refusal, this code.
func (w world) want(a answer, status int, code string) answer {
	w.Helper()
	if a.status != status || code != "" && a.text("code") != code {
		w.Fatalf("answered %d %s; want %d %s", a.status, a.body, status, code)
	}
	return a
}

// job submits as acme and answers the id.
func (w world) job(topic, input string) string {
	w.Helper()
	a := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"topic": "`+topic+`", "input": `+input+`}`), 200, "")
	return a.text("job_id")
}

// claimed claims one job as acme and answers its id and token, ready for a body.
func (w world) claimed(topic string) (id, token string) {
	w.Helper()
	a := w.want(w.call(acme, "POST", "/api/v1/worker/claim", `{"worker": "w1", "topics": ["`+topic+`"]}`), 200, "")
	if jobs := a.items("jobs"); len(jobs) == 1 {
		return jobs[0]["job_id"].(string), jobs[0]["token"].(string)
	}
	w.Fatalf("claimed %s; want one job", a.body)
	return "", ""
}

func (w world) waitFor(query string) { w.Helper(); platformtest.WaitFor(w, w.pool, query) }
