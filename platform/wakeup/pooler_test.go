package wakeup_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// F43, N26: behind a pooler in transaction mode a host works by its poll and says within
// five seconds that it hears nothing; with a DSN that bypasses the pooler it hears. Jobs
// whose input is JSON of every kind, and events with data, are done once each and arrive
// as they were sent, although the pooler dies while a handler's transaction is open and a
// Run at work; and the server refuses not one statement.
func TestF43HostBehindAPooler(t *testing.T) {
	t.Parallel()
	n := 1000
	if testing.Short() {
		n = 300
	}
	for _, tt := range []struct {
		name   string
		direct bool
	}{{"and nothing else", false}, {"and a direct DSN", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fault.NewServer(t, map[string]string{"log_line_prefix": "%e "})
			if _, err := pg.Migrate(t.Context(), server.DSN, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			pool := platformtest.Pool(t, server.DSN)
			sql(t, pool, `create table effect (sub text, event_id bigint, data jsonb, primary key (sub, event_id)); create table made (n int primary key, input jsonb)`, pgx.QueryExecModeSimpleProtocol)
			pooler := fault.NewPooler(t, server.DSN)
			said := &pgtest.Journal{}
			// Two handlers at once: the pooler has four sessions, and the lease needs one.
			w := &host.Worker{Database: pooler.DSN, LeaseTTL: 10 * time.Second, MaxConns: 2, MaxJobs: 20, Log: host.NewLogger(said, "text", slog.LevelDebug, pooler.DSN), Registry: platform.NewRegistry()}
			if tt.direct {
				w.ListenURL = server.DSN
			}
			open := &gate{at: n / 3, reached: make(chan struct{}, 2), passed: make(chan struct{})}
			for _, f := range []platform.Function{loaded, open.inside(), open.outside()} {
				if err := w.Registry.Add(f); err != nil {
					t.Fatal(err)
				}
			}
			platformtest.HostWith(t, w)
			const deaf = `select 'listen_unavailable' = any (reasons) from pgmill.instance where kind = 'worker'`
			if tt.direct {
				hearing(t, w)
			} else {
				platformtest.WaitFor(t, pool, `select (`+deaf+`) and clock_timestamp() - since < interval '5 s' from pgmill.instance where kind = 'worker'`)
			}
			send(t, pooler.DSN, n)
			for range 2 {
				select {
				case <-open.reached:
				case <-time.After(time.Minute):
					t.Fatalf("job %d did not begin\n%s", n/3, platformtest.Waiting(pool))
				}
			}
			killed := ask[time.Time](t, pool, `select clock_timestamp()`)
			pooler.Kill()
			close(open.passed)
			pooler.Start()
			platformtest.WaitWithin(t, pool, 2*time.Minute, `select count(*) = $1 from pgmill.job where state = 'SUCCEEDED'`, n)
			allNoted(t, pool, time.Minute)
			platformtest.WaitFor(t, pool, `select (`+deaf+`) <> $1`, tt.direct)

			for what, query := range map[string]string{
				"jobs that did not arrive or return as they were sent": `select id from pgmill.job where input -> 'v' is distinct from ($2::text[])[1 + (input ->> 'n')::int % cardinality($2)]::jsonb or output is distinct from input`,
				"jobs whose effect is not that of one attempt":         `select j.id from (select * from pgmill.job where topic = 'job.f43.inside') j full join made m on m.n = (j.input ->> 'n')::int where j.input is distinct from m.input`,
				"events that did not arrive as they were sent":         `select e.id::text from pgmill.event e left join effect f on f.event_id = e.id where f.data is distinct from e.data`,
				"attempts lost to something else than the kill":        `select format('%s: %s', job, reason) from pgmill.job_attempt where ended_at < $1 or attempt > 1`,
			} {
				if got := ask[string](t, pool, `select coalesce(string_agg(x, ' '), '') from (`+query+` limit 5) y (x) where num_nulls($1::timestamptz, $2::text[]) = 0`, killed, kinds); got != "" {
					t.Errorf("%s: %s", what, got)
				}
			}
			burnt := ask[int](t, pool, `select coalesce(sum(attempt - 1), 0)::int from pgmill.job`)
			if burnt > w.MaxJobs {
				t.Errorf("%d attempts burnt; at most %d jobs were at work when the pooler died", burnt, w.MaxJobs)
			}
			t.Logf("%d jobs, %d attempts burnt by the pooler's death", n, burnt)
			if got := regexp.MustCompile(`(?m)^.*(ERROR: |(26000|22P02|42P05) ).*$`).FindAllString(server.Log(), 5); got != nil {
				t.Errorf("the server refused\n%s", strings.Join(got, "\n"))
			}
			if got := regexp.MustCompile(`(?m)^.*(26000|22P02|42P05).*$`).FindAllString(said.String(), 5); got != nil {
				t.Errorf("the host says\n%s", strings.Join(got, "\n"))
			}
			platformtest.Invariants(t, pool)
		})
	}
}

// kinds are values of JSON, one of each kind and those that drivers spoil.
var kinds = []string{`null`, `true`, `0`, `-0.5e-7`, `9007199254740993`, `1e40`, `""`, `"\\x5c00"`, `"it's \"quoted\"\n\u00e9 \\ $1 ?"`, `[]`, `[1, [null, {"a": "b"}]]`, `{"a": {"b": [false]}}`}

// send submits n jobs and emits an event beside each, through a pooler, in all the ways
// in which a client may talk to one.
func send(t *testing.T, dsn string, n int) {
	t.Helper()
	var clients []*pgxpool.Pool
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns, cfg.ConnConfig.DefaultQueryExecMode = 1, mode
		client, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	for i := 0; i < n; i += 10 {
		err := pgx.BeginFunc(t.Context(), clients[i/10%len(clients)], func(tx pgx.Tx) error {
			for j := i; j < min(i+10, n); j++ {
				v := json.RawMessage(kinds[j%len(kinds)])
				if _, err := platform.Enqueue(t.Context(), tx, platform.NewJob{Topic: []string{"job.f43.inside", "job.f43.outside"}[j%2], Input: map[string]any{"n": j, "v": v}}); err != nil {
					return err
				}
				if _, err := platform.Emit(t.Context(), tx, platform.NewEvent{Type: "test.load", Target: fmt.Sprint("o", j%7), Data: map[string]any{"n": j, "v": v}}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("send from %d: %v", i, err)
		}
	}
}

// loaded notes events with their data.
var loaded = platform.Subscription{Name: "a.load", Events: []string{"test.*"}, Owners: platform.OwnedBy("test"), From: platform.FromZero,
	Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		_, err := tx.Exec(ctx, `insert into effect (sub, event_id, data) values ('a.load', $1, $2)`, e.ID, e.Data)
		return err
	}}

// gate stops one job in a handler's transaction and one in a Run, and all that come
// after them, until it is passed.
type gate struct {
	at              int
	reached, passed chan struct{}
	in, out         sync.Once
}

func (g *gate) wait(ctx context.Context, raw json.RawMessage, once *sync.Once) (n int, err error) {
	var in struct{ N int }
	if err := json.Unmarshal(raw, &in); err != nil {
		return 0, err
	}
	if in.N >= g.at {
		once.Do(func() {
			g.reached <- struct{}{}
			select {
			case <-g.passed:
			case <-ctx.Done():
			}
		})
	}
	return in.N, nil
}

func (g *gate) inside() platform.Function {
	return platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.f43.inside", Backoff: 10 * time.Millisecond,
		Handle: func(ctx context.Context, tx pgx.Tx, in json.RawMessage) (json.RawMessage, error) {
			if _, err := tx.Exec(ctx, `insert into made (n, input) select ($1::jsonb ->> 'n')::int, $1`, in); err != nil {
				return nil, err
			}
			_, err := g.wait(ctx, in, &g.in)
			return in, err
		}}
}

func (g *gate) outside() platform.Function {
	return platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.f43.outside", Backoff: 10 * time.Millisecond,
		Run: func(ctx context.Context, _ *platform.Attempt, in json.RawMessage) (json.RawMessage, error) {
			_, err := g.wait(ctx, in, &g.out)
			return in, err
		}}
}
