package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/pflag"

	"github.com/pgmill/pgmill/platform"
)

// withFunctions is a registry of subscriptions that do nothing.
func withFunctions(t *testing.T, names ...string) *platform.Registry {
	t.Helper()
	reg := platform.NewRegistry()
	for _, name := range names {
		err := reg.Add(platform.Subscription{Name: name, Events: []string{"test.event"}, Owners: platform.OwnedBy("test"),
			Handle: func(context.Context, pgx.Tx, platform.Event) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
	}
	return reg
}

func parsedFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addSettings(flags, true)
	addSettings(flags, false)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags
}

func textFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const ownProfile = `
name: own
posture: local
ha_evidence: false
ha_reason: a test
database: {absent: private}
migrate: false
functions: [a.one]
settings: {grace: 1s, max_conns: 11}
`

func TestConfigPrecedence(t *testing.T) {
	t.Parallel()
	profile := textFile(t, "own.yaml", ownProfile)
	config := textFile(t, "config.yaml", "grace: 2s\nfunctions: [a.two]\n")
	for _, tt := range []struct {
		name      string
		args, env []string
		grace     time.Duration
		functions string
	}{
		{name: "the default", grace: 10 * time.Second},
		{name: "the profile before the default", args: []string{"--profile-file", profile}, grace: time.Second, functions: "a.one"},
		{name: "the file before the profile", args: []string{"--profile-file", profile, "--config", config}, grace: 2 * time.Second, functions: "a.two"},
		{name: "the environment before the file", args: []string{"--profile-file", profile},
			env: []string{"PGMILL_CONFIG=" + config, "PGMILL_GRACE=3s", "PGMILL_FUNCTIONS=a.one,a.two"}, grace: 3 * time.Second, functions: "a.one a.two"},
		{name: "the flag before the environment", args: []string{"--grace", "4s", "--functions", "a.one", "--functions", "a.three"},
			env: []string{"PGMILL_GRACE=3s", "PGMILL_FUNCTIONS=a.two"}, grace: 4 * time.Second, functions: "a.one a.three"},
		{name: "an empty variable is none", env: []string{"PGMILL_GRACE="}, grace: 10 * time.Second},
		{name: "the last flag counts", args: []string{"--grace=5s", "--grace=4s"}, grace: 4 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadConfig(sources{parsedFlags(t, tt.args...), tt.env}, withFunctions(t, "a.one", "a.two", "a.three"), true)
			if err != nil {
				t.Fatal(err)
			}
			if c.Grace != tt.grace || strings.Join(c.Functions, " ") != tt.functions {
				t.Errorf("grace %v, functions %v; want %v, %v", c.Grace, c.Functions, tt.grace, tt.functions)
			}
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(sources{}, platform.NewRegistry(), true)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Profile.Name, c.Migrate, c.Database, c.Addr, c.LeaseTTL, c.PollInterval, c.MaxConns, c.MaxClaims, c.MaxJobs, c.LogFormat, c.LogLevel)
	if want := fmt.Sprint("local", true, "", "127.0.0.1:8081", 10*time.Second, time.Second, 20, 100, 100, "auto", "INFO"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestConfigOfTheEnvironment(t *testing.T) {
	t.Parallel()
	secret := textFile(t, "dsn", "postgres://ann:pw@db/app\n")
	c, err := loadConfig(sources{environ: []string{
		"PGMILL_PROFILE=single-db-pilot", "DATABASE_URL_FILE=" + secret, "PGMILL_LISTEN_URL=postgres://direct/app", "PGMILL_LEASE_TTL_SECS=7",
		"PGMILL_MIGRATE=true", "PGMILL_POOLS=gpu, tpu", "PGMILL_LABELS=zone=a, disk=a=b c", "PGMILL_TEST_DSN=x", "PGMILL_PG_BIN=/usr/bin", "HOME=/root",
	}}, platform.NewRegistry(), true)
	if err != nil {
		t.Fatal(err)
	}
	if c.Database != "postgres://ann:pw@db/app" || c.Direct() != "postgres://direct/app" || c.LeaseTTL != 7*time.Second || !c.Migrate ||
		fmt.Sprint(c.Pools, c.Labels) != "[gpu tpu] map[disk:a=b c zone:a]" {
		t.Errorf("got %+v", c)
	}
}

// All faults are told together, each with where it is and what to do (N84: and
// without the DSN).
func TestConfigFaultsAreToldTogether(t *testing.T) {
	t.Parallel()
	config := textFile(t, "config.yaml", "grcae: 2s\nmax_claims: [1]\npoll_interval: 1\nlog_level: loud\n")
	_, err := loadConfig(sources{
		parsedFlags(t, "--max-conns", "0", "--addr", "8081", "--functions", "a.on", "--config", config),
		[]string{"PGMILL_ADR=x", "PGMILL_GRACE=soon", "PGMILL_LEASE_TTL_SECS=10s", "DATABASE_URL=postgres://ann:C4NARY@h:port/d",
			"PGMILL_LISTEN_URL=host=C4NARY port=x", "PGMILL_LISTEN_URL_FILE=/no/such", "PGMILL_MIGRATE=perhaps", "PGMILL_LOG_FORMAT=xml"},
	}, withFunctions(t, "a.one"), true)
	if err == nil {
		t.Fatal("no fault found")
	}
	if !errors.Is(err, ErrConfig) || exitCode(err) != exitUsage {
		t.Errorf("exit code %d", exitCode(err))
	}
	lines := errorLines(err)
	for _, want := range []string{
		"PGMILL_ADR: no such setting; did you mean PGMILL_ADDR?",
		`no setting "grcae"; did you mean grace?`,
		"max_claims: write one value",
		`poll_interval in ` + config + `: write a duration from 50ms to 1m0s, such as 10s, not "1"`,
		`log_level in ` + config + `: write debug, info, warn or error, not "loud"`,
		`--max-conns: write a number from 1 to 1000, not "0"`,
		`--addr: write host:port, such as 127.0.0.1:8081, not "8081"`,
		`PGMILL_GRACE: write a duration from 100ms to 1h0m0s, such as 10s, not "soon"`,
		`PGMILL_LEASE_TTL_SECS: write whole seconds, such as 10, not "10s"`,
		"DATABASE_URL: not a Postgres DSN (its value is not shown)",
		"PGMILL_LISTEN_URL: not a Postgres DSN",
		"PGMILL_LISTEN_URL and PGMILL_LISTEN_URL_FILE are both set: leave one",
		`PGMILL_MIGRATE: write true or false, not "perhaps"`,
		`PGMILL_LOG_FORMAT: write one of auto, json, text, not "xml"`,
		`--functions: no function "a.on" is in this build; did you mean a.one?`,
	} {
		n := 0
		for _, line := range lines {
			if strings.Contains(line, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines with %q in\n%s", n, want, strings.Join(lines, "\n"))
		}
	}
	if len(lines) != 15 {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if strings.Contains(err.Error(), "C4NARY") {
		t.Errorf("a DSN is in the error: %v", err)
	}
}

func TestConfigFaultsOneByOne(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		env  []string
		want string
	}{
		{"a pool that is no name", []string{"--pools", "gpu", "--pools", "a/b"}, nil, "--pools: write names of letters, digits and _.-"},
		{"no pool at all", []string{"--pools", ","}, nil, "--pools: write names"},
		{"a label without a value", nil, []string{"PGMILL_LABELS=zone=a,disk"}, "PGMILL_LABELS: write name=value"},
		{"a label twice", []string{"--labels", "zone=a", "--labels", "zone=b"}, nil, "--labels: write name=value, with commas, each name once"},
		{"a pilot without a database", []string{"--profile", "single-db-pilot"}, nil, "no database: profile single-db-pilot needs one; set DATABASE_URL"},
		{"a profile that is none", nil, []string{"PGMILL_PROFILE=lcal"}, `no profile "lcal"; did you mean local?`},
		{"two profiles", []string{"--profile", "local", "--profile-file", "x"}, nil, "profile and profile-file are both set"},
		{"a profile file that is none", []string{"--profile-file", "/no/such"}, nil, "profile file: open /no/such"},
		{"a config file that is none", []string{"--config", "/no/such"}, nil, "config file /no/such: open /no/such"},
		{"a secret file that is none", nil, []string{"DATABASE_URL_FILE=/no/such"}, "DATABASE_URL_FILE: open /no/such"},
		{"a secret file that is empty", nil, []string{"DATABASE_URL_FILE=/dev/null"}, "DATABASE_URL_FILE: the file is empty"},
		{"a file in a config file", []string{"--config", textFile(t, "c.yaml", "config: x\n")}, nil, `no setting "config"`},
		{"a config file that is a DSN", []string{"--config", textFile(t, "c.yaml", "postgres://u:C4NARY@h/d\n")}, nil, "config file"},
		{"a certificate that is none", nil, []string{"DATABASE_URL=postgres://u:C4NARY@h/d?sslmode=verify-full&sslrootcert=/no/such"}, "DATABASE_URL: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadConfig(sources{parsedFlags(t, tt.args...), tt.env}, platform.NewRegistry(), true)
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(errorLines(err)) != 1 || strings.Contains(err.Error(), "C4NARY") {
				t.Errorf("got %v; want one line with %q and no DSN", err, tt.want)
			}
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%v is no ErrConfig", err)
			}
		})
	}
}

// Settings that nobody applies, or that share a name, are mistakes of the table.
func TestSettingsAreWhole(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range settings {
		for _, name := range []string{"key " + s.key, "env " + s.env, "flag " + s.flag} {
			if seen[name] || strings.HasSuffix(name, " ") {
				t.Errorf("%s: taken or empty", name)
			}
			seen[name] = true
		}
		read := s.key == "profile" || s.key == "profile_file" || s.key == "config"
		if (s.set == nil) != read || s.kind.name == "" || s.usage == "" {
			t.Errorf("%s: set, kind or usage is missing", s.key)
		}
	}
}
