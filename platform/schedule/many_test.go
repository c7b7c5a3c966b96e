package schedule_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// cpu is what this process has used, and what the server's sessions of ours have.
func (w *world) cpu() (host, server time.Duration) {
	w.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		w.Fatal(err)
	}
	pids := ask[[]int32](w, "select array_agg(pid) from pg_stat_activity where datname = current_database() and application_name like 'pgmill %'")
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			w.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		for _, ticks := range strings.Fields(rest)[11:13] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				w.Fatal(err)
			}
			server += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), server
}

// idle is what an idle host and its sessions use, in parts in a hundred of a core.
func (w *world) idle() (host, server float64) {
	w.Helper()
	w.exec("select pg_sleep(2)") // what the start left
	began := time.Now()
	host1, server1 := w.cpu()
	w.exec("select pg_sleep(6)")
	host2, server2 := w.cpu()
	took := float64(time.Since(began)) / 100
	return float64(host2-host1) / took, float64(server2-server1) / took
}

// Ten thousand schedules cost an idle host less than one part in a hundred of a core,
// and the server as little. Not parallel: it measures this process.
func TestTenThousandSchedulesCostAnIdleHostNothing(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("declares ten thousand schedules, reads /proc")
	}
	w := newWorld(t)
	asShipped := func() *host.Worker {
		return &host.Worker{Database: w.dsn, LeaseTTL: 10 * time.Second, Poll: time.Second}
	}
	w.hostWith(asShipped(), w.schedule("test.one"))
	host1, server1 := w.idle()
	w.stopAllBut(nil)

	const many = 10_000
	all := make([]platform.Function, many)
	for i := range all {
		all[i] = w.schedule(fmt.Sprintf("test.n%d", i), cron(fmt.Sprintf("%d 4 1 1 *", i%60), "Europe/Berlin"))
	}
	began := time.Now()
	w.hostWith(asShipped(), all...)
	t.Logf("ready after %v", time.Since(began))
	w.wait("select count(*) = $1 from pgmill.subscription where dormant", many+1)
	w.exec("vacuum analyze")
	began = time.Now()
	w.want("10001", "select count(*)::text from (select * from mill.schedules offset 0) s")
	t.Logf("all of mill.schedules in %v", time.Since(began))
	w.due("test.n77", "1 second")
	w.done("test.n77")
	w.want("test.n77", "select name from effect")

	host2, server2 := w.idle()
	t.Logf("an idle host used %.2f %% of a core, the server %.2f %%; with one schedule %.2f %% and %.2f %%", host2, server2, host1, server1)
	if host2-host1 >= 1 || server2-server1 >= 1 {
		t.Errorf("ten thousand schedules cost the host %.2f %% of a core, the server %.2f %%; want less than 1", host2-host1, server2-server1)
	}

	// All due in the same minute: each once, within the time the work takes.
	began = time.Now()
	w.exec("update pgmill.schedule set next_at = date_trunc('second', now()), version = version + 1 where name in (select name from pgmill.schedule order by name limit 2000)")
	platformtest.WaitWithin(t, w.db, time.Minute, "select not exists (select from pgmill.schedule where next_at <= now())")
	t.Logf("2000 due at once: emitted after %v", time.Since(began))
	platformtest.WaitWithin(t, w.db, 2*time.Minute, "select count(*) >= 2001 from effect")
	t.Logf("and handled after %v", time.Since(began))
	w.wait("select not exists (select from pgmill.subscription where not dormant)")
	w.want("t", "select (count(*) = count(distinct (name, at)))::text::char from effect")
}
