package job_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// Issue 4: everything that a request causes is of its trace: what the handler of its job
// emits and submits, in whichever way, what a subscription to that enqueues, and what the
// Run that comes of it emits in transactions of its own.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	event := platform.NewEvent{Type: "trace.a", Target: "t"}
	w.host(
		platform.Step[json.RawMessage, none]{Topic: "job.tr.handle", Handle: func(ctx context.Context, tx pgx.Tx, _ json.RawMessage) (none, error) {
			if _, err := platform.Emit(ctx, tx, event); err != nil {
				return none{}, err
			}
			if _, err := platform.Enqueue(ctx, tx, platform.NewJob{Topic: "job.tr.none"}); err != nil {
				return none{}, err
			}
			_, err := tx.Exec(ctx, `select mill.emit('trace.sql', 't')`)
			return none{}, err
		}},
		platform.Subscription{Name: "trace.sub", Events: []string{"trace.a"}, Owners: platform.OwnedBy("t"), From: platform.FromZero,
			Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
				if _, err := platform.Emit(ctx, tx, platform.NewEvent{Type: "trace.b", Target: "t", Key: "k"}); err != nil {
					return err
				}
				_, err := platform.Enqueue(ctx, tx, platform.NewJob{Topic: "job.tr.run"})
				return err
			}},
		work("job.tr.run", func(ctx context.Context, _ *platform.Attempt) error {
			return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
				if _, err := platform.Emit(ctx, tx, platform.NewEvent{Type: "trace.c", Target: "t"}, platform.NewEvent{Type: "trace.c", Target: "u"}); err != nil {
					return err
				}
				_, err := platform.Enqueue(ctx, tx, platform.NewJob{Topic: "job.tr.none"}, platform.NewJob{Topic: "job.tr.none"})
				return err
			})
		}))
	platformtest.WaitFor(t, w.pool, `select exists (select from mill.subscriptions where name = 'trace.sub')`)
	ids := []string{w.submit("job.tr.handle", `{}`, `{"trace_id":"request-1"}`), w.submit("job.tr.handle", `{}`, `{}`)}
	for trace, id := range map[string]string{"request-1": ids[0], ids[1]: ids[1]} { // none given: its id begins one
		platformtest.WaitFor(t, w.pool, `select (select count(*) from mill.jobs where topic = 'job.tr.run' and state = 'SUCCEEDED' and trace_id = $1) = 1`, trace)
		const all = `select (select string_agg(topic, ' ' order by topic) from mill.jobs where trace_id = $1) || ' ' || (select string_agg(type, ' ' order by type) from mill.events where trace_id = $1)`
		if got, want := ask[string](w, all, trace), "job.tr.handle job.tr.none job.tr.none job.tr.none job.tr.run trace.a trace.b trace.c trace.c trace.sql"; got != want {
			t.Errorf("of the trace of job %s are %s\nwant %s", id, got, want)
		}
	}
	if n := ask[int64](w, `select (select count(*) from mill.jobs where trace_id not in ('request-1', $1)) + (select count(*) from mill.events where coalesce(trace_id, '') not in ('request-1', $1))`, ids[1]); n != 0 {
		t.Errorf("%d jobs and events are of other traces", n)
	}
}

// What is emitted and submitted in a transaction is of its trace, in each way that there
// is; one that is named counts before it, one that is malformed is none, and the
// session's next transaction has none of it.
func TestTheTransactionsTrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, err := w.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ways := map[string]string{
		"the short way":         `insert into mill.outbox (type, target, data) values ('w', 't', '{}')`,
		"emit":                  `select mill.emit('w', 't')::text`,
		"emit with options":     `select mill.emit('w', 't', options => '{"idempotency_key":"k1"}')::text`,
		"emit another's":        `select mill.emit('w', 't', options => '{"trace_id":"own"}')::text`,
		"many":                  `select mill.emit_many('[{"type":"w","target":"t"},{"type":"w","target":"t","data":{}},{"type":"w","target":"u","data":{},"trace_id":"own"}]')::text`,
		"a plain job":           `select mill.submit_job('job.w')`,
		"a job":                 `select mill.submit_job('job.w', options => '{"cost":2}')`,
		"a job of another":      `select mill.submit_job('job.w', options => '{"trace_id":"own"}')`,
		"jobs":                  `select count(*)::text from mill.submit_jobs((select jsonb_agg('{"topic":"job.w"}'::jsonb) from generate_series(1, 6)))`,
		"a job with a gate":     `select mill.submit_job('job.w', options => '{"unique_key":"u"}')`,
		"the Go of one event":   "",
		"the Go of many events": "",
	}
	const made = `select coalesce((select string_agg(distinct coalesce(trace_id, '-'), ' ' order by coalesce(trace_id, '-'))
		from (select trace_id from pgmill.event union all select nullif(trace_id, id) from pgmill.job) x), 'nothing')` // all else is rolled back
	for name, sql := range ways {
		for _, tt := range []struct{ set, inherited string }{{"request-2", "request-2"}, {"", "-"}, {"a b", "-"}, {"none at all", "-"}} {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tt.set != "none at all" {
				_, err = tx.Exec(t.Context(), `select set_config('pgmill.trace_id', $1, true)`, tt.set)
			}
			want := tt.inherited
			switch {
			case err != nil:
			case name == "the Go of one event":
				_, err = platform.Emit(t.Context(), tx, platform.NewEvent{Type: "w", Target: "t"})
			case name == "the Go of many events":
				_, err = platform.Emit(platform.WithTrace(t.Context(), "context"), tx, platform.NewEvent{Type: "w", Target: "t"}, platform.NewEvent{Type: "w", Target: "t", TraceID: "own"})
				want = "context own"
			case name == "emit another's", name == "a job of another":
				want = "own"
				_, err = tx.Exec(t.Context(), sql)
			case name == "many":
				want = map[string]string{"request-2": "own request-2", "-": "- own"}[tt.inherited]
				_, err = tx.Exec(t.Context(), sql)
			default:
				_, err = tx.Exec(t.Context(), sql)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var got string
			if err := tx.QueryRow(t.Context(), made).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s in a transaction of the trace %q: %s, want %s", name, tt.set, got, want)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
