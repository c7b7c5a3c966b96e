package model

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform/platformtest"
)

// options say how large a run is.
type options struct {
	writers   int
	pace      time.Duration // longest ordinary sleep before a commit
	write     time.Duration // how long they write
	advancers int           // beside the hosts
	hosts     int           // processes; 0: the log only
	shoot     time.Duration // one host is shot at so often
	catchUp   time.Duration // how long the hosts may need at the end; 0 means a minute
}

// F05, N7, F14: sixteen writers with sleeps, rollbacks, savepoints and early
// transaction ids, an idle writer elsewhere and an event in a prepared transaction,
// against live, late-starting and from-zero cursors, while hosts are killed:
// delivered = committed, effects once, keys in order.
func TestDeliveredIsCommitted(t *testing.T) {
	t.Parallel()
	o := options{writers: 16, pace: 60 * time.Millisecond, write: 9 * time.Second, advancers: 2, hosts: 3, shoot: 900 * time.Millisecond}
	if os.Getenv("PGMILL_SOAK") != "" {
		o.write, o.pace, o.catchUp = 10*time.Minute, 100*time.Millisecond, 10*time.Minute // a shard that hosts died with rests for up to five
	}
	w := newWorld(t)
	for _, f := range run(t, w, o) {
		t.Error(f)
	}
	platformtest.Invariants(t, w.pool)
}

// The same for the log alone, with more at a time: what hosts stand on. In pieces as
// small as a few events, too, as a step over very many transactions is taken.
func TestLoggedIsCommitted(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		changes []change
	}{
		{"as it is", nil},
		{"in pieces of three events", []change{
			{"pgmill.advance()", "many constant bigint := 20000;", "many constant bigint := 4;"},
			{"pgmill.advance()", "piece constant bigint := 100000;", "piece constant bigint := 3;"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.alter(t, tt.changes...)
			for _, f := range run(t, w, logOnly()) {
				t.Error(f)
			}
			platformtest.Invariants(t, w.pool)
		})
	}
}

func logOnly() options {
	return options{writers: 16, pace: 8 * time.Millisecond, write: 3 * time.Second, advancers: 4}
}

// run lets a world live for a while and answers what was wrong with it.
func run(t testing.TB, w *world, o options) []fault {
	t.Helper()
	h := newHistory()
	faults := &found{}
	w.disturb(t)

	var hs *hosts
	if o.hosts > 0 {
		hs = startHosts(t, w, o.hosts, early)
	}
	writing, stopWriting := context.WithTimeout(t.Context(), o.write)
	defer stopWriting()
	living, stopLiving := context.WithCancel(t.Context())
	defer stopLiving()
	var writers, advancers, readers, shooter sync.WaitGroup
	for range o.writers {
		writers.Go(func() { w.write(writing, t, h, o.pace) })
	}
	for range o.advancers {
		advancers.Go(func() { w.advance(living, t, faults) })
	}
	live, late, zero := &reader{name: "live reader"}, &reader{name: "late reader"}, &reader{name: "reader from zero"}
	reading, stopReading := context.WithCancel(t.Context())
	defer stopReading()
	readers.Go(func() { live.follow(reading, t, w) })
	if hs != nil {
		shooter.Go(func() { hs.shoot(writing, o.shoot) })
	}
	<-time.After(o.write / 3)
	readers.Go(func() { late.follow(reading, t, w) })
	if hs != nil {
		hs.deploy(all)
	}
	writers.Wait()
	shooter.Wait()

	// Nothing that is committed waits for the idle writer and the prepared event.
	t.Logf("%d events are committed", h.size())
	if !w.within(t, 3*time.Second, `select pgmill.advance() is not null and (select count(*) >= $1 from mill.events where type = 'model.w' and pos is not null)`, h.size()) {
		faults.add(faultf("frozen", "%d of %d committed events have a position while an idle writer and a prepared transaction are open",
			ask[int](t, w, `select count(*) from mill.events where type = 'model.w' and pos is not null`), h.size()))
	}
	w.calm(t, h)
	logged := w.within(t, 3*time.Second, `select pgmill.advance() is not null and (select count(*) >= $1 from mill.events where type = 'model.w' and pos is not null)`, h.size())
	if logged && hs != nil {
		if !w.within(t, cmp.Or(o.catchUp, time.Minute), `select count(*) = 9 and bool_and(lag_events = 0 or not exists (
				select from pgmill.log l where l.pos > s.position and l.type = 'model.w')) from mill.subscriptions s`) {
			faults.add(faultf("stalled", "in the end the subscriptions are at %s", ask[string](t, w, `select json_agg(s)::text from mill.subscriptions s`)))
		}
	}
	if hs != nil {
		t.Logf("hosts were shot at: %v", hs.kills)
		hs.drain(t)
	}
	stopLiving()
	advancers.Wait()
	stopReading()
	readers.Wait()
	zero.follow(reading, t, w)

	for _, r := range []*reader{live, late, zero} {
		faults.add(r.bad...)
		faults.add(h.compare(r.name, r.got, nil)...)
	}
	if hs != nil {
		faults.add(w.effects(t, h)...)
	}
	if n := ask[int](t, w, `select count(*) from mill.audit where action = 'log.reposition'`); n > 0 {
		faults.add(faultf("repaired", "the log was repaired %d times, as if the cluster had changed", n))
	}
	return faults.all
}

// effects compares what the subscriptions have done with what was committed.
func (w *world) effects(t testing.TB, h *history) []fault {
	t.Helper()
	var faults []fault
	for name := range subscriptions {
		rows, err := w.pool.Query(t.Context(), `select event, key, n from effect where subscription = $1 order by seq`, name)
		if err != nil {
			t.Fatal(err)
		}
		var got []record
		var r record
		if _, err := pgx.ForEachRow(rows, []any{&r.id, &r.key, &r.n}, func() error {
			got = append(got, r)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		skip := map[int64]bool{}
		if name == "model.now" {
			rows, err := w.pool.Query(t.Context(), `
				select l.event_id from pgmill.log l join pgmill.subscription s on s.name = $1 join began b on b.subscription = s.name
				 where b.shard = (l.key_hash & 2147483647) % s.shards and l.pos <= b.pos`, name)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				skip[id] = true
			}
			if len(ids) == 0 || len(got) == 0 {
				t.Errorf("%s began after %d events and got %d: this tests nothing", name, len(ids), len(got))
			}
			for _, r := range got {
				if skip[r.id] {
					faults = append(faults, faultf("ghost", "%s: event %d is from before it began", name, r.id))
				}
			}
		}
		faults = append(faults, h.compare(name, got, func(id int64) bool { return skip[id] })...)
	}
	// What a handler emits commits with its effect.
	if n := ask[int](t, w, `
		select count(*) from (select event from effect where subscription = 'model.live') a
		  full join (select (data ->> 'of')::bigint as event from pgmill.event where type = 'model.echo') b using (event)
		 where a.event is null or b.event is null`); n > 0 {
		faults = append(faults, faultf("echo", "%d effects and emitted events of model.live have no counterpart", n))
	}
	if n := ask[int](t, w, `select count(*) from pgmill.event where type = 'model.echo'`); n != ask[int](t, w, `select count(*) from effect where subscription = 'model.live'`) {
		faults = append(faults, faultf("echo", "%d events were emitted by model.live", n))
	}
	return faults
}

// change replaces text in the source of a function of the world's database.
type change struct{ function, old, new string }

// alter applies changes; text that is not there fails the test, so that what is
// altered cannot rot.
func (w *world) alter(t testing.TB, changes ...change) {
	t.Helper()
	for _, c := range changes {
		source := ask[string](t, w, `select pg_get_functiondef($1::regprocedure)`, c.function)
		w.must(t, replaceOnce(t, source, c))
	}
}

func (c change) String() string { return fmt.Sprintf("%q in %s", c.old, c.function) }

func replaceOnce(t testing.TB, source string, c change) string {
	t.Helper()
	if strings.Count(source, c.old) != 1 {
		t.Fatalf("%v is there %d times, want once; the source is now\n%s", c, strings.Count(source, c.old), source)
	}
	return strings.Replace(source, c.old, c.new, 1)
}
