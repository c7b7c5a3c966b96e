package outbox_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// F01, N7: ids are drawn at insert, rows appear at commit. An event that commits
// late gets a late position; no cursor has passed it.
func TestLateCommitOfALowerIDIsDelivered(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	platformtest.Host(t, dsn, seen(t, pool, nil))

	one := session(t, dsn)
	e1 := emit(t, one, "e1")
	if e2 := emit(t, pool, "e2"); e2 <= e1 {
		t.Fatalf("e2 has id %d, e1 %d: this test tests nothing", e2, e1)
	}
	for range 5 { // five polls
		advance(t, pool)
		wantSeen(t, pool, "while e1 is open", "e2")
	}
	must(t, one, "commit")
	wantSeen(t, pool, "after e1 has committed", "e2", "e1")
}

// F01: three nested holders, released in reverse order.
func TestHoldersReleasedInReverseOrder(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	platformtest.Host(t, dsn, seen(t, pool, nil))
	holders := []*pgx.Conn{session(t, dsn), session(t, dsn), session(t, dsn)}
	for i, h := range holders {
		emit(t, h, fmt.Sprintf("held%d", i))
	}
	emit(t, pool, "free")
	want := []string{"free"}
	wantSeen(t, pool, "while three are open", want...)
	for i, h := range slices.Backward(holders) {
		must(t, h, "commit")
		want = append(want, fmt.Sprintf("held%d", i))
		wantSeen(t, pool, fmt.Sprintf("after holder %d", i), want...)
	}
}

// F02: an emitter's transaction may stay open for as long as it likes. There is no
// timer to move: a thousand others pass, and it is still waited for.
func TestAVerySlowCommitIsNeverGivenUp(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		beside int // events that commit while e1 is open, each with its own step
	}{
		{"while others flow, for more steps than the chain keeps", 1000},
		{"in a quiet time", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn := platformtest.DSN(t)
			pool := platformtest.Pool(t, dsn)
			slow := session(t, dsn)
			id := emit(t, slow, "e1")
			must(t, pool, `
				do $$ begin
				  for i in 1..`+fmt.Sprint(tt.beside)+` loop
				    perform mill.emit('order.placed', 'beside'); commit;
				    perform pgmill.advance(); commit;
				  end loop;
				end $$`)
			if n := ask[int](t, pool, `select count(*) from pgmill.log`); n != tt.beside {
				t.Errorf("%d events beside it have positions, want %d", n, tt.beside)
			}
			if steps := ask[int](t, pool, `select count(*) from pgmill.step`); steps > 200 {
				t.Errorf("%d steps are kept", steps)
			}
			must(t, slow, "commit")
			if n := advance(t, pool); n != 1 {
				t.Errorf("advance = %d after the slow commit, want 1", n)
			}
			if pos := ask[int](t, pool, `select pos from pgmill.log where event_id = $1`, id); pos != tt.beside+1 {
				t.Errorf("the slow event is at %d, want the end, %d", pos, tt.beside+1)
			}
		})
	}
}

// What a transaction took back has no position, and what it kept has one, in the
// order of the ids.
func TestSavepointsRollbacksAndJumps(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	tx := session(t, dsn)
	for _, s := range []string{
		`savepoint a`, `select mill.emit('order.placed', 'kept1')`, `savepoint b`, `select mill.emit('order.placed', 'lost1')`, `rollback to b`,
		`select mill.emit('order.placed', 'kept2')`, `release a`, `savepoint c`, `select mill.emit('order.placed', 'lost2')`, `rollback to c`,
		`select mill.emit('order.placed', 'kept3')`,
	} {
		must(t, tx, s)
	}
	if n := advance(t, pool); n != 0 {
		t.Errorf("advance = %d while the transaction is open", n)
	}
	gone := session(t, dsn)
	emit(t, gone, "lost3")
	must(t, tx, "commit")
	must(t, gone, "rollback")
	if n := advance(t, pool); n != 3 {
		t.Errorf("advance = %d, want 3", n)
	}
	must(t, pool, `select setval('pgmill.event_id', nextval('pgmill.event_id') + 1000000)`) // as a crash does, by 32
	emit(t, pool, "far")
	advance(t, pool)
	emit(t, pool, "farther")
	advance(t, pool)
	wantPositions(t, pool, "at the end", "kept1", "kept2", "kept3", "far", "farther")
	if got := ask[[]int64](t, pool, `select array_agg(pos order by pos) from pgmill.log`); !slices.Equal(got, []int64{1, 2, 3, 4, 5}) {
		t.Errorf("positions %v are not dense", got)
	}
}

// Events inside one step are in the order of their ids, whichever transaction got
// its id first: who has locked the key's row emits later.
func TestOrderInsideAStepIsCausal(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	must(t, pool, `create table account (n int); insert into account values (0)`)
	early := session(t, dsn)
	must(t, early, `select pg_current_xact_id()`) // the lower xid
	late := session(t, dsn)
	must(t, late, `update account set n = n + 1`)
	emit(t, late, "first")
	must(t, late, "commit")
	must(t, early, `update account set n = n + 1`) // sees late's commit
	emit(t, early, "second")
	must(t, early, "commit")
	advance(t, pool)
	wantPositions(t, pool, "the one that saw the other's commit comes later", "first", "second")
}

// The lock must be older than the snapshot, which only read committed gives.
func TestAdvanceRefusesOtherIsolation(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	emit(t, pool, "e1")
	for _, level := range []string{"repeatable read", "serializable"} {
		tx := session(t, dsn, "isolation level", level)
		if _, err := tx.Exec(t.Context(), `select pgmill.advance()`); err == nil {
			t.Errorf("advance under %s went through", level)
		}
		must(t, tx, "rollback")
	}
	wantPositions(t, pool, "after the refusals")
	if n := advance(t, pool); n != 1 {
		t.Errorf("advance = %d afterwards, want 1", n)
	}
}

// Many hosts advance at once: one at a time gets in, the others answer -1, and no
// event has two positions.
func TestConcurrentAdvancers(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)

	holder := session(t, dsn)
	emit(t, pool, "e0")
	if n := advance(t, holder); n != 1 {
		t.Fatalf("advance = %d, want 1", n)
	}
	if n := advance(t, pool); n != -1 {
		t.Errorf("advance beside another = %d, want -1", n)
	}
	must(t, holder, "rollback") // the host died: nothing of its step remains
	if n := advance(t, pool); n != 1 {
		t.Errorf("advance after the other has died = %d, want 1", n)
	}

	const writers, each, advancers = 6, 100, 4
	stop := make(chan struct{})
	var wrote, advanced sync.WaitGroup
	for w := range writers {
		wrote.Go(func() {
			for i := range each {
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = platform.Emit(t.Context(), tx, platform.NewEvent{Type: "order.placed", Target: fmt.Sprintf("w%d-%d", w, i)})
				if err == nil && i%10 == 9 {
					err = tx.Rollback(t.Context())
				} else if err == nil {
					err = tx.Commit(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range advancers {
		conn := platformtest.Pool(t, dsn)
		advanced.Go(func() {
			for {
				if _, err := conn.Exec(t.Context(), `select pgmill.advance()`); err != nil {
					t.Errorf("advance: %v", err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	wrote.Wait()
	close(stop)
	advanced.Wait()
	advance(t, pool)
	type sums struct{ n, events, first, last int }
	var got sums
	if err := pool.QueryRow(t.Context(), `select count(*), count(distinct event_id), min(pos), max(pos) from pgmill.log`).
		Scan(&got.n, &got.events, &got.first, &got.last); err != nil {
		t.Fatal(err)
	}
	n := writers*each*9/10 + 1
	if want := (sums{n, n, 1, n}); got != want {
		t.Errorf("positions, events, first, last = %v; want %v", got, want)
	}
	if head := ask[int](t, pool, `select pgmill.head()`); head != n {
		t.Errorf("head = %d, want %d", head, n)
	}
}

// F04: transaction ids are the cluster's, positions are the database's.
func TestTwoDatabasesOfOneCluster(t *testing.T) {
	t.Parallel()
	var dsns [2]string
	var pools [2]db
	for i := range dsns {
		dsns[i] = platformtest.DSN(t)
		pools[i] = platformtest.Pool(t, dsns[i])
	}
	held := session(t, dsns[0])
	emit(t, held, "held")
	for i := range 20 {
		emit(t, pools[i%2], name(i))
		if n := advance(t, pools[i%2]); n != 1 {
			t.Errorf("advance of database %d after event %d = %d, want 1", i%2, i, n)
		}
		if n := advance(t, pools[1-i%2]); n != 0 {
			t.Errorf("advance of the other database after event %d = %d, want 0", i, n)
		}
	}
	must(t, held, "commit")
	if n := advance(t, pools[1]); n != 0 {
		t.Errorf("advance of the other database = %d, want 0", n)
	}
	if n := advance(t, pools[0]); n != 1 {
		t.Errorf("advance = %d after the held one, want 1", n)
	}
	for i := range pools {
		if got := ask[[]int64](t, pools[i], `select array_agg(pos order by pos) from pgmill.log`); len(got) != 11-i || got[0] != 1 || got[len(got)-1] != int64(11-i) {
			t.Errorf("database %d has positions %v", i, got)
		}
	}
}

// A transaction with very many events is positioned in pieces: one that took longer than
// a host's patience would be begun again for ever.
func TestAdvanceTakesOneHugeTransactionInPieces(t *testing.T) {
	if testing.Short() {
		t.Skip("emits a quarter of a million events; run it without -short")
	}
	t.Parallel()
	pool := platformtest.DB(t)
	emit(t, pool, "before")
	advance(t, pool)
	must(t, pool, `insert into pgmill.event (type, target) select 'huge', 'e' || i from generate_series(1, 250000) i`)
	emit(t, pool, "after")
	var pieces []int64
	for sum := int64(0); sum < 250_001; {
		n := advance(t, pool)
		if n <= 0 {
			t.Fatalf("positioned %d after %v", n, pieces)
		}
		sum += n
		pieces = append(pieces, n)
	}
	if len(pieces) != 3 || pieces[0] != 100_000 || pieces[1] != 100_000 {
		t.Errorf("in pieces of %v", pieces)
	}
	if n := ask[int64](t, pool, `select count(*) from pgmill.log where type = 'huge'`); n != 250_000 {
		t.Errorf("%d have positions", n)
	}
}
