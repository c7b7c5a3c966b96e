package claim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// held puts a claim that an instance runs.
func held(t *testing.T, on querier, by string) int64 {
	t.Helper()
	id := put(t, on, "k")
	exec(t, on, `update pgmill.river_job set state = 'running', attempt = 1, attempted_at = now(), attempted_by = array[$2] where id = $1`, id, by)
	return id
}

// host puts an instance: seen so long ago, its lease unbroken for so long, ttl 10 s.
func host(t *testing.T, on querier, id, seen, unbroken string) {
	t.Helper()
	exec(t, on, `insert into pgmill.instance (kind, id, ttl, last_seen, since) values ('worker', $1, '10 s', now() - $2::text::interval, now() - $3::text::interval)`, id, seen, unbroken)
}

// empty leaves no claims behind that the invariants would find.
func empty(t *testing.T, pool *pgxpool.Pool) {
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "delete from pgmill.river_job") })
}

// F09: the fence and the release know one claim only: this id, running.
func TestFenceRefusesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	for _, tt := range []struct {
		name string
		make func(tx pgx.Tx) int64
		lost bool
	}{
		{"the claim we run", func(tx pgx.Tx) int64 { return held(t, tx, "me") }, false},
		{"one that nobody has", func(tx pgx.Tx) int64 { return put(t, tx, "k") }, true},
		{"one that was rescued and made anew", func(tx pgx.Tx) int64 {
			id := held(t, tx, "me")
			exec(t, tx, `delete from pgmill.river_job where id = $1`, id)
			held(t, tx, "next")
			return id
		}, true},
		{"one that River completed", func(tx pgx.Tx) int64 {
			id := held(t, tx, "me")
			exec(t, tx, `update pgmill.river_job set state = 'completed', finalized_at = now() where id = $1`, id)
			return id
		}, true},
	} {
		for _, wall := range []string{"fence", "release_claim"} {
			t.Run(tt.name+", "+wall, func(t *testing.T) {
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback(context.WithoutCancel(t.Context()))
				id := tt.make(tx)
				_, err = tx.Exec(t.Context(), "select pgmill."+wall+"($1)", id)
				if claim.IsLost(err) != tt.lost || (err != nil) != tt.lost {
					t.Errorf("%s(%d) = %v; want lost %v", wall, id, err, tt.lost)
				}
			})
		}
	}
}

// From the fence to the commit nobody can take the claim away: a rescuer leaves it
// for its next look, a deleter waits. After the commit both go on.
func TestFenceHoldsUntilTheCommit(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	empty(t, pool)
	host(t, pool, "me", "1 h", "2 h") // dead, but not yet rescued: it was stopped before its fence
	host(t, pool, "rescuer", "0", "1 h")
	id := held(t, pool, "me")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	exec(t, tx, "select pgmill.fence($1)", id)

	if n := one[int](t, pool, `select pgmill.rescue('rescuer')`); n != 0 {
		t.Errorf("rescued %d claims past a fence", n)
	}
	deleted := make(chan error, 1)
	go func() {
		_, err := pool.Exec(context.WithoutCancel(t.Context()), `delete from pgmill.river_job where id = $1 and state = 'running'`, id)
		deleted <- err
	}()
	platformtest.WaitFor(t, pool, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'delete%')`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := hears(t, "the delete", deleted); err != nil {
		t.Error(err)
	}
	if n := one[int](t, pool, `select count(*) from pgmill.river_job`); n != 0 {
		t.Errorf("%d claims left", n)
	}
}

// Who may rescue what: a host whose own lease has been unbroken for one ttl takes
// running claims of instances without a live lease (F40: no clock of a host is asked).
func TestRescueTakesFromTheDeadOnly(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, tx pgx.Tx)
		want  int
	}{
		{"a dead host's claim", func(t *testing.T, tx pgx.Tx) { host(t, tx, "me", "0", "1 min"); held(t, tx, "dead") }, 1},
		{"exactly one ttl unbroken", func(t *testing.T, tx pgx.Tx) { host(t, tx, "me", "0", "10 s"); held(t, tx, "dead") }, 1},
		{"not unbroken for one ttl yet: after a pause all seem dead", func(t *testing.T, tx pgx.Tx) {
			host(t, tx, "me", "0", "9.999999 s")
			held(t, tx, "dead")
		}, 0},
		{"its own lease has run out", func(t *testing.T, tx pgx.Tx) { host(t, tx, "me", "10 s", "1 min"); held(t, tx, "dead") }, 0},
		{"it was deregistered", func(t *testing.T, tx pgx.Tx) {
			host(t, tx, "me", "0", "1 min")
			exec(t, tx, `update pgmill.instance set deregistered_at = now() where id = 'me'`)
			held(t, tx, "dead")
		}, 0},
		{"it never registered", func(t *testing.T, tx pgx.Tx) { held(t, tx, "dead") }, 0},
		{"an instance that nobody has heard of", func(t *testing.T, tx pgx.Tx) { host(t, tx, "me", "0", "1 min"); held(t, tx, "unheard of") }, 1},
		{"a live host's claim stays", func(t *testing.T, tx pgx.Tx) {
			host(t, tx, "me", "0", "1 min")
			host(t, tx, "live", "9.999999 s", "1 min")
			held(t, tx, "live")
		}, 0},
		{"one whose lease ended this moment does not", func(t *testing.T, tx pgx.Tx) {
			host(t, tx, "me", "0", "1 min")
			host(t, tx, "late", "10 s", "1 min")
			held(t, tx, "late")
		}, 1},
		{"who left with claims", func(t *testing.T, tx pgx.Tx) {
			host(t, tx, "me", "0", "1 min")
			host(t, tx, "left", "0", "1 min")
			exec(t, tx, `update pgmill.instance set deregistered_at = now() where id = 'left'`)
			held(t, tx, "left")
		}, 1},
		{"its own claims stay", func(t *testing.T, tx pgx.Tx) { host(t, tx, "me", "0", "1 min"); held(t, tx, "me") }, 0},
		{"one that waits for a host stays", func(t *testing.T, tx pgx.Tx) { host(t, tx, "me", "0", "1 min"); put(t, tx, "k") }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.WithoutCancel(t.Context()))
			exec(t, tx, `insert into pgmill.instance (kind, id, ttl, last_seen, since) values ('worker', 'dead', '10 s', now() - interval '1 h', now() - interval '2 h')`)
			tt.setup(t, tx)
			before := one[int](t, tx, `select count(*) from pgmill.river_job`)
			got := one[int](t, tx, `select pgmill.rescue('me')`)
			if after := one[int](t, tx, `select count(*) from pgmill.river_job`); got != tt.want || after != before-got {
				t.Errorf("rescued %d, want %d; %d claims of %d left", got, tt.want, after, before)
			}
		})
	}
}

// A row that a stopped host still has locked is left for the next look, the others
// are taken; the dead host's sessions end, so that its locks do, too (F38).
func TestRescueSkipsLockedRowsAndEndsTheDeadsSessions(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	empty(t, pool)
	host(t, pool, "me", "0", "1 min")
	host(t, pool, "stopped", "1 min", "1 h")
	host(t, pool, "live", "0", "1 h")
	locked, free := held(t, pool, "stopped"), held(t, pool, "stopped")

	sessions := map[string]*pgx.Conn{}
	for _, name := range []string{"stopped", "live", "stopped-too"} { // the last only begins alike
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.RuntimeParams["application_name"] = "pgmill " + name
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		sessions[name] = conn
	}
	exec(t, sessions["stopped"], "begin")
	exec(t, sessions["stopped"], "select 1 from pgmill.river_job where id = $1 for update", locked)

	if n := one[int](t, pool, `select pgmill.rescue('me')`); n != 1 {
		t.Errorf("rescued %d, want the one that is not locked", n)
	}
	if one[bool](t, pool, `select exists (select from pgmill.river_job where id = $1)`, free) {
		t.Error("the free row is still there")
	}
	platformtest.WaitFor(t, pool, `select pgmill.rescue('me') = 1 or not exists (select from pgmill.river_job where id = $1)`, locked)
	if _, err := sessions["stopped"].Exec(t.Context(), "commit"); err == nil {
		t.Error("the dead host's session goes on")
	}
	for _, name := range []string{"live", "stopped-too"} {
		if _, err := sessions[name].Exec(t.Context(), "select 1"); err != nil {
			t.Errorf("the session of %s was ended: %v", name, err)
		}
	}
}

// A row is rescued once, however many rescue at once.
func TestRescueByManyTakesEachOnce(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	empty(t, pool)
	const hosts, claims = 6, 40
	for i := range hosts {
		host(t, pool, fmt.Sprint("h", i), "0", "1 min")
	}
	for range claims {
		held(t, pool, "dead")
	}
	took := make(chan int, hosts)
	for i := range hosts {
		go func() {
			sum := 0
			for range 5 {
				var n int
				if err := pool.QueryRow(context.WithoutCancel(t.Context()), `select pgmill.rescue($1)`, fmt.Sprint("h", i)).Scan(&n); err != nil {
					t.Error(err)
				}
				sum += n
			}
			took <- sum
		}()
	}
	sum := 0
	for range hosts {
		sum += hears(t, "a rescuer", took)
	}
	if sum != claims {
		t.Errorf("%d rescued, want %d", sum, claims)
	}
}

// What an error of the database means for a claim.
func TestErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	sql := func(code string) error {
		return fmt.Errorf("settle: %w", &pgconn.PgError{Code: code, SchemaName: "pgmill", TableName: "cursor"})
	}
	other := fmt.Errorf("handler: %w", &pgconn.PgError{Code: "23505", SchemaName: "stock", TableName: "cursor"})
	for _, tt := range []struct {
		name                                 string
		err                                  error
		lost, moved, conflict, server, isSQL bool
	}{
		{name: "nothing"},
		{name: "no error of the database", err: errors.New("x")},
		{name: "ErrLost", err: fmt.Errorf("release: %w", claim.ErrLost), lost: true},
		{name: "the fence's refusal", err: sql("MI101"), lost: true, isSQL: true},
		{name: "a taken cursor", err: sql("23505"), moved: true, isSQL: true},
		{name: "a taken key of somebody's table cursor", err: other, isSQL: true},
		{name: "deadlock", err: sql("40P01"), conflict: true, isSQL: true},
		{name: "serialization", err: sql("40001"), conflict: true, isSQL: true},
		{name: "lock not available", err: sql("55P03"), conflict: true, isSQL: true},
		{name: "terminated by an administrator", err: sql("57P01"), server: true, isSQL: true},
		{name: "crash of another session", err: sql("57P02"), server: true, isSQL: true},
		{name: "starting up", err: sql("57P03"), server: true, isSQL: true},
		{name: "statement cancelled: not the server's doing", err: sql("57014"), isSQL: true},
		{name: "too many connections", err: sql("53300"), server: true, isSQL: true},
		{name: "connection failure", err: sql("08006"), server: true, isSQL: true},
		{name: "idle in transaction too long", err: sql("25P03"), server: true, isSQL: true},
		{name: "positions taken back by a crash", err: sql("MI102"), server: true, isSQL: true},
		{name: "division by zero", err: sql("22012"), isSQL: true},
	} {
		got := []bool{claim.IsLost(tt.err), claim.IsMoved(tt.err), claim.IsConflict(tt.err), claim.IsServer(tt.err), claim.IsSQL(tt.err)}
		want := []bool{tt.lost, tt.moved, tt.conflict, tt.server, tt.isSQL}
		for i, what := range []string{"lost", "moved", "conflict", "server", "SQL"} {
			if got[i] != want[i] {
				t.Errorf("%s: %s = %v, want %v", tt.name, what, got[i], want[i])
			}
		}
	}
}
