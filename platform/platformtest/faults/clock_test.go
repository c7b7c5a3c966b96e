package faults_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// clockEnv shifts the wall clock of a host that withClock has built: "-3600" for an hour
// late, "-3600 5" for a clock that is set back after five seconds. The monotonic clock
// goes on as it does when somebody sets the machine's.
const clockEnv = "FAULTS_CLOCK"

// shiftedNow is what time.Now of such a host adds to the seconds.
const shiftedNow = `
var clockBy, clockAfter = clockShift()

func clockShift() (by, after int64) {
	s, _ := syscall.Getenv("` + clockEnv + `")
	for i := 0; i < len(s); i++ {
		if s[i] == ' ' {
			n, _ := atoi(s[i+1:])
			after, s = int64(n), s[:i]
		}
	}
	n, _ := atoi(s)
	return int64(n), after
}

func shifted(mono int64) int64 {
	if mono-startNano < clockAfter*int64(Second) {
		return 0
	}
	return clockBy
}
`

// withClock builds this test binary once more, with a time.Now that clockEnv shifts: Go
// asks the kernel for the time by itself, so nothing can be put between by a library.
var withClock = sync.OnceValues(func() (string, error) {
	dir, err := builds()
	if err != nil {
		return "", err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	const read = "sec, nsec, mono := runtimeNow()\n"
	before, after, found := strings.Cut(string(text), read)
	imports := "import (\n"
	if !found || strings.Contains(after, read) || !strings.Contains(before, imports) {
		return "", fmt.Errorf("%s: time.Now is not as it was in Go 1.26", source)
	}
	before = strings.Replace(before, imports, imports+"\t\"syscall\"\n", 1)
	changed := filepath.Join(dir, "time.go")
	if err := os.WriteFile(changed, []byte(before+read+"\tsec += shifted(mono)\n"+after+shiftedNow), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "clock")
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build with a clock that can be shifted: %w\n%s", err, out)
	}
	return binary, nil
})

// F40, X8: hosts an hour fast, an hour late, and set back by an hour while they work.
// Leases, due times, retries, rates, ticks and the rescue go by the database's clock.
func TestF40HostsWithShiftedClocks(t *testing.T) {
	b := newBed(t) // not beside others: its first build takes both cores for a minute
	began := ask[int64](b, "select pg_current_xact_id()::text::bigint")
	one := sub{Name: "test.one", Events: "held", Timeout: time.Minute}
	o := hostOptions{Subs: []sub{lots, one}, Schedules: []timed{{Name: "test.second", Cron: "@every 1s"}}, Noted: []string{"job.test.later", "job.test.flaky"}, Rate: 2}
	hosts := map[string]*proc{}
	for _, clock := range []string{"3600", "-3600", "-3600 3"} {
		o.Clock = clock
		p := b.start(o)
		hosts[p.ID] = p
		if got := p.out.clock().Sub(ask[time.Time](b, "select clock_timestamp()")).Round(time.Hour); clock != "-3600 3" && got.Seconds() != float64(map[string]int{"3600": 3600, "-3600": -3600}[clock]) {
			t.Fatalf("the clock %s is %v off", clock, got)
		}
	}
	b.wait("select bool_and(clock_timestamp() - since > ttl) from pgmill.instance") // each may rescue

	emitted := b.traffic("t.x", 500)
	held := b.emit("held", "t0", "", order{Gate: "go"})
	b.wait("select count(*) = 1 from seen where event = $1", held)
	at := ask[time.Time](b, "select clock_timestamp()")
	b.exec(`select mill.submit_job('job.test.later', '{"name": "delayed"}', '{"delay_ms": 3000}')`)
	b.exec(`select mill.submit_job('job.test.flaky', '{"name": "retried"}')`)
	b.exec(`select mill.submit_job('job.test.later', jsonb_build_object('name', 'n' || g)) from generate_series(1, 6) g`)
	b.wait("select count(*) = 8 from effect where sub like 'job.%'")
	for _, tt := range []struct {
		what, query string
		least       float64
	}{
		{"a job delayed by 3 s", "select at - $1 from effect where key = 'delayed'", 3},
		{"a job that rests 0.75 to 1 s", "select f.at - a.ended_at from effect f cross join pgmill.job_attempt a where f.key = 'retried'", 0.75},
		{"the last of six jobs at 2 a second", "select max(started_at) - min(started_at) from mill.jobs where id in (select id from pgmill.job where input ->> 'name' like 'n_')", 1.5},
	} {
		query, args := "select extract(epoch from ("+tt.query+"))::float8", []any{at}
		if !strings.Contains(query, "$1") {
			args = nil
		}
		if got := ask[float64](b, query, args...); got < tt.least || got > tt.least+20 {
			t.Errorf("%s came after %.2f s", tt.what, got)
		}
	}
	b.wait("select clock_timestamp() - $1 > 3 * make_interval(secs => $2)", at, ttl.Seconds())
	if got := ask[int](b, "select count(*) from seen where event = $1", held); got != 1 {
		t.Errorf("the claim of a live host was taken: %d deliveries", got)
	}

	holder := ask[string](b, "select instance from mill.subscriptions where name = 'test.one'")
	killed := ask[time.Time](b, "select clock_timestamp()")
	hosts[holder].kill()
	b.wait("select instance <> $1 from mill.subscriptions where name = 'test.one'", holder)
	if took := ask[float64](b, "select extract(epoch from created_at - $1)::float8 from pgmill.river_job where kind = 'subscription:test.one'", killed); took > 20 {
		t.Errorf("claimable again %.2f s after the kill", took)
	}
	b.exec("insert into gate values ('go')")
	emitted()
	b.wait("select count(*) >= 10 from effect where sub = 'test.second'")
	if got := b.list(`select format('%s came %s late', data ->> 'at', emitted_at - (data ->> 'at')::timestamptz) from pgmill.event
		where type = 'schedule.test.second' and emitted_at - (data ->> 'at')::timestamptz not between '0' and '20 s'`); got != "" {
		t.Errorf("ticks by another clock:\n%s", got)
	}
	b.everySecond("test.second")
	b.finished()
	b.exactlyOnce(lots.Name, "t.%")
	b.exactlyOnce(one.Name, "held")

	// What was written meanwhile and says a time an hour off. A schedule's next time may.
	if got := b.list(`
		with columns as materialized (
		    select t.relname as tbl, a.attname as col
		    from pg_class t
		    join pg_attribute a on a.attrelid = t.oid and a.atttypid = 'timestamptz'::regtype and a.attnum > 0
		    where t.relnamespace = 'pgmill'::regnamespace and t.relkind = 'r' and a.attname <> 'next_at'
		)
		select tbl || '.' || col
		from columns
		where query_to_xml(format('select 1 from pgmill.%I where xmin::text::bigint > %s and abs(abs(extract(epoch from %I - now())) - 3600) < 600 limit 1',
		                          tbl, $1::bigint, col), false, false, '')::text like '%<row%'`, began); got != "" {
		t.Errorf("a host's clock is in\n%s", got)
	}
}
