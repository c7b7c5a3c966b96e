package api_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/api"
)

// C191: a body that does not come ends its request, whether anybody reads it or not; what a
// request waits for after its body is not bounded by it.
func TestABodyHasItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all, err := api.ParseKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	w.serve(&api.Server{Pool: func() *pgxpool.Pool { return w.pool }, Keys: all, Log: slog.New(slog.DiscardHandler), BodyTimeout: 200 * time.Millisecond})
	const half = "POST %s HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Length: 50\r\n\r\n{\"worker\": "
	for _, tt := range []struct {
		name, path, key string
		status          int
	}{
		{"one that is read", "/api/v1/worker/claim", works, 408},
		{"one that nobody reads", "/api/v1/dlq/x/retry", "wrong", 401},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, half, tt.path, tt.key)
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != tt.status {
			t.Fatalf("%s: %v, %v; want %d", tt.name, res, err, tt.status)
		}
		if _, err := r.ReadByte(); err == nil {
			_, err = r.WriteTo(discard{})
			if err != nil {
				t.Errorf("%s: the connection is kept: %v", tt.name, err)
			}
		}
	}
	began := time.Now()
	w.want(w.call(works, "POST", "/api/v1/worker/claim", `{"worker": "w1", "topics": ["job.t.none"], "wait_ms": 700}`), 200, "")
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("a claim waits for %v, want 700 ms", took)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// C193: what the API's role may is what its routes need, and each of those functions asks for
// the scope: no table, no view, nothing else. Whoever adds one here sees to that.
func TestTheAPIMayDoNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const may = `select coalesce(string_agg(n.nspname || '.' || p.proname, ' ' order by n.nspname, p.proname), '') from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname in ('mill', 'pgmill') and has_function_privilege('pgmill_api', p.oid, 'execute')`
	const want = "mill.blob mill.cancel mill.claim_jobs mill.complete_job mill.delete_dead_letter mill.fail_job mill.late_job mill.progress_job mill.read_blob mill.release_job mill.renew_jobs mill.retry_dead_letter " +
		"mill.submit_job mill.submit_jobs pgmill.api_submit pgmill.count_dead_letters pgmill.get_document pgmill.get_job pgmill.job_output pgmill.known_topics pgmill.list_dead_letters pgmill.list_jobs pgmill.list_workers pgmill.note_rejected pgmill.retry_letter pgmill.set_document " +
		"pgmill.sweep_dead_letters pgmill.topic_input pgmill.trace_jobs"
	if got := ask[string](w, may); got != want {
		t.Errorf("it may execute %s\nwant %s", got, want)
	}
	if got := ask[string](w, `select coalesce(string_agg(c.oid::regclass::text, ' '), '') from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname in ('mill', 'pgmill') and (c.relkind = 'S' and has_sequence_privilege('pgmill_api', c.oid, 'usage,select,update')
		   or c.relkind in ('r', 'p', 'v', 'm') and has_any_column_privilege('pgmill_api', c.oid, 'select,insert,update'))`); got != "" {
		t.Errorf("it may use %s", got)
	}
}
