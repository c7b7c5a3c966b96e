package lease_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/internal/db"
	"github.com/pgmill/pgmill/platform/internal/lease"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// within runs f in a transaction that is rolled back; now() stands still in it.
func within(t *testing.T, pool *pgxpool.Pool, f func(tx pgx.Tx)) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	f(tx)
}

func exec(t *testing.T, on interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) {
	t.Helper()
	if _, err := on.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](t *testing.T, on interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sql string, args ...any) T {
	t.Helper()
	var got T
	if err := on.QueryRow(t.Context(), sql, args...).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// T1, T2, T4, T8, X8: live is a verdict of the moment by the database's clock, which
// is moved here by moving the row's times.
func TestLiveIsAVerdictAtReadingTime(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	for _, tt := range []struct {
		name string
		age  string // of last_seen
		left bool   // deregistered
		live bool
	}{
		{name: "just seen", age: "0", live: true},
		{name: "a microsecond short of the ttl", age: "9.999999 seconds", live: true},
		{name: "exactly the ttl", age: "10 seconds"},
		{name: "long gone", age: "1 year"},
		{name: "the clock went back an hour: age zero", age: "-1 hour", live: true},
		{name: "deregistered beats a fresh timestamp", age: "0", left: true},
		{name: "deregistered beats one from the future", age: "-1 hour", left: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			within(t, pool, func(tx pgx.Tx) {
				exec(t, tx, `insert into pgmill.instance (kind, id, ttl, last_seen, deregistered_at)
					values ('worker', 'w', '10 s', now() - $1::text::interval, case when $2 then now() end)`, tt.age, tt.left)
				if got := one[bool](t, tx, `select live from mill.instances where id = 'w'`); got != tt.live {
					t.Errorf("live = %v, want %v", got, tt.live)
				}
				// T1: nothing marks or deletes the row; it is only read.
				if n := one[int](t, tx, `select count(*) from pgmill.instance where id = 'w'`); n != 1 {
					t.Errorf("%d rows after the verdict, want 1", n)
				}
			})
		})
	}
}

// T3, T7: no column says that an instance is dead, and none that it was never seen.
func TestSchemaHasNoWordForDead(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	rows, err := pool.Query(t.Context(), `select attname from pg_attribute where attrelid = 'pgmill.instance'::regclass and attnum > 0`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) < 5 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if regexp.MustCompile(`stat(e|us)|dead|alive|live|expire`).MatchString(name) {
			t.Errorf("column %s: liveness is a verdict, not a column", name)
		}
	}
	_, err = pool.Exec(t.Context(), `insert into pgmill.instance (kind, id, ttl, last_seen) values ('worker', 'w', '1 s', null)`)
	if err == nil {
		t.Error("an instance without last_seen is accepted")
	}
}

// T4: who is not there, or has left, can be deregistered: nothing happens.
func TestDeregisterOfNobodyIsNoError(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	q := db.New(pool)
	if _, err := q.LeaseRegister(t.Context(), db.LeaseRegisterParams{Kind: lease.Kind, ID: "here", TtlSeconds: 10}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		id   string
		want int64
	}{
		{"never registered", "nobody", 0},
		{"registered", "here", 1},
		{"left already", "here", 0},
	} {
		got, err := q.LeaseDeregister(t.Context(), db.LeaseDeregisterParams{Kind: lease.Kind, ID: tt.id})
		if err != nil || got != tt.want {
			t.Errorf("%s: LeaseDeregister(%s) = %d, %v; want %d", tt.name, tt.id, got, err, tt.want)
		}
	}
}

// T5, T6: a renewal finds a registered worker of that id or nothing; it raises
// nobody, and changes nothing of what the row is.
func TestRenewalResurrectsNobody(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	exec(t, pool, `insert into pgmill.instance (kind, id, ttl, last_seen, since, deregistered_at, contract, version, profile) values
		('worker', 'fresh', '10 s', now() - interval '1 s', now() - interval '1 h', null, 'c', '1.2', 'p'),
		('worker', 'late', '10 s', now() - interval '1 h', now() - interval '2 h', null, 'c', '1.2', 'p'),
		('worker', 'left', '10 s', now() - interval '1 s', now() - interval '1 h', now(), 'c', '1.2', 'p'),
		('gateway', 'other', '10 s', now() - interval '1 h', now() - interval '2 h', null, 'c', '1.2', 'p')`)
	for _, tt := range []struct {
		name          string
		id            string
		alive, broken bool
		live          bool // afterwards, in the view
		since         bool // restarted
	}{
		{name: "in time", id: "fresh", alive: true, live: true},
		{name: "too late: the lease begins anew", id: "late", alive: true, broken: true, live: true, since: true},
		{name: "deregistered", id: "left"},
		{name: "never registered", id: "nobody"},
		{name: "registered as another kind", id: "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 3 {
				got, err := db.New(pool).LeaseRenew(t.Context(), db.LeaseRenewParams{Me: tt.id, Known: []int64{}, Why: []string{"listen_unavailable"}})
				if err != nil || got.Alive != tt.alive || got.Broken != tt.broken {
					t.Fatalf("renew = %+v, %v; want alive %v broken %v", got, err, tt.alive, tt.broken)
				}
				tt.broken = false // mended by the first
			}
			if live := one[bool](t, pool, `select exists (select from mill.instances where id = $1 and live)`, tt.id); live != tt.live {
				t.Errorf("live = %v, want %v", live, tt.live)
			}
			restarted := one[bool](t, pool, `select exists (select from pgmill.instance where id = $1 and since > now() - interval '1 min')`, tt.id)
			if restarted != tt.since {
				t.Errorf("since restarted: %v, want %v", restarted, tt.since)
			}
			same := one[int](t, pool, `select count(*) from pgmill.instance where id = $1 and version = '1.2' and profile = 'p' and contract = 'c'
				and kind = case id when 'other' then 'gateway' else 'worker' end`, tt.id)
			if rows := one[int](t, pool, `select count(*) from pgmill.instance where id = $1`, tt.id); same != rows || rows > 1 {
				t.Errorf("%d rows, %d of them as they were registered", rows, same)
			}
			why := one[bool](t, pool, `select exists (select from pgmill.instance where id = $1 and reasons = '{listen_unavailable}')`, tt.id)
			if why != tt.alive {
				t.Errorf("the reasons are there: %v, want %v", why, tt.alive)
			}
		})
	}
}

// A row that this instance fetched and does not know for five seconds (the fetch
// committed, its answer was lost) is handed back; what it knows and what is others'
// stays.
func TestUnknownClaimsAreHandedBack(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	exec(t, pool, `insert into pgmill.instance (kind, id, ttl) values ('worker', 'me', '10 s')`)
	for _, tt := range []struct {
		name string
		by   []string
		age  float64
		know bool
		kept bool
	}{
		{name: "unknown for six seconds", by: []string{"me"}, age: 6},
		{name: "unknown, fetched again by us", by: []string{"you", "me"}, age: 6},
		{name: "unknown, but just fetched", by: []string{"me"}, age: 4, kept: true},
		{name: "known", by: []string{"me"}, age: 6, know: true, kept: true},
		{name: "another's", by: []string{"you"}, age: 6, kept: true},
		{name: "another's, once ours", by: []string{"me", "you"}, age: 6, kept: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			within(t, pool, func(tx pgx.Tx) {
				id := one[int64](t, tx, `insert into pgmill.river_job (args, kind, queue, max_attempts, state, attempt, attempted_at, attempted_by)
					values ('{}', 'k', 'subscription', 1, 'running', 1, now() - make_interval(secs => $1), $2) returning id`, tt.age, tt.by)
				known := []int64{id + 1000}
				if tt.know {
					known = append(known, id)
				}
				got, err := db.New(tx).LeaseRenew(t.Context(), db.LeaseRenewParams{Me: "me", Known: known, Why: []string{}})
				kept := one[bool](t, tx, `select exists (select from pgmill.river_job where id = $1)`, id)
				if err != nil || kept != tt.kept || (got.Returned == 1) == tt.kept {
					t.Errorf("kept %v, returned %d, %v; want kept %v", kept, got.Returned, err, tt.kept)
				}
			})
		})
	}
}

// F38: each start has an id of its own, whatever the machine is called.
func TestEachStartHasAFreshID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := lease.NewID()
		if seen[id] {
			t.Fatalf("NewID gave %s twice", id)
		}
		seen[id] = true
		if !regexp.MustCompile(`^[A-Za-z0-9_.:-]{13,43}$`).MatchString(id) {
			t.Fatalf("NewID() = %q", id)
		}
	}
}

const patience = 20 * time.Second
