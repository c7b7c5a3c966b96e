package host

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

func TestBar(t *testing.T) {
	t.Parallel()
	paused, reshard := "paused", "reshard"
	half := strings.Repeat("#", barWidth/2) + strings.Repeat(".", barWidth/2)
	none, full := strings.Repeat(".", barWidth), strings.Repeat("#", barWidth)
	for _, tt := range []struct {
		name     string
		now      watched
		from, to int64
		since    time.Duration
		want     string
	}{
		{"at the start there is no rate", watched{Position: 10}, 10, 110, 0, "[" + none + "]   0 %  at 10 of 110"},
		{"half way there is a rate and a rest", watched{Position: 60}, 10, 110, 10 * time.Second, "[" + half + "]  50 %  at 60 of 110  5/s  10s left"},
		{"at the end there is neither", watched{Position: 110}, 10, 110, 20 * time.Second, "[" + full + "] 100 %  at 110 of 110"},
		{"beyond the end is the end", watched{Position: 150}, 10, 110, time.Second, "[" + full + "] 100 %  at 110 of 110"},
		{"no way at all is done", watched{Position: 7}, 7, 7, 0, "[" + full + "] 100 %  at 7 of 7"},
		{"moved back before the start", watched{Position: 3}, 10, 110, time.Second, "[" + none + "]   0 %  at 3 of 110"},
		{"what it waits for", watched{Position: 60, BlockedBy: &paused}, 10, 110, 10 * time.Second, "[" + half + "]  50 %  at 60 of 110  5/s  10s left  waits: paused"},
		{"at the end it waits for nothing", watched{Position: 110, BlockedBy: &paused}, 10, 110, time.Second, "[" + full + "] 100 %  at 110 of 110"},
		{"but for other shards", watched{Position: 110, BlockedBy: &reshard, ReshardAt: new(int64)}, 10, 110, time.Second, "[" + full + "] 100 %  at 110 of 110  waits: reshard"},
	} {
		if got := tt.now.bar(tt.from, tt.to, tt.since); got != tt.want {
			t.Errorf("%s: bar(%d, %d, %v) of %+v =\n%q, want\n%q", tt.name, tt.from, tt.to, tt.since, tt.now, got, tt.want)
		}
	}
}

func TestWhatIsFollowedIsOver(t *testing.T) {
	t.Parallel()
	at := func(pos int64) *int64 { return &pos }
	first := watched{Shards: 1, Position: 2, Head: 10}
	for _, tt := range []struct {
		name   string
		follow following
		now    watched
		over   bool
	}{
		{"behind the head of the first look", caughtUp, watched{Position: 9, Head: 20}, false},
		{"at it", caughtUp, watched{Position: 10, Head: 20}, true},
		{"at it, and its shards are about to change", caughtUp, watched{Position: 10, Head: 20, ReshardAt: at(10)}, false},
		{"the old shards are there", resharded, watched{Position: 10, Head: 10, ReshardAt: at(10)}, false},
		{"the new ones are, however far behind", resharded, watched{Position: 5, Head: 20}, true},
	} {
		if line, over := tt.follow(first, tt.now, time.Second); over != tt.over {
			t.Errorf("%s: over %v, want %v: %s", tt.name, over, tt.over, line)
		}
	}
}

// replay, reshard and watch show how far a running host is, and return when it is done.
func TestReplayAndReshardAreFollowed(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn := connected(t, dsn)
	pgtest.Exec(t, conn, "select mill.emit('test.event', 't' || g) from generate_series(1, 5) g")
	pgtest.Exec(t, conn, "select pgmill.advance()")
	s := platform.Of[platform.Subscription](withFunctions(t, "a.one"))[0]
	s.Module, s.From, s.Replayable = "", platform.FromZero, true
	reg := platform.NewRegistry()
	if err := reg.Add(s); err != nil {
		t.Fatal(err)
	}
	environ := []string{"DATABASE_URL=" + dsn}
	host := start(t, reg, environ, "worker")
	host.becomes(200, "")
	sh := shell{t: t, reg: reg, environ: environ, stdin: strings.NewReader("")}
	for _, tt := range []struct {
		args, stdout, last string
		shards             int
	}{
		{"watch a.one", "", "100 %  at 5 of 5\n", 1},
		{"replay a.one --from 2 --yes", "a.one: moved to 1\n", "100 %  at 5 of 5\n", 1},
		{"reshard a.one --shards 3", "a.one: 1 to 3 shards", "3 shards\n", 3},
		{"reshard a.one --shards 3", "a.one: 3 shards\n", "3 shards\n", 3},
		{"replay a.one --yes", "a.one: moved to 0\n", "100 %  at 5 of 5\n", 3},
	} {
		code, stdout, stderr := sh.run(append([]string{"subscription"}, strings.Fields(tt.args)...)...)
		if code != exitOK || !strings.HasPrefix(stdout, tt.stdout) || !strings.HasSuffix(stderr, tt.last) {
			t.Errorf("%s: exit code %d\nstdout: %s\nstderr: %s\nwant %q, %q", tt.args, code, stdout, stderr, tt.stdout, tt.last)
		}
		if got := pgtest.Ask[int](t, conn, "select count(*)::int from mill.subscriptions where position = 5"); got != tt.shards {
			t.Errorf("after %s there are %d shards at the end, want %d", tt.args, got, tt.shards)
		}
	}
	host.signal()
	host.exits(exitOK, 15*time.Second)
}

// Who ends the watching ends nothing else, and is told so.
func TestWatchingMayBeEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, before, args, shows string }{
		{"a subscription that waits for a host", "", "watch a.one", `(\]   0 %  at 0 of 2  waits: no_live_host\n)`},
		{"one that has caught up and is resharded", "select mill.move_subscription('a.one', 'now'), mill.reshard_subscription('a.one', 2)", "watch a.one",
			`(\] 100 %  at 2 of 2  waits: no_live_host\n)`},
		{"a reshard", "", "reshard a.one --shards 2", `(waits: no_live_host\n)`},
		{"a replay", "select mill.move_subscription('a.one', 'now')", "replay a.one --yes", `(at 0 of 2  waits: no_live_host\n)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn := migratedDatabase(t)
			conn := connected(t, dsn)
			for _, q := range []string{declared, "select pgmill.advance()", tt.before} {
				pgtest.Exec(t, conn, q)
			}
			var out, errs output
			signals, code := make(chan os.Signal, 1), make(chan int, 1)
			o := &options{reg: platform.NewRegistry(), stdin: strings.NewReader(""), stdout: &out, stderr: &errs, environ: []string{"DATABASE_URL=" + dsn}, self: "host", signals: signals}
			go func() { code <- o.run(t.Context(), append([]string{"subscription"}, strings.Fields(tt.args)...)) }()
			errs.await(t, tt.shows)
			signals <- syscall.SIGINT
			if got := <-code; got != exitFailed || !strings.HasSuffix(errs.String(), "host: "+errWatchEnded.Error()+"\n") {
				t.Errorf("exit code %d, want %d: %s", got, exitFailed, &errs)
			}
		})
	}
}
