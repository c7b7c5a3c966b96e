package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The databases of the bench, dropped and made anew without asking.
const (
	TemplateDB = "pgmill_bench_template"
	RunDB      = "pgmill_bench_run"
)

// Fresh makes this run's database as a copy of template (TemplateDB, or "" for an
// empty one) on the server of PG_DSN, and returns its DSN: that of a role which may
// do everything, with the run's commit_delay in its options.
func (r *Run) Fresh(ctx context.Context, template string) (string, error) {
	dsn := os.Getenv("PG_DSN")
	if dsn == "" {
		return "", errors.New("PG_DSN is not set")
	}
	if template == "" {
		template = "template0"
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost
	for _, q := range []string{
		"drop database if exists " + RunDB + " with (force)",
		"create database " + RunDB + " template " + template,
		"checkpoint",
	} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return "", fmt.Errorf("%s: %w", q, err)
		}
	}
	r.Own(postmaster(ctx, conn))
	return r.DSN()
}

// DSN is that of the database which Fresh has made.
func (r *Run) DSN() (string, error) {
	options := ""
	if delay := r.Param("delay"); delay > 0 {
		options = fmt.Sprintf("-c commit_delay=%d -c commit_siblings=0", delay)
	}
	return Retarget(os.Getenv("PG_DSN"), RunDB, options)
}

// Retarget is the DSN with another database and, if not empty, startup options.
func Retarget(dsn, database, options string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return "", errors.New("PG_DSN must be a postgres:// URL")
	}
	u.Path = "/" + database
	if options != "" {
		q := u.Query()
		q.Set("options", options)
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // as libpq and pgx read it
	}
	return u.String(), nil
}

// Pool opens conns connections, all of them now, with settings for each session,
// and runs the statements given.
func Pool(ctx context.Context, dsn string, conns int, settings map[string]string, ddl ...string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MaxConnIdleTime, cfg.MaxConnLifetime = int32(conns), time.Hour, 24*time.Hour
	maps.Copy(cfg.ConnConfig.RuntimeParams, settings)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, pool, conns, ddl); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func prepare(ctx context.Context, pool *pgxpool.Pool, conns int, ddl []string) error {
	for _, q := range ddl {
		if _, err := pool.Exec(ctx, q); err != nil {
			return fmt.Errorf("%.60s: %w", q, err)
		}
	}
	var held []*pgxpool.Conn
	defer func() {
		for _, c := range held {
			c.Release()
		}
	}()
	for range conns {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		held = append(held, c)
	}
	return nil
}

// postmaster is the server's main process if it runs on this machine, else 0.
func postmaster(ctx context.Context, conn *pgx.Conn) int {
	var backend int
	if conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&backend) != nil {
		return 0
	}
	p, ok := readProcess(backend)
	if !ok || p.name != "postgres" {
		return 0
	}
	return p.parent
}
