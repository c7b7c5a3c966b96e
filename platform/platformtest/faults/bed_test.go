package faults_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// ttl is the lease of the hosts here.
const ttl = 2 * time.Second

// bed is a database with the tables that act writes, and the hosts on it.
type bed struct {
	*testing.T
	dsn string
	db  *pgxpool.Pool
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, dsn: platformtest.DSN(t)}
	b.db = platformtest.Pool(t, pgtest.Direct(t, b.dsn))
	b.exec(`create table effect (n bigint generated always as identity, sub text, event bigint, pos bigint, key text, at timestamptz default clock_timestamp());
		create index on effect (sub, event);
		create table seen (n bigint generated always as identity, sub text, event bigint, pid int, at timestamptz default clock_timestamp());
		create table gate (name text);
		create table moved (sub text, shard int, n bigint, pos bigint);
		create function follow() returns trigger language plpgsql as $$ begin insert into public.moved values (new.subscription, new.shard, new.n, new.pos); return null; end $$;
		create trigger follow after insert on pgmill.cursor for each row execute function follow()`)
	return b
}

func (b *bed) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.db.Exec(b.Context(), sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

func (b *bed) wait(query string, args ...any) {
	b.Helper()
	platformtest.WaitWithin(b.T, b.db, time.Minute, query, args...)
}

func ask[V any](b *bed, query string, args ...any) V {
	b.Helper()
	var v V
	if err := b.db.QueryRow(b.Context(), query, args...).Scan(&v); err != nil {
		b.Fatalf("%s %v: %v", query, args, err)
	}
	return v
}

func (b *bed) list(query string, args ...any) string {
	b.Helper()
	rows, err := b.db.Query(b.Context(), query, args...)
	if err != nil {
		b.Fatalf("%s %v: %v", query, args, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.Fatalf("%s %v: %v", query, args, err)
	}
	return strings.Join(all, "\n")
}

// emit emits one event and returns its id.
func (b *bed) emit(typ, target, key string, o order) int64 {
	b.Helper()
	return platformtest.Emit(b.T, b.db, platform.NewEvent{Type: typ, Target: target, Key: key, Data: o})[0]
}

// traffic emits n events of a type, of 20 keys, a few a transaction, one transaction
// in ten rolled back; it ends with the test or when it is done.
func (b *bed) traffic(typ string, n int) (done func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var group sync.WaitGroup
	group.Go(func() {
		refused := errors.New("rolled back")
		for i := 0; i < n && ctx.Err() == nil; {
			some := min(1+i%7, n-i)
			err := pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
				events := make([]platform.NewEvent, some)
				for j := range events {
					events[j] = platform.NewEvent{Type: typ, Target: fmt.Sprint("t", i+j), Key: fmt.Sprint("k", (i+j)%20)}
				}
				if _, err := platform.Emit(ctx, tx, events...); err != nil {
					return err
				}
				if i%10 == 3 {
					return refused
				}
				return nil
			})
			if err != nil && !errors.Is(err, refused) && ctx.Err() == nil {
				b.Errorf("emit: %v", err)
				return
			}
			i += some
		}
	})
	b.Cleanup(func() { cancel(); group.Wait() })
	return group.Wait
}

// finished waits until all subscriptions but those named are at the head.
func (b *bed) finished(but ...string) {
	b.Helper()
	b.wait("select bool_and(position >= (select count(*) from pgmill.event)) from mill.subscriptions where name <> all ($1)", slices.Concat(but, []string{""}))
}

// exactlyOnce checks the effects of a subscription against what was committed: each
// event of its type once, no other, keys in order, the cursor never back.
func (b *bed) exactlyOnce(name, typ string) {
	b.Helper()
	if got := b.list(`
		select format('event %s has %s effects', coalesce(v.id, f.event), count(f.event))
		from (select id from pgmill.event where type like $2) v
		full join (select event from effect where sub = $1) f on f.event = v.id
		group by v.id, f.event
		having count(v.id) <> 1 or count(f.event) <> 1
		limit 20`, name, typ); got != "" {
		b.Errorf("%s:\n%s", name, got)
	}
	if got := b.list(`
		select format('key %s: position %s after %s', key, pos, before)
		from (select key, pos, lag(pos) over (partition by key order by n) as before from effect where sub = $1) x
		where before > pos
		limit 20`, name); got != "" {
		b.Errorf("%s:\n%s", name, got)
	}
	if got := b.list(`
		select format('shard %s went from %s back to %s', shard, before, pos)
		from (select shard, pos, lag(pos) over (partition by shard order by n) as before from moved where sub = $1) x
		where before > pos
		limit 20`, name); got != "" {
		b.Errorf("%s:\n%s", name, got)
	}
}

// proc is one host process.
type proc struct {
	t    *testing.T
	cmd  *exec.Cmd
	ID   string // its instance
	out  *journal
	done chan struct{}
}

// hostOptions are how a host process is started.
type hostOptions struct {
	Subs      []sub
	Schedules []timed
	Steps     []step
	DSN       string   // the way to the database; "": as the bed's
	Listen    string   // the way of LISTEN; "": the same
	Noted     []string // topics of steps that note their input's name
	Rate      int      // of each of them, a second
	Args      []string
	Failpoint string // as PGMILL_FAILPOINT: name=kill, name=stop:3
	Clock     string // as clockEnv
	Unready   bool   // do not wait until it works
}

// start starts a host and waits until it works.
func (b *bed) start(o hostOptions) *proc {
	b.Helper()
	text, err := json.Marshal(plan{Subs: o.Subs, Schedules: o.Schedules, Steps: o.Steps, Noted: o.Noted, Rate: o.Rate, Args: append([]string{fmt.Sprintf("--lease-ttl=%v", ttl)}, o.Args...)})
	if err != nil {
		b.Fatal(err)
	}
	binary, err := os.Executable()
	if o.Failpoint != "" {
		binary, err = withFailpoints()
	}
	if o.Clock != "" {
		binary, err = withClock()
	}
	if err != nil {
		b.Fatal(err)
	}
	p := &proc{t: b.T, out: &journal{ready: make(chan struct{})}, done: make(chan struct{})}
	p.cmd = exec.Command(binary)
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "PGMILL_") })
	dsn := cmp.Or(o.DSN, b.dsn)
	p.cmd.Env = append(env, hostEnv+"="+string(text), "DATABASE_URL="+dsn, "PGMILL_LISTEN_URL="+cmp.Or(o.Listen, pgtest.Listen(b.T, dsn)), "PGMILL_FAILPOINT="+o.Failpoint, clockEnv+"="+o.Clock)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	b.Cleanup(func() {
		p.kill()
		if b.Failed() {
			b.Logf("host %d %s said\n%s", p.cmd.Process.Pid, p.ID, p.out.tail(40))
		}
	})
	if o.Unready {
		return p
	}
	select {
	case <-p.out.ready:
	case <-p.done:
		b.Fatalf("the host ended before it worked:\n%s", p.out.tail(20))
	case <-time.After(30 * time.Second):
		b.Fatalf("the host does not work:\n%s", p.out.tail(20))
	}
	p.ID = p.out.instance()
	return p
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v: %v", s, err)
	}
}

// kill ends the process with SIGKILL, stopped or not, and waits for its end.
func (p *proc) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *proc) pause()  { p.signal(syscall.SIGSTOP) }
func (p *proc) resume() { p.signal(syscall.SIGCONT) }

// ended waits for the end of the process and answers its exit code; -1: a signal.
func (p *proc) ended(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("host %d did not end within %v:\n%s", p.cmd.Process.Pid, within, p.out.tail(30))
		return 0
	}
}

// alive reports whether the process has not ended.
func (p *proc) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// journal keeps what a host says.
type journal struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
	works bool
	id    string
	at    time.Time
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Write(b)
	for line := range bytes.Lines(b) {
		var said struct {
			Time          time.Time
			Msg, Instance string
		}
		if json.Unmarshal(line, &said) == nil && said.Msg == "host works" && !j.works {
			j.works, j.id, j.at = true, said.Instance, said.Time
			close(j.ready)
		}
	}
	return len(b), nil
}

func (j *journal) instance() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.id
}

// clock is what the host's clock said when it began to work.
func (j *journal) clock() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.at
}

// said counts the lines that hold a text.
func (j *journal) said(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// lines are those that hold a text.
func (j *journal) lines(text string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(strings.Split(j.text.String(), "\n"), func(line string) bool { return !strings.Contains(line, text) })
}

func (j *journal) tail(n int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(j.text.String()), "\n")
	for i, line := range lines {
		lines[i] = line[:min(len(line), 300)]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// withFailpoints builds this test binary once more, with the fail points in it.
var withFailpoints = sync.OnceValues(func() (string, error) {
	dir, err := builds()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "host")
	out, err := exec.Command("go", "test", "-c", "-tags", "failpoints", "-o", binary, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build with fail points: %w\n%s", err, out)
	}
	return binary, nil
})

// builds is the folder of what was built here; TestMain removes it.
var builds = sync.OnceValues(func() (string, error) {
	var err error
	buildDir, err = os.MkdirTemp("", "pgmill-faults-")
	return buildDir, err
})

var buildDir string

// fleet keeps a number of hosts alive, as a supervisor does.
type fleet struct {
	b       *bed
	o       hostOptions
	stop    context.CancelFunc
	group   sync.WaitGroup
	mu      sync.Mutex
	running map[*proc]struct{}
	started []*proc // all, also those that have ended
	deaths  int
}

// keep starts n hosts and starts another whenever one has ended.
func (b *bed) keep(n int, o hostOptions) *fleet {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	f := &fleet{b: b, o: o, stop: cancel, running: map[*proc]struct{}{}}
	o.Unready = true
	for range n {
		first := make(chan struct{})
		f.group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				p := b.start(o)
				f.mu.Lock()
				f.running[p] = struct{}{}
				f.started = append(f.started, p)
				f.mu.Unlock()
				if i == 0 {
					close(first)
				}
				select {
				case <-p.done:
					f.mu.Lock()
					f.deaths++
					delete(f.running, p)
					f.mu.Unlock()
					if code := p.cmd.ProcessState.ExitCode(); code == 2 || code == 99 {
						b.Errorf("a host cannot start:\n%s", p.out.tail(10))
						return
					}
				case <-ctx.Done():
				}
			}
		})
		<-first
	}
	b.Cleanup(f.end)
	return f
}

// end stops restarting; the hosts go on until the test ends.
func (f *fleet) end() {
	f.stop()
	f.group.Wait()
}

// some is one of the running hosts that work, chosen by i.
func (f *fleet) some(i int) *proc {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(f.running), func(a, b *proc) int { return a.cmd.Process.Pid - b.cmd.Process.Pid })
	if len(all) == 0 {
		return nil
	}
	return all[i%len(all)]
}

func (f *fleet) died() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deaths
}
