package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform/pg"
)

// server is the one Postgres of a session, with the migrated template in it.
type server struct {
	dsn     string
	machine string
	private *pg.Private
	conn    *pgx.Conn // holds the lock that keeps a second bench away
	ours    bool      // that lock is held, and so the databases are this bench's
	host    string    // the host binary, once built
	scratch string
}

// settings differ from a stock server in size only: fsync, synchronous_commit and
// full_page_writes stay on. Statements are counted only where a run asks for it.
var settings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	"shared_buffers": "1GB", "max_wal_size": "4GB", "max_connections": "200",
	"pg_stat_statements.track": "none",
}

func openServer(ctx context.Context, dir string) (*server, error) {
	s := &server{dsn: os.Getenv("PG_DSN")}
	if s.dsn == "" {
		private, err := pg.StartPrivate(ctx, pg.PrivateOptions{
			Dir: dir, Settings: settings, Preload: []string{"pg_stat_statements"},
		})
		if err != nil {
			return nil, err
		}
		s.private = private
		if s.dsn, err = lab.Retarget(private.DSN(), "postgres", ""); err != nil {
			return nil, err
		}
	}
	if err := s.prepare(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *server) prepare(ctx context.Context) (err error) {
	if s.scratch, err = os.MkdirTemp("", "pgmill-bench-"); err != nil {
		return err
	}
	if s.conn, err = pgx.Connect(ctx, s.dsn); err != nil {
		return err
	}
	if err := s.conn.QueryRow(ctx, "select pg_try_advisory_lock(1886219628, 99)").Scan(&s.ours); err != nil {
		return err
	}
	if !s.ours {
		return errors.New("another bench runs on this server")
	}
	if err := s.describe(ctx); err != nil {
		return err
	}
	for _, q := range []string{
		"drop database if exists " + lab.TemplateDB + " with (force)",
		"create database " + lab.TemplateDB + " template template0",
	} {
		if _, err := s.conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	template, err := lab.Retarget(s.dsn, lab.TemplateDB, "")
	if err != nil {
		return err
	}
	if _, err := pg.Migrate(ctx, template, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	return nil
}

// describe names the machine, and the server by what makes a difference.
func (s *server) describe(ctx context.Context) error {
	cpu := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			cpu = strings.TrimSpace(model)
			break
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	var pgText string
	err := s.conn.QueryRow(ctx, `
		select 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1) || ', ' || string_agg(name || ' ' || current_setting(name), ', ' order by name)
		  from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'commit_delay')`).Scan(&pgText)
	s.machine = fmt.Sprintf("%d x %s, Linux %s, %s, %s; client and server share it", runtime.NumCPU(), cpu,
		strings.TrimSpace(string(kernel)), runtime.Version(), pgText)
	return err
}

// hostBinary builds cmd/host for the runs that start it as a process; "" for others.
func (s *server) hostBinary(ctx context.Context, spec lab.Spec) (string, error) {
	if spec.Family() != "process" || s.host != "" {
		return s.host, nil
	}
	if given := os.Getenv("BENCH_HOST"); given != "" {
		s.host = given
		return given, nil
	}
	target := filepath.Join(s.scratch, "host")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", target, "github.com/pgmill/pgmill/cmd/host").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build cmd/host (run bench inside the module, or set BENCH_HOST): %w: %s", err, strings.TrimSpace(string(out)))
	}
	s.host = target
	return target, nil
}

func (s *server) close() {
	ctx := context.Background()
	if s.ours {
		for _, db := range []string{lab.RunDB, lab.TemplateDB} {
			_, _ = s.conn.Exec(ctx, "drop database if exists "+db+" with (force)") // the next bench does it, then
		}
	}
	if s.conn != nil {
		_ = s.conn.Close(ctx)
	}
	if s.private != nil {
		_ = s.private.Close()
	}
	if s.scratch != "" {
		_ = os.RemoveAll(s.scratch)
	}
}
