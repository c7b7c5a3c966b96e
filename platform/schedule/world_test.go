package schedule_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// world is one database with a table of what ticks did.
type world struct {
	*testing.T
	dsn   string
	db    *pgxpool.Pool
	hosts []*host.Worker
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, dsn: platformtest.DSN(t)}
	w.db = platformtest.Pool(t, w.dsn)
	w.exec(`create table effect (n bigint generated always as identity, name text, at timestamptz, missed int, manual boolean, host text default current_setting('application_name'))`)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) wait(query string, args ...any) {
	w.Helper()
	platformtest.WaitFor(w.T, w.db, query, args...)
}

// ask reads one value.
func ask[V any](w *world, query string, args ...any) V {
	w.Helper()
	var v V
	if err := w.db.QueryRow(w.Context(), query, args...).Scan(&v); err != nil {
		w.Fatalf("%s %v: %v", query, args, err)
	}
	return v
}

// want compares a query's rows, one text each, with what is wanted.
func (w *world) want(want, query string, args ...any) {
	w.Helper()
	rows, err := w.db.Query(w.Context(), query, args...)
	if err != nil {
		w.Fatalf("%s %v: %v", query, args, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.Fatalf("%s %v: %v", query, args, err)
	}
	if got := strings.Join(all, " "); got != want {
		w.Errorf("%s %v: %s; want %s", query, args, got, want)
	}
}

// schedule is one that records its effects and fires in ten years, unless a test
// changes it or moves its row.
func (w *world) schedule(name string, changes ...func(*platform.Schedule)) platform.Schedule {
	s := platform.Schedule{Name: name, Cron: "@every 87600h", Owners: platform.OwnedBy("test"), Handle: effect}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func effect(ctx context.Context, tx pgx.Tx, t platform.Tick) error {
	_, err := tx.Exec(ctx, "insert into effect (name, at, missed, manual) values ($1, $2, $3, $4)", t.Name, t.At, t.Missed, t.Manual)
	return err
}

// cron is a change of a schedule's line.
func cron(line, zone string) func(*platform.Schedule) {
	return func(s *platform.Schedule) { s.Cron, s.Zone = line, zone }
}

// host runs functions in this process with a poll of 50 ms.
func (w *world) host(functions ...platform.Function) *host.Worker {
	w.Helper()
	return w.hostWith(&host.Worker{Database: w.dsn, Poll: 50 * time.Millisecond}, functions...)
}

func (w *world) hostWith(worker *host.Worker, functions ...platform.Function) *host.Worker {
	w.Helper()
	worker.Registry = platform.NewRegistry()
	for _, f := range functions {
		if err := worker.Registry.Add(f); err != nil {
			w.Fatal(err)
		}
	}
	w.hosts = append(w.hosts, platformtest.HostWith(w.T, worker))
	return worker
}

// stopAllBut stops the hosts but one.
func (w *world) stopAllBut(one *host.Worker) {
	w.Helper()
	for _, h := range w.hosts {
		if h != one {
			platformtest.Stop(w.T, h)
		}
	}
}

// due moves a schedule's next fire time to a moment ago, whole seconds.
func (w *world) due(name, ago string) {
	w.Helper()
	w.exec("update pgmill.schedule set next_at = date_trunc('second', now()) - $2::text::interval, version = version + 1 where name = $1", name, ago)
}

// done waits until a schedule is not due and its ticks are done.
func (w *world) done(name string) {
	w.Helper()
	w.wait("select d.next_at > now() and f.dormant from pgmill.schedule d join pgmill.subscription f using (name) where name = $1", name)
}
