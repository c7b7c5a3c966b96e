package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/api"
)

// Config is what a host goes by, checked. A flag counts before the environment,
// then the --config file, the profile and the default.
type Config struct {
	// Database is a DSN; "" only where the profile allows a private Postgres.
	Database string
	// ListenURL is the same database without a pooler; "" means Database.
	ListenURL string
	// Profile is never empty; "local" is the default.
	Profile Profile
	// Addr is where the API, probes and metrics are; port 0 takes a free one.
	Addr string
	// Functions are the names to run; empty means all that are registered.
	Functions []string
	// LeaseTTL is how long a host counts as alive after its last renewal: 10 s.
	LeaseTTL time.Duration
	// Grace is how long running handlers may take when the host stops: 10 s.
	Grace time.Duration
	// PollInterval is how often the host looks without being woken: 1 s.
	PollInterval time.Duration
	// MaxConns bounds the handlers' pool: 20. The host's own connections are extra.
	MaxConns int
	// MaxClaims bounds the shards held at once: 100.
	MaxClaims int
	// MaxJobs bounds the jobs worked on at once: 100.
	MaxJobs int
	// Pools are those whose jobs are taken; empty means those of all its steps' topics.
	Pools []string
	// Labels are what placements of jobs may ask for.
	Labels map[string]string
	// DataDir is the private Postgres's; "" means pg.PrivateOptions' default.
	DataDir string
	// Retention is how long clean-ups keep rows, by platform.Cleanup.Key: as the profile
	// says, and what it lacks as the declaration does.
	Retention map[string]time.Duration
	// Migrate lets the host migrate before it serves: as the profile says.
	Migrate bool
	// APIKeys open the API; without one it is closed, but on a loopback address where the
	// posture is local.
	APIKeys []api.Key

	LogFormat string // auto, json or text
	LogLevel  slog.Level
}

// Direct is the DSN for LISTEN and migrations.
func (c Config) Direct() string { return cmp.Or(c.ListenURL, c.Database) }

// apiOpen reports whether whoever reaches the API may do anything: on a developer's
// machine, from that machine.
func (c Config) apiOpen() bool {
	return len(c.APIKeys) == 0 && c.Profile.Posture == postureLocal && api.IsLoopback(c.Addr)
}

// ErrConfig is what every fault of a configuration is to errors.Is.
var ErrConfig = errors.New("configuration")

// fault is one thing wrong with a configuration, and what to do about it.
type fault struct{ text string }

func (f fault) Error() string        { return f.text }
func (f fault) Is(target error) bool { return target == ErrConfig }

func faultf(format string, args ...any) error { return fault{fmt.Sprintf(format, args...)} }

// loadConfig puts a configuration together and reports all its faults at once.
// The registry says which functions there are. needDatabase: a database must be
// named or startable.
func loadConfig(in sources, reg *platform.Registry, needDatabase bool) (Config, error) {
	var c Config
	values, profile, faults := in.merge()
	c.Profile, c.Migrate = profile, profile.Migrate
	for _, s := range settings {
		v, ok := values[s.key]
		if !ok || s.set == nil {
			continue
		}
		parse := s.kind.parse
		if v.env && s.kind.parseEnv != nil {
			parse = s.kind.parseEnv
		}
		parsed, err := parse(v.text)
		if err != nil {
			faults = append(faults, faultf("%s: %v%s", v.from, err, shown(s, v.text)))
			continue
		}
		s.set(&c, parsed)
	}
	if _, err := reg.Only(c.Functions...); err != nil {
		faults = append(faults, unknownFunctions(c.Functions, values["functions"].from, reg)...)
	}
	keep, bad := profile.retention(reg)
	c.Retention, faults = keep, append(faults, bad...)
	if needDatabase && profile.Name != "" && profile.Database.Absent == refuse && values["database_url"].text == "" {
		faults = append(faults, faultf("no database: profile %s needs one; set DATABASE_URL, or DATABASE_URL_FILE to a file that holds it", profile.Name))
	}
	return c, errors.Join(faults...)
}

func unknownFunctions(names []string, from string, reg *platform.Registry) []error {
	var known []string
	for _, f := range reg.Functions() {
		known = append(known, f.Describe().Name)
	}
	var faults []error
	for _, name := range names {
		if _, err := reg.Only(name); err != nil {
			faults = append(faults, faultf("%s: no function %q is in this build%s; see `host functions`", from, name, didYouMean(name, known)))
		}
	}
	return faults
}

// shown is the rejected value, unless it might be a secret.
func shown(s setting, text string) string {
	if s.secret {
		return ""
	}
	return fmt.Sprintf(", not %q", text)
}

// checkDSN never repeats the DSN: the parser's own error may hold a piece of it.
func checkDSN(text string) error {
	_, err := pgconn.ParseConfig(text)
	if err == nil && !foreign(text) {
		return nil
	}
	var file *fs.PathError
	if errors.As(err, &file) && !strings.Contains(file.Path, "@") {
		return fmt.Errorf("a file it names cannot be read: %w", file)
	}
	return errors.New("not a Postgres DSN (its value is not shown); write a postgres URL with USER:PASSWORD@HOST:5432/DATABASE, the password percent-encoded, or host=HOST user=USER dbname=DATABASE")
}

// foreign reports whether a DSN is a URL that is none of Postgres's: a mistyped one is
// taken by the parser for settings if it has a = somewhere.
func foreign(text string) bool {
	scheme, _, isURL := strings.Cut(strings.TrimSpace(text), "://")
	return isURL && scheme != "postgres" && scheme != "postgresql" && !strings.ContainsAny(scheme, "= '")
}

// readSecret reads the file that an _FILE variable names.
func readSecret(env, path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", faultf("%s: %v", env, err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return "", faultf("%s: the file is empty: %s", env, path)
	}
	return text, nil
}
