package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/job"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// F28, N71: what becomes of an attempt, by what its handler does: the job's state, its
// reason, how many attempts it took, and whether it is a dead letter (C92). No text of
// an error is stored.
func TestHowAttemptsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type out struct {
		Text string `json:"text"`
	}
	failing := func(topic string, err func(a *platform.Attempt) error) platform.Function {
		return platform.Step[json.RawMessage, out]{Topic: topic, MaxAttempts: 3, Backoff: time.Millisecond, Timeout: 500 * time.Millisecond, RetryOn: nil,
			Run: func(ctx context.Context, a *platform.Attempt, _ json.RawMessage) (out, error) {
				return out{}, err(a)
			}}
	}
	secret := errors.New("C4NARY")
	w.exec(`create table later (n int);
		create function refuse() returns trigger language plpgsql as $$ begin raise exception using errcode = '22P02'; end $$;
		create constraint trigger refuse after insert on later initially deferred for each row execute function refuse()`)
	for _, tt := range []struct {
		name, topic, input string
		step               platform.Function
		state, reason      string
		attempts           int32
	}{
		{"it goes well", "job.t.well", `{}`, failing("job.t.well", func(*platform.Attempt) error { return nil }), "SUCCEEDED", "", 1},
		{"an error is tried again until the attempts are spent", "job.t.error", `{}`, failing("job.t.error", func(*platform.Attempt) error { return secret }), "FAILED", "handler_error", 3},
		{"its own reason is shown", "job.t.because", `{}`, failing("job.t.because", func(*platform.Attempt) error { return platform.Because("t.gone", secret) }), "FAILED", "t.gone", 3},
		{"Fail is final", "job.t.final", `{}`, failing("job.t.final", func(*platform.Attempt) error { return platform.Fail("t.final", secret) }), "FAILED", "t.final", 1},
		{"a panic is a failed attempt", "job.t.panic", `{}`, failing("job.t.panic", func(*platform.Attempt) error { panic(secret) }), "FAILED", "panic", 3},
		{"it goes well the second time", "job.t.second", `{}`, failing("job.t.second", func(a *platform.Attempt) error {
			if a.Number == 1 {
				return secret
			}
			return nil
		}), "SUCCEEDED", "", 2},
		{"a snooze does not count", "job.t.snooze", `{}`, failing("job.t.snooze", func() func(a *platform.Attempt) error {
			var n atomic.Int64
			return func(*platform.Attempt) error {
				if n.Add(1) < 3 {
					return platform.Snooze(time.Millisecond)
				}
				return nil
			}
		}()), "SUCCEEDED", "", 1},
		{"a reason that is not in RetryOn is final", "job.t.only", `{}`,
			platform.Step[json.RawMessage, none]{Topic: "job.t.only", Backoff: time.Millisecond, RetryOn: []platform.Reason{"t.again"},
				Run: func(context.Context, *platform.Attempt, json.RawMessage) (none, error) { return none{}, secret }}, "FAILED", "handler_error", 1},
		{"input that does not fit the type", "job.t.input", `{"n": "x"}`,
			platform.Step[struct {
				N int `json:"n"`
			}, none]{Topic: "job.t.input", Run: func(context.Context, *platform.Attempt, struct {
				N int `json:"n"`
			}) (none, error) {
				return none{}, nil
			}}, "FAILED", "schema_validation_failed", 1},
		{"F27: output that Postgres does not take", "job.t.nul", `{}`,
			platform.Step[json.RawMessage, out]{Topic: "job.t.nul", Run: func(context.Context, *platform.Attempt, json.RawMessage) (out, error) {
				return out{"a\x00b"}, nil
			}}, "FAILED", "bad_output", 1},
		{"F27: the same in a transaction", "job.t.nultx", `{}`,
			platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.t.nultx", Handle: func(context.Context, pgx.Tx, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`{"a":"\ud800"}`), nil
			}}, "FAILED", "bad_output", 1},
		{"F27: a number beyond Postgres' own", "job.t.digits", `{}`,
			platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.t.digits", Handle: func(context.Context, pgx.Tx, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`{"n":1e999999}`), nil
			}}, "FAILED", "bad_output", 1},
		{"what the commit refuses is tried again, though it is such a value", "job.t.later", `{}`,
			platform.Step[json.RawMessage, none]{Topic: "job.t.later", MaxAttempts: 2, Backoff: time.Millisecond, Handle: func(ctx context.Context, tx pgx.Tx, _ json.RawMessage) (none, error) {
				_, err := tx.Exec(ctx, `insert into later values (1)`)
				return none{}, err
			}}, "FAILED", "commit_failed", 2},
		{"F27: an error with a NUL in its text", "job.t.nulerr", `{}`, failing("job.t.nulerr", func(*platform.Attempt) error { return errors.New("a\x00b") }), "FAILED", "handler_error", 3},
		{"F27: a large one with half of a pair", "job.t.half", `{}`,
			platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.t.half", Run: func(context.Context, *platform.Attempt, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`"\ud800` + strings.Repeat("x", platform.MaxOutput) + `"`), nil
			}}, "FAILED", "bad_output", 1},
		{"F27: the same in a transaction", "job.t.halftx", `{}`,
			platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.t.halftx", Handle: func(context.Context, pgx.Tx, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`"\ud800` + strings.Repeat("x", platform.MaxOutput) + `"`), nil
			}}, "FAILED", "bad_output", 1},
		{"output that is too large", "job.t.large", `{}`,
			platform.Step[json.RawMessage, out]{Topic: "job.t.large", Run: func(context.Context, *platform.Attempt, json.RawMessage) (out, error) {
				return out{strings.Repeat("x", platform.MaxBlob)}, nil
			}}, "FAILED", "bad_output", 1},
		{"a timeout of a handler that hears it", "job.t.slow", `{}`,
			platform.Step[json.RawMessage, none]{Topic: "job.t.slow", MaxAttempts: 2, Backoff: time.Millisecond, Timeout: 50 * time.Millisecond,
				Run: func(ctx context.Context, _ *platform.Attempt, _ json.RawMessage) (none, error) {
					<-ctx.Done()
					return none{}, ctx.Err()
				}}, "TIMEOUT", "timeout", 2},
		{"and of one that does not, in a transaction", "job.t.deaf", `{}`,
			platform.Step[json.RawMessage, none]{Topic: "job.t.deaf", MaxAttempts: 1, Timeout: 50 * time.Millisecond,
				Handle: func(context.Context, pgx.Tx, json.RawMessage) (none, error) { select {} }}, "TIMEOUT", "timeout", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world{t, w.dsn, w.pool}
			id := w.submit(tt.topic, tt.input, `{}`)
			w.host(tt.step)
			w.becomes(id, tt.state)
			attempt := ask[int32](w, `select attempt from mill.jobs where id = $1`, id)
			if got := w.reason(id); got != tt.reason || attempt != tt.attempts {
				t.Errorf("reason %q after %d attempts, want %q after %d", got, attempt, tt.reason, tt.attempts)
			}
			if n := ask[int64](w, `select count(*) from pgmill.job_attempt where job = $1`, id); n != int64(tt.attempts-1) {
				t.Errorf("%d earlier attempts are noted, want %d", n, tt.attempts-1)
			}
			dead := ask[bool](w, `select exists (select from mill.dead_letters where job_id = $1)`, id)
			if dead != (tt.state != "SUCCEEDED") {
				t.Errorf("a dead letter: %v; state %s", dead, tt.state)
			}
			if ask[bool](w, `select exists (select from pgmill.job j where j.id = $1 and j::text like '%C4NARY%')`, id) {
				t.Error("the text of an error is stored")
			}
		})
	}
}

// F27: a NUL is refused with a code where a job is submitted, and progress goes without.
func TestNULIsRefusedOrLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, j := range map[string]platform.NewJob{
		"topic": {Topic: "job.n\x00"}, "key": {Topic: "job.n", Key: "a\x00b"}, "unique key": {Topic: "job.n", UniqueKey: "a\x00b"},
		"label": {Topic: "job.n", Labels: map[string]string{"a": "\x00"}}, "input": {Topic: "job.n", Input: map[string]string{"\x00": "a"}},
	} {
		err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			_, err := platform.Enqueue(t.Context(), tx, j)
			return err
		})
		if !errors.Is(err, platform.ErrBadJob) {
			t.Errorf("a NUL in the %s: %v, want ErrBadJob", name, err)
		}
	}
	id := w.submit("job.n", `{}`, `{}`)
	w.host(work("job.n", func(ctx context.Context, a *platform.Attempt) error {
		return a.Progress(ctx, 50, "half\x00way \xff"+strings.Repeat("ä", 200))
	}))
	w.becomes(id, "SUCCEEDED")
	if got, want := ask[string](w, `select percent || ' ' || message from pgmill.job_progress where job = $1`, id), "50 half way \uFFFD"+strings.Repeat("ä", 190); got != want {
		t.Errorf("the progress is %q, want %q", got, want)
	}
}

// F28: every value comes out as it went in, by type and digit.
func TestValuesSurvive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const in = `{"b": true, "d": 0.1, "e": [], "f": false, "n": null, "s": "007", "x": "😀", "id": 9007199254740993, "neg": -9223372036854775808}`
	pass := func(_ context.Context, _ pgx.Tx, v any) (any, error) { return v, nil }
	w.host(platform.Step[any, any]{Topic: "job.t.any", Handle: pass},
		platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.t.raw", Handle: func(_ context.Context, _ pgx.Tx, v json.RawMessage) (json.RawMessage, error) { return v, nil }})
	for _, topic := range []string{"job.t.any", "job.t.raw"} {
		id := w.submit(topic, in, `{}`)
		w.becomes(id, "SUCCEEDED")
		if !ask[bool](w, `select output = $2::text::jsonb and output::text = $2::text::jsonb::text from pgmill.job where id = $1`, id, in) {
			t.Errorf("%s answered %s", topic, ask[string](w, `select output::text from pgmill.job where id = $1`, id))
		}
	}
}

// What a Handle writes and emits is there if and only if the job has succeeded.
func TestHandleCommitsWithTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`create table made (job text, attempt int)`)
	var calls atomic.Int64
	w.host(platform.Step[json.RawMessage, none]{Topic: "job.t.make", MaxAttempts: 5, Backoff: time.Millisecond,
		Handle: func(ctx context.Context, tx pgx.Tx, _ json.RawMessage) (none, error) {
			n := calls.Add(1)
			if _, err := tx.Exec(ctx, `insert into made (attempt) values ($1)`, n); err != nil {
				return none{}, err
			}
			if _, err := platform.Emit(ctx, tx, platform.NewEvent{Type: "made", Target: "t"}); err != nil {
				return none{}, err
			}
			switch n {
			case 1:
				return none{}, errors.New("no")
			case 2:
				panic("no")
			case 3:
				_, _ = tx.Exec(ctx, `select 1/0`)
			}
			return none{}, nil
		}})
	id := w.submit("job.t.make", `{}`, `{}`)
	w.becomes(id, "SUCCEEDED")
	if got := ask[string](w, `select (select string_agg(attempt::text, ',') from made) || ' ' || (select count(*) from mill.events where type = 'made')`); got != "4 1" {
		t.Errorf("made by attempts, and events: %s; want 4 and 1", got)
	}
}

// What a Run says of how far it is shows with its job while it runs, and stays.
func TestProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	goOn := make(chan struct{})
	w.host(work("job.t.far", func(ctx context.Context, a *platform.Attempt) error {
		if err := errors.Join(a.Progress(ctx, 40, "halfway"), a.Progress(ctx, 140, "")); err != nil {
			return err
		}
		<-goOn
		return nil
	}))
	id := w.submit("job.t.far", `{}`, `{}`)
	const shown = `select concat_ws(' ', j ->> 'state', j -> 'progress' ->> 'percent', j -> 'progress' ->> 'message') from pgmill.get_job($1) j`
	platformtest.WaitFor(t, w.pool, `select (`+shown+`) = 'RUNNING 100 '`, id)
	close(goOn)
	w.becomes(id, "SUCCEEDED")
	if got := ask[string](w, shown, id); got != "SUCCEEDED 100 " {
		t.Errorf("in the end it shows %q", got)
	}
}

// F46: a host that is told to stop lets short jobs finish and hands long ones back
// without counting the attempt; they begin again elsewhere at once.
func TestDrainHandsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := make(chan int, 10)
	step := work("job.t.long", func(ctx context.Context, a *platform.Attempt) error {
		started <- a.Number
		if len(started) == 2 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	step.MaxAttempts = 1
	first := w.hostWith(&host.Worker{Grace: time.Second}, step)
	id := w.submit("job.t.long", `{}`, `{}`)
	w.becomes(id, "RUNNING")
	for len(started) == 0 {
		<-time.After(time.Millisecond)
	}
	w.host(step)
	platformtest.Stop(w, first)
	w.becomes(id, "SUCCEEDED")
	if a, b := <-started, <-started; a != 1 || b != 1 {
		t.Errorf("attempts %d and %d; want 1 and 1", a, b)
	}
}

// F46: a job that is handed back when the grace is over goes before the host's lease does:
// else others would take it for lost, which counts.
func TestDrainHandsBackBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.hostWith(&host.Worker{Grace: 100 * time.Millisecond}, work("job.t.long", func(ctx context.Context, _ *platform.Attempt) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	id := w.submit("job.t.long", `{}`, `{}`)
	w.becomes(id, "RUNNING")
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `select from pgmill.river_job where queue = 'job' for update`); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		platformtest.Stop(t, first)
	}()
	platformtest.WaitFor(t, w.pool, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%end_claims%')`)
	until := ask[time.Time](w, `select clock_timestamp() + interval '300 ms'`)
	platformtest.WaitFor(t, w.pool, `select clock_timestamp() > $1 or exists (select from pgmill.instance where deregistered_at is not null)`, until)
	if ask[bool](w, `select exists (select from pgmill.instance where deregistered_at is not null)`) {
		t.Error("the lease ended before the job was back")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-stopped
	if got := ask[string](w, `select state || ' ' || (select count(*) from pgmill.job_attempt) from mill.jobs where id = $1`, id); got != "PENDING 0" {
		t.Errorf("the job is %s attempts noted; want PENDING 0", got)
	}
}

// The rest after a failed attempt doubles up to the most and is up to a quarter shorter by
// chance; a host's first death costs none.
func TestRests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct {
		name    string
		attempt int
		reason  string
		final   bool
		spread  float64
		want    string // seconds; "": it has failed for good
	}{
		{"the first rests the backoff", 1, "t.x", false, 0, "2"},
		{"the second twice as long", 2, "t.x", false, 0, "4"},
		{"the fourth eight times", 4, "t.x", false, 0, "16"},
		{"a quarter off at most", 4, "t.x", false, 1, "12"},
		{"half of that by half the chance", 4, "t.x", false, 0.5, "14"},
		{"the most is not passed", 6, "t.x", false, 0, "60"},
		{"nor does the power overflow", 98, "t.x", false, 0, "60"},
		{"a quarter off the most, too", 98, "t.x", false, 1, "45"},
		{"the attempts are spent", 99, "t.x", false, 0, ""},
		{"final is final", 1, "t.x", true, 0, ""},
		{"a reason that is not tried again", 1, "t.y", false, 0, ""},
		{"a host's first death", 1, "host_lost", false, 0, "0"},
		{"its second", 2, "host_lost", false, 0, "2"},
		{"its third", 3, "host_lost", false, 0, "4"},
		{"its last", 99, "host_lost", false, 0, ""},
	} {
		got := ask[string](w, `select coalesce(extract(epoch from pgmill.job_rest($1, 99, '2 s', '1 min', '{t.x}', $2, $3, $4))::float8::text, '')`, tt.attempt, tt.reason, tt.final, tt.spread)
		if got != tt.want {
			t.Errorf("%s: after attempt %d with %s, spread %v, it rests %q s; want %q", tt.name, tt.attempt, tt.reason, tt.spread, got, tt.want)
		}
	}
	step := work("job.t.rest", func(context.Context, *platform.Attempt) error { return errors.New("no") })
	step.MaxAttempts, step.Backoff, step.BackoffMax = 4, 400*time.Millisecond, 600*time.Millisecond
	w.host(step)
	id := w.submit("job.t.rest", `{}`, `{}`)
	w.becomes(id, "FAILED")
	rests := ask[string](w, `select string_agg((next - ended_at >= least(600, 400 * power(2, attempt - 1)) * 0.75 * interval '1 ms')::text, ' ' order by attempt)
		from (select a.attempt, a.ended_at, coalesce(lead(a.started_at) over (order by a.attempt), j.started_at) as next from pgmill.job_attempt a join pgmill.job j on j.id = a.job where a.job = $1) x`, id)
	if rests != "true true true" {
		t.Errorf("the three rests were long enough: %s", rests)
	}
}

// A Handle's time begins when it has a connection: one that waits for others' is not late.
func TestWaitingForAConnectionIsNoTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	free := make(chan struct{})
	w.hostWith(&host.Worker{MaxConns: 1},
		platform.Step[none, none]{Topic: "job.t.has", Handle: func(context.Context, pgx.Tx, none) (none, error) { <-free; return none{}, nil }},
		platform.Step[none, none]{Topic: "job.t.waits", Timeout: time.Second, MaxAttempts: 1, Handle: func(context.Context, pgx.Tx, none) (none, error) { return none{}, nil }})
	w.becomes(w.submit("job.t.has", `{}`, `{}`), "RUNNING")
	id := w.submit("job.t.waits", `{}`, `{}`)
	w.becomes(id, "RUNNING")
	platformtest.WaitFor(t, w.pool, `select clock_timestamp() > max(attempted_at) + interval '1500 ms' from pgmill.river_job`)
	close(free)
	w.becomes(id, "SUCCEEDED")
}

// A Handle for which there is no connection does not fail: it comes again, and says why.
func TestNoConnectionIsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	away, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	spec := platform.NewRegistry()
	if err := spec.Add(platform.Step[none, none]{Topic: "job.t.away", MaxAttempts: 1, Handle: func(context.Context, pgx.Tx, none) (none, error) { return none{}, nil }}); err != nil {
		t.Fatal(err)
	}
	e := &job.Engine{Steps: platform.Of[platform.StepSpec](spec), Pool: away, Control: w.pool, Held: t.Context, Instance: w.rescuer(), LeaseTTL: time.Minute, Log: slog.New(slog.DiscardHandler)}
	e.Init()
	id := w.submit("job.t.away", `{}`, `{}`)
	if n, err := e.Fetch(t.Context(), 1); n != 1 || err != nil {
		t.Fatalf("fetched %d, %v", n, err)
	}
	e.Work(t.Context(), ask[int64](w, `select id from pgmill.river_job`))
	go e.Stop(t.Context())
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ask[string](w, `select concat_ws(' ', j.state, w.attempt, w.reason, w.due_at > now()) from mill.jobs j join pgmill.job_waiting w on w.job = j.id where j.id = $1`, id); got != "PENDING 1 database_unreachable t" {
		t.Errorf("it is %s; want it to wait for its first attempt", got)
	}
}
