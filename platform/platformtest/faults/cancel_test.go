package faults_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// F41: 50 jobs that wait, 50 that are claimed and have not begun and 50 that run are
// cancelled at once, while nobody hears of it by LISTEN. All end cancelled, none begins any
// more, and those that run hear of it within a poll and a second.
func TestF41CancelsThatNobodyHears(t *testing.T) {
	t.Parallel()
	for name, deafen := range map[string]func(b *bed, listen *fault.Wire){
		"listeners are ended": func(b *bed, _ *fault.Wire) {
			b.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query ilike 'listen %'")
		},
		"LISTEN is half open": func(_ *bed, listen *fault.Wire) { listen.Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const each, poll = 50, time.Second
			b := newJobBed(t)
			listen := fault.NewWire(t, pgtest.Direct(t, b.dsn))
			b.start(hostOptions{Steps: []step{inside, outside}, Listen: listen.DSN,
				Args: []string{fmt.Sprint("--poll-interval=", poll), "--max-conns=1", fmt.Sprint("--max-jobs=", 1+2*each)}})
			b.order(0, inside, `{"gate": "go"}`, `{}`) // has the one connection that what is claimed needs
			for i := 1; i <= each; i++ {
				b.order(i, outside, `{"millis": 50000}`, `{}`)
			}
			b.wait("select count(*) = $1 from did", 1+each)
			for i := each + 1; i <= 2*each; i++ {
				b.order(i, inside, `{}`, `{}`)
			}
			b.wait("select count(*) = $1 from pgmill.river_job where state = 'running'", 1+2*each)
			for i := 2*each + 1; i <= 3*each; i++ {
				b.order(i, []step{inside, outside}[i%2], `{}`, `{}`)
			}
			b.exec("update wanted set cancel = true where n > 0")
			deafen(b, listen)
			b.exec("select mill.cancel(job) from wanted where cancel")
			at := ask[time.Time](b, "select clock_timestamp()")
			b.wait("select count(*) = $1 from heard", each)
			if took := ask[float64](b, "select extract(epoch from max(at) - $1)::float8 from heard", at); took > (poll + time.Second).Seconds() {
				t.Errorf("the last handler heard of it after %.2f s; want within a poll of %v and a second", took, poll)
			}
			b.exec("insert into gate values ('go')")
			b.endedJobs()
			b.allOnce()
			if got := b.list("select format('%s %s', state, count(*)) from pgmill.job group by state order by state"); got != "CANCELLED 150\nSUCCEEDED 1" {
				t.Errorf("they ended\n%s", got)
			}
			if got := ask[int](b, "select count(*) from did"); got != 1+each {
				t.Errorf("%d were begun; want the %d that ran", got, 1+each)
			}
		})
	}
}
