package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// everyone runs a test as ourselves and, if we are root, as nobody too.
func everyone(t *testing.T, test func(t *testing.T, as *syscall.Credential)) {
	t.Parallel()
	who := "ordinary user"
	if os.Geteuid() == 0 {
		who = "root"
	}
	t.Run(who, func(t *testing.T) {
		t.Parallel()
		test(t, nil)
	})
	if os.Geteuid() != 0 {
		return
	}
	t.Run("ordinary user", func(t *testing.T) {
		t.Parallel()
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Skipf("this test needs a user nobody: %v", err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		test(t, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)})
	})
}

func TestPrivateIsOneServerUntilItsLastUserLeaves(t *testing.T) {
	everyone(t, func(t *testing.T, as *syscall.Credential) {
		h := newHome(t, as)
		first, dsn := h.use(t)
		second, joined := h.use(t)
		if joined != dsn {
			t.Errorf("the second user has %s, the first %s", joined, dsn)
		}
		mustAnswer(t, dsn, `select current_database()`, "pgmill")
		mustAnswer(t, dsn, `show max_prepared_transactions`, "0")
		mustAnswer(t, dsn, `show shared_buffers`, "16MB")
		mustAnswer(t, dsn, `show shared_preload_libraries`, "")
		pid := h.postmaster()

		first.leave()
		mustAnswer(t, dsn, `select 'here'`, "here")
		if h.postmaster() != pid {
			t.Errorf("postmaster %d became %d", pid, h.postmaster())
		}
		second.leave()
		h.eventually(t, "the server stops", func() bool { return !h.running() })

		_, again := h.use(t)
		if again != dsn {
			t.Errorf("DSN is %s after a restart, was %s", again, dsn)
		}
	})
}

func TestPrivateSurvivesItsStarter(t *testing.T) {
	everyone(t, func(t *testing.T, as *syscall.Credential) {
		h := newHome(t, as)
		starter, _ := h.use(t)
		other, dsn := h.use(t)
		pid := h.postmaster()
		session, err := pgx.Connect(context.Background(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(context.Background())

		starter.kill()
		// Longer than the linger, or the test would see nothing.
		if _, err := session.Exec(context.Background(), `select pg_sleep(1)`); err != nil {
			t.Errorf("a session of the time before: %v", err)
		}
		mustAnswer(t, dsn, `select 'here'`, "here")
		if h.postmaster() != pid {
			t.Errorf("postmaster %d became %d", pid, h.postmaster())
		}

		other.kill()
		h.eventually(t, "the server stops", func() bool { return !h.running() })
	})
}

func TestPrivateComesBackWhenItsKeeperIsKilled(t *testing.T) {
	everyone(t, func(t *testing.T, as *syscall.Credential) {
		h := newHome(t, as)
		_, dsn := h.use(t)
		h.use(t)
		for _, victim := range []string{keeperLock, keeperLock, "data/postmaster.pid"} {
			pid := h.postmaster()
			if err := syscall.Kill(h.number(victim), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.eventually(t, "a new server answers", func() bool {
				got, err := answer(dsn, `select 'here'`)
				return err == nil && got == "here" && h.postmaster() != pid
			})
		}
	})
}

func TestPrivateStartedByManyAtOnceIsOneServer(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	for range 3 { // each time, some come while it starts and some while it stops
		var users []*testUser
		for range 4 {
			users = append(users, h.start(t))
		}
		pids := make([]string, len(users))
		var all sync.WaitGroup
		for i, u := range users {
			all.Go(func() {
				line, err := u.said.ReadString('\n')
				if err != nil {
					t.Errorf("user %d: %v", i, err)
					return
				}
				pids[i], err = answer(strings.TrimSpace(line), `select pg_postmaster_start_time()::text`)
				if err != nil {
					t.Errorf("user %d with %s: %v", i, line, err)
				}
			})
		}
		all.Wait()
		for _, pid := range pids {
			if pid != pids[0] {
				t.Errorf("servers %v", pids)
			}
		}
		for _, u := range users {
			u.leave()
		}
	}
}

func TestPrivateJoinsWhileTheServerStops(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	u, _ := h.use(t)
	for range 5 {
		u.leave()
		h.eventually(t, "the server stops", func() bool { return !h.isPostmaster(h.postmaster()) })
		var dsn string
		u, dsn = h.use(t) // the keeper is likely not gone yet
		mustAnswer(t, dsn, `select 'here'`, "here")
	}
}

func TestPrivateSurvivesAStalePidFile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		file string
	}{
		{name: "whose process is gone", file: "4194303"},
		{name: "whose process is another program", file: strconv.Itoa(os.Getpid())},
		{name: "that was cut short", file: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t, nil)
			u, _ := h.use(t)
			u.leave()
			h.eventually(t, "the server stops", func() bool { return !h.running() })
			text := fmt.Sprintf("%s\n%s\n1700000000\n%d\n\n127.0.0.1\n  5432001  65536\nready   \n", tt.file, h.path("data"), h.number("port"))
			if tt.file == "" {
				text = ""
			}
			h.writeAsServer(t, "data/postmaster.pid", text)
			_, dsn := h.use(t)
			mustAnswer(t, dsn, `select 'here'`, "here")
		})
	}
}

func TestPrivateRefusesDataOfAnotherVersion(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	u, dsn := h.use(t)
	u.leave()
	h.eventually(t, "the server stops", func() bool { return !h.running() })
	h.writeAsServer(t, "data/PG_VERSION", "9\n")
	if said := h.start(t).line(); !strings.Contains(said, "made by PostgreSQL 9 ") {
		t.Errorf("StartPrivate with data of version 9: %s; DSN was %s", said, dsn)
	}
}

func TestPrivateShowsTheLogOfAServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	u, _ := h.use(t)
	u.leave()
	h.eventually(t, "the server stops", func() bool { return !h.running() })
	h.writeAsServer(t, "data/postgresql.conf", "no_such_setting = on\n")
	u = h.start(t)
	all, _ := io.ReadAll(u.said)
	password, _ := os.ReadFile(h.path("password"))
	if !strings.Contains(string(all), "no_such_setting") || strings.Contains(string(all), string(password)) {
		t.Errorf("StartPrivate with a bad postgresql.conf said %q", all)
	}
}

func TestPrivateTakesAnotherPortOnlyWhileItIsAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	u, dsn := h.use(t)
	u.leave()
	h.eventually(t, "the server stops", func() bool { return !h.running() })
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", h.number("port")))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, other := h.use(t)
	if other == dsn {
		t.Errorf("DSN is still %s", other)
	}
	mustAnswer(t, other, `select 'here'`, "here")
}

func TestCheckSettings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		ok   bool
	}{
		{"shared_preload_libraries", true},
		{"pg_stat_statements.track", true},
		{"port", false},
		{"Work Mem", false},
		{"", false},
	}
	for _, tt := range tests {
		if err := checkSettings(map[string]string{tt.name: "x"}); (err == nil) != tt.ok {
			t.Errorf("checkSettings(%q) = %v; want ok %v", tt.name, err, tt.ok)
		}
	}
}

func TestFindBinaries(t *testing.T) { // not parallel: it sets the environment
	t.Setenv("PGMILL_PG_BIN", "")
	fake := func(major string) string {
		dir := filepath.Join(t.TempDir(), major, "bin")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + major + "'\n"
		for _, name := range []string{"postgres", "initdb"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	old, current := fake("9.6"), fake("18.1")
	tests := []struct {
		name    string
		env     string
		folders []string
		major   int
		want    string
		err     string
	}{
		{name: "nothing there names three ways out", folders: []string{t.TempDir()}, err: "apt-get install postgresql"},
		{name: "the first folder wins", folders: []string{old, current}, want: old},
		{name: "the data's version wins", folders: []string{old, current}, major: 18, want: current},
		{name: "another version is refused", folders: []string{old, current}, major: 15, err: "made by PostgreSQL 15"},
		{name: "the environment wins", env: current, folders: []string{old}, want: current},
		{name: "a wrong environment is said", env: "/no/such", folders: []string{old}, err: "PGMILL_PG_BIN"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PGMILL_PG_BIN", tt.env)
			got, err := findBinaries(tt.folders, tt.major)
			if got.dir != tt.want && tt.err == "" || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("findBinaries(%v, %d) = %v, %v; want %q, error with %q", tt.folders, tt.major, got, err, tt.want, tt.err)
			}
		})
	}
	t.Setenv("PGMILL_PG_BIN", current)
	for version, want := range map[string]string{"": current, "18": current, old: old, "7": "", "/no/such": ""} {
		if got, _, err := Binaries(version); got != want && want != "" || (err == nil) != (want != "") {
			t.Errorf("Binaries(%q) = %q, %v; want %q", version, got, err, want)
		}
	}
	t.Setenv("PGMILL_PG_BIN", "")
	if _, err := findBinaries([]string{t.TempDir()}, 0); !errors.Is(err, ErrNoBinaries) {
		t.Errorf("findBinaries without any = %v, want ErrNoBinaries", err)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "pgmill-reachable-*") // 0700 and ours
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	inside := filepath.Join(base, "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	us := &syscall.Credential{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
	other := &syscall.Credential{Uid: us.Uid + 1, Gid: us.Gid + 1}
	tests := []struct {
		name string
		mode os.FileMode
		who  *syscall.Credential
		want bool
	}{
		{name: "its owner", mode: 0o700, who: us, want: true},
		{name: "another user, closed", mode: 0o700, who: other},
		{name: "another user, readable but not to be passed", mode: 0o744, who: other},
		{name: "another user, to be passed", mode: 0o711, who: other, want: true},
	}
	for _, tt := range tests {
		if err := os.Chmod(base, tt.mode); err != nil {
			t.Fatal(err)
		}
		if got := reachable(inside, tt.who); got != tt.want {
			t.Errorf("%s: reachable = %v, want %v", tt.name, got, tt.want)
		}
	}
}
