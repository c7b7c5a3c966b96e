package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/platformtest"
)

// width is how many positions a partition holds.
const width = 5_000_000

func partitions(t *testing.T, db db) int {
	t.Helper()
	return ask[int](t, db, `select count(*) from pg_inherits where inhparent = 'pgmill.log'::regclass`) - 1 // the default one
}

// jump makes the next position pos.
func jump(t *testing.T, db db, pos int64) {
	t.Helper()
	must(t, db, `update pgmill.step set last = $1 where k = (select max(k) from pgmill.step)`, pos-1)
}

func logHealth(t *testing.T, db db) string {
	t.Helper()
	return ask[string](t, db, `select status || ' ' || reasons::text from mill.health where component = 'log'`)
}

func TestPartitionsAreThreeAhead(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	if n := partitions(t, pool); n != 4 {
		t.Errorf("%d partitions after the migration, want the first and three ahead", n)
	}
	if n := ask[int](t, pool, `select pgmill.make_partitions()`); n != 0 {
		t.Errorf("make_partitions = %d at once again, want 0", n)
	}
	jump(t, pool, 2*width-1)
	for i := range 4 { // across the bound of two partitions
		emit(t, pool, name(i))
		advance(t, pool)
	}
	if n := ask[int](t, pool, `select pgmill.make_partitions()`); n != 2 {
		t.Errorf("make_partitions = %d two partitions later, want 2", n)
	}
	wantPositions(t, pool, "across a bound", "e0", "e1", "e2", "e3")
	if got := logHealth(t, pool); got != "ok {}" {
		t.Errorf("mill.health of the log = %s", got)
	}
}

// A partition that is missing aborts nobody: not the author, not the advance.
func TestPositionsInTheDefaultPartitionAreAnAlarmAndNoMore(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	jump(t, pool, 9*width+7)
	emit(t, pool, "e1")
	if n := advance(t, pool); n != 1 {
		t.Errorf("advance beyond the partitions = %d, want 1", n)
	}
	if got := logHealth(t, pool); got != "degraded {default_partition_used}" {
		t.Errorf("mill.health of the log = %s", got)
	}
	// The range that lies in the default partition stays there; the next are made.
	if n := ask[int](t, pool, `select pgmill.make_partitions()`); n != 3 {
		t.Errorf("make_partitions = %d, want the three ahead", n)
	}
	emit(t, pool, "e2")
	advance(t, pool)
	jump(t, pool, 10*width)
	emit(t, pool, "e3")
	advance(t, pool)
	wantPositions(t, pool, "in the default partition and beyond", "e1", "e2", "e3")
	if part := ask[string](t, pool, `select tableoid::regclass::text from pgmill.log order by pos desc limit 1`); part != "pgmill.log_10" {
		t.Errorf("the last position is in %s", part)
	}
	must(t, pool, `delete from pgmill.log where pos < $1`, 10*width) // or the invariant of dense positions is broken by our jump
	must(t, pool, `delete from pgmill.event where target in ('e1', 'e2')`)
}

// F77: making partitions gives up soon behind a reader, and tries again later.
func TestMakePartitionsStandsInNobodysWay(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	jump(t, pool, 2*width+1)
	reader := session(t, dsn)
	must(t, reader, `select count(*) from pgmill.log_default`) // as pg_dump has it
	began := time.Now()
	if n := ask[int](t, pool, `select pgmill.make_partitions()`); n != 0 {
		t.Errorf("make_partitions = %d behind a reader, want 0", n)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("make_partitions stood in the way for %v", took)
	}
	if n := partitions(t, pool); n != 4 {
		t.Errorf("%d partitions, want the 4 of before: something is half done", n)
	}
	must(t, reader, "commit")
	if n := ask[int](t, pool, `select pgmill.make_partitions()`); n != 2 {
		t.Errorf("make_partitions = %d after the reader, want 2", n)
	}
}

// Replay starts at a time: the first position at or after it.
func TestPosAt(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	if got := ask[int](t, pool, `select pgmill.pos_at($1)`, noon); got != 1 {
		t.Errorf("pos_at of an empty log = %d, want 1", got)
	}
	minutes := []int{0, 1, 1, 1, 5, 5, 9}
	for i, m := range minutes {
		emit(t, pool, name(i))
		advance(t, pool)
		must(t, pool, `update pgmill.log set at = $2 where pos = $1`, i+1, noon.Add(time.Duration(m)*time.Minute))
	}
	tests := []struct {
		name string
		at   time.Duration
		want int
	}{
		{"long before", -24 * time.Hour, 1},
		{"at the first", 0, 1},
		{"just after the first", time.Microsecond, 2},
		{"at the same time as three", time.Minute, 2},
		{"between", 3 * time.Minute, 5},
		{"at the last", 9 * time.Minute, 7},
		{"after the head", 9*time.Minute + time.Microsecond, 8},
	}
	for _, tt := range tests {
		if got := ask[int](t, pool, `select pgmill.pos_at($1)`, noon.Add(tt.at)); got != tt.want {
			t.Errorf("%s: pos_at(%v) = %d, want %d", tt.name, noon.Add(tt.at), got, tt.want)
		}
	}
	if n := ask[int](t, pool, fmt.Sprintf(`select count(*) from generate_series(1, %d) p where pgmill.pos_at((select at from pgmill.log where pos = p)) > p`, len(minutes))); n != 0 {
		t.Errorf("pos_at skips %d positions of their own time", n)
	}
}

// The auditor: what is committed and has no position after a while is shown.
func TestHealthShowsLatePositions(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	emit(t, pool, "e1")
	if got := logHealth(t, pool); got != "ok {}" {
		t.Errorf("mill.health of the log at once = %s", got)
	}
	must(t, pool, `update pgmill.event set emitted_at = now() - interval '11 seconds'`)
	if got := logHealth(t, pool); got != "degraded {positions_late}" {
		t.Errorf("mill.health of the log ten seconds later = %s", got)
	}
	advance(t, pool)
	if got := logHealth(t, pool); got != "ok {}" {
		t.Errorf("mill.health of the log after an advance = %s", got)
	}
}
