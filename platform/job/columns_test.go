package job_test

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// F76: columns that a next version adds to the tables of jobs, and takes away again, cost
// no attempt and fail no statement, while hosts and an outside worker do jobs of all
// sorts: within limits, retried, cancelled, cloned, in lanes of many scopes.
func TestF76ColumnsComeAndGoUnderJobs(t *testing.T) {
	t.Parallel()
	server := fault.NewServer(t, map[string]string{"log_line_prefix": "%e "})
	if _, err := pg.Migrate(t.Context(), server.DSN, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	w := world{t, server.DSN, platformtest.Pool(t, server.DSN)}
	w.exec(`create table made (job text)`)
	said := &pgtest.Journal{}
	for range 2 {
		w.hostWith(&host.Worker{LeaseTTL: 30 * time.Second, Log: host.NewLogger(said, "text", slog.LevelInfo, server.DSN)},
			platform.Step[none, none]{Topic: "job.f76.inside", Concurrency: 50, PerKey: 2,
				Handle: func(ctx context.Context, tx pgx.Tx, _ none) (none, error) {
					_, err := tx.Exec(ctx, `insert into made (job) values ('inside')`)
					return none{}, err
				}},
			platform.Step[none, none]{Topic: "job.f76.again", Backoff: time.Millisecond, Rate: 10_000, PerScope: 20,
				Run: func(_ context.Context, a *platform.Attempt, _ none) (none, error) {
					if a.Number == 1 {
						return none{}, errors.New("refused")
					}
					return none{}, nil
				}},
			platform.Step[none, none]{Topic: "job.f76.dies", MaxAttempts: 1,
				Run: func(context.Context, *platform.Attempt, none) (none, error) { return none{}, errors.New("refused") }})
	}
	var group sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer group.Wait()
	defer stop()
	const few = `(select count(*) < 30 from pgmill.job_waiting)` // as many as the machine can do
	for _, statement := range []string{
		`select mill.submit_job('job.f76.' || (array['inside', 'again', 'outside'])[1 + i % 3], '{}', jsonb_build_object('scope', 'org:' || i % 5, 'key', 'k' || i % 3)) from generate_series(1, 6) i where ` + few,
		`select mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', 'job.f76.' || x, 'delay_ms', 5, 'unique_key', 'u')) from unnest('{inside,again,outside}'::text[]) x)) where ` + few,
		`select mill.cancel(mill.submit_job('job.f76.none')) where ` + few,
		`select mill.complete_job(c.job_id, c.token, '{}') from mill.claim_jobs('outside', '{job.f76.outside}', 10, 60) c`,
		`select mill.release_job(c.job_id, c.token) from mill.claim_jobs('outside', '{job.f76.outside}', 1, 60) c`,
		`select mill.retry_dead_letter(d.job) from pgmill.dead_letter d where d.retried_as is null and ` + few + ` limit 1`,
		`select mill.submit_job('job.f76.dies') where ` + few,
		`select * from mill.jobs order by created_at desc limit 10`,
		`select pgmill.remove_lanes('0')`,
	} {
		group.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				_, _ = w.pool.Exec(ctx, statement) // what is refused is in the server's log
			}
		})
	}
	const more = `select count(*) filter (where topic = 'job.f76.inside') > 3 and count(*) filter (where topic = 'job.f76.again') > 3 and count(*) filter (where topic = 'job.f76.outside') > 3
		from pgmill.job where state = 'SUCCEEDED' and created_at > $1`
	// change alters tables as a migration does: nobody queues behind it for long (F77).
	change := func(tables, ddl string) {
		t.Helper()
		for table := range strings.FieldsSeq(tables) {
			w.exec(`do $$ begin
				for i in 1..50 loop
				  begin
				    perform set_config('lock_timeout', '400', true);
				    alter table pgmill.` + table + ` ` + ddl + `;
				    return;
				  exception when lock_not_available then perform pg_sleep(0.02);
				  end;
				end loop;
				raise 'never free';
			end $$`)
		}
	}
	all := []string{"job", "job_waiting", "river_job", "lane", "job_attempt dead_letter job_lease job_cancel job_unique topic topic_rate claim_floor instance scope_limit pool"}
	for _, tables := range all {
		change(tables, "add newer text")
		platformtest.WaitWithin(t, w.pool, time.Minute, more, ask[time.Time](w, `select clock_timestamp()`))
	}
	// Of locks and of the end of the test is not what this is about.
	refused := func() []string {
		return slices.DeleteFunc(regexp.MustCompile(`(?m)^.* ERROR: .*\n.*`).FindAllString(server.Log(), -1), func(line string) bool {
			return strings.HasPrefix(line, "55P03") || strings.HasPrefix(line, "57014")
		})
	}
	for _, line := range refused() {
		t.Errorf("the server refused\n%s", line)
	}
	// A plan that has seen the column may fail until the release without it has put its
	// code in place, a moment later: an admission, which is asked for again.
	for _, tables := range all {
		change(tables, "drop newer")
		w.exec(`delete from pgmill.build`)
		if _, err := pg.Migrate(t.Context(), server.DSN, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		platformtest.WaitWithin(t, w.pool, time.Minute, more, ask[time.Time](w, `select clock_timestamp()`))
	}
	stop()
	group.Wait()
	if got := ask[string](w, `select coalesce(string_agg(distinct concat_ws(' ', j.topic, a.attempt, a.reason), '; '), '') from pgmill.job_attempt a join pgmill.job j on j.id = a.job
		where (j.topic, a.reason) not in (('job.f76.again', 'handler_error'), ('job.f76.outside', 'released'))`); got != "" {
		t.Errorf("attempts lost: %s", got)
	}
	for _, line := range refused() {
		if !strings.Contains(line, "of type record has been dropped") {
			t.Errorf("the server refused\n%s", line)
		}
	}
	if said.String() == "" || strings.Contains(said.String(), "0A000") {
		t.Errorf("the hosts say\n%s", said)
	}
}
