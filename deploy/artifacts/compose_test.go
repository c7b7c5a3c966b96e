package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// composed loads the compose file as compose does: interpolated, checked against its
// schema, made whole.
func composed(ctx context.Context, env types.Mapping) (*types.Project, error) {
	return loader.LoadWithContext(ctx, types.ConfigDetails{WorkingDir: "..", ConfigFiles: []types.ConfigFile{{Filename: "../compose.yaml"}}, Environment: env})
}

func TestComposeFile(t *testing.T) {
	t.Parallel()
	if _, err := composed(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "a password for the database") {
		t.Errorf("without a password: %v", err)
	}
	p, err := composed(t.Context(), types.Mapping{"PGMILL_DB_PASSWORD": "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	db, migrate, host := p.Services["db"], p.Services["migrate"], p.Services["host"]
	if db.HealthCheck == nil || migrate.DependsOn["db"].Condition != types.ServiceConditionHealthy || host.DependsOn["migrate"].Condition != types.ServiceConditionCompletedSuccessfully {
		t.Errorf("the migration waits for %v, hosts for %v", migrate.DependsOn, host.DependsOn)
	}
	if s := host.StopGracePeriod; s == nil || time.Duration(*s) < 20*time.Second {
		t.Errorf("a host is killed before it has drained: %v", s)
	}
	if got := strings.Join(host.HealthCheck.Test, " "); got != "CMD host ready" {
		t.Errorf("a host's health is asked by %s", got)
	}
	for _, s := range []types.ServiceConfig{migrate, host} {
		if !s.ReadOnly || len(s.CapDrop) != 1 || s.CapDrop[0] != "ALL" || *s.Environment["PGMILL_PROFILE"] != "single-db-pilot" {
			t.Errorf("%s is not as restricted as it could be, or without its environment file: %v", s.Name, s.Environment)
		}
	}
}

// The image understands what compose tells it: no argument and no variable is refused,
// only the database is not there.
func TestComposeRuns(t *testing.T) {
	t.Parallel()
	p, err := composed(t.Context(), types.Mapping{"PGMILL_DB_PASSWORD": "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	environ := func(s types.ServiceConfig) (env []string) {
		for name, value := range s.Environment {
			env = append(env, name+"="+strings.Replace(*value, "@db:5432", "@127.0.0.1:1", 1))
		}
		return env
	}
	run(t, p.Services["migrate"].Command, environ(p.Services["migrate"])).exits(3)
	addr := free(t)
	host := run(t, nil, append(environ(p.Services["host"]), "PGMILL_ADDR="+addr))
	host.becomes("http://"+addr+"/readyz", "503")
	check := run(t, p.Services["host"].HealthCheck.Test[2:], []string{"PGMILL_ADDR=" + addr})
	check.exits(1)
	if !strings.Contains(check.said(), "not ready") {
		t.Errorf("the health check says %s", check.said())
	}
}
