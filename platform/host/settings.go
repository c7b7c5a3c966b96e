package host

import (
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pgmill/pgmill/platform/api"
)

// setting is one thing that can be configured, under all its names. Everything
// that reads or explains configuration goes by this table.
type setting struct {
	key    string // in the --config file and in a profile's settings
	env    string
	flag   string
	usage  string
	preset string // the default; "" is none

	common bool // every command has the flag, not only those that run a host
	secret bool // env may be env_FILE, a file that holds the value
	kind   kind
	set    func(c *Config, v any) // v is what kind's parse made
}

// kind turns a value into what the field wants; the error says what to write.
type kind struct {
	name     string // what help calls a value
	parse    func(text string) (any, error)
	parseEnv func(text string) (any, error) // nil: parse
	isSwitch bool                           // a flag without a value
	isList   bool
}

var settings = []setting{
	{key: "profile", env: "PGMILL_PROFILE", flag: "profile", preset: "local", common: true, kind: word,
		usage: "deployment profile, also --deployment: " + strings.Join(profileNames(), ", ")},
	{key: "profile_file", env: "PGMILL_PROFILE_FILE", flag: "profile-file", common: true, kind: word,
		usage: "a profile of one's own, instead of --profile"},
	{key: "config", env: "PGMILL_CONFIG", flag: "config", common: true, kind: word,
		usage: "YAML file with these settings, named with _ for -"},
	{key: "database_url", env: "DATABASE_URL", flag: "database-url", common: true, secret: true, kind: dsn,
		usage: "the database; the environment is better, a flag is seen in the process list",
		set:   func(c *Config, v any) { c.Database = v.(string) }},
	{key: "listen_url", env: "PGMILL_LISTEN_URL", flag: "listen-url", common: true, secret: true, kind: dsn,
		usage: "the same database without a pooler, for LISTEN and migrations (none: the database URL)",
		set:   func(c *Config, v any) { c.ListenURL = v.(string) }},
	{key: "data_dir", env: "PGMILL_DATA_DIR", flag: "data-dir", common: true, kind: word,
		usage: "where the private Postgres lives (none: .pgmill here)",
		set:   func(c *Config, v any) { c.DataDir = v.(string) }},
	{key: "log_format", env: "PGMILL_LOG_FORMAT", flag: "log-format", preset: "auto", common: true, kind: oneOf("auto", "json", "text"),
		usage: "auto (text on a terminal, else json), json or text",
		set:   func(c *Config, v any) { c.LogFormat = v.(string) }},
	{key: "log_level", env: "PGMILL_LOG_LEVEL", flag: "log-level", preset: "info", common: true, kind: level,
		usage: "debug, info, warn or error",
		set:   func(c *Config, v any) { c.LogLevel = v.(slog.Level) }},

	{key: "addr", env: "PGMILL_ADDR", flag: "addr", preset: "127.0.0.1:8081", kind: address,
		usage: "host:port of the API, probes and metrics; port 0 takes a free one",
		set:   func(c *Config, v any) { c.Addr = v.(string) }},
	{key: "api_keys", env: "PGMILL_API_KEYS", flag: "api-keys", secret: true, kind: keyList,
		usage: "name:key:scope[:role], … who may call the API; PGMILL_API_KEYS_FILE names a file of them, which is better than a flag (none: the API is closed, but open on loopback with profile local)",
		set:   func(c *Config, v any) { c.APIKeys = v.([]api.Key) }},
	{key: "functions", env: "PGMILL_FUNCTIONS", flag: "functions", kind: list,
		usage: "names of the functions to run (none: all)",
		set:   func(c *Config, v any) { c.Functions = v.([]string) }},
	{key: "lease_ttl", env: "PGMILL_LEASE_TTL_SECS", flag: "lease-ttl", preset: "10s", kind: inSeconds(between(time.Second, 10*time.Minute)),
		usage: "how long a host counts as alive without a sign of it",
		set:   func(c *Config, v any) { c.LeaseTTL = v.(time.Duration) }},
	{key: "grace", env: "PGMILL_GRACE", flag: "grace", preset: "10s", kind: between(100*time.Millisecond, time.Hour),
		usage: "how long running handlers may take to finish when the host stops",
		set:   func(c *Config, v any) { c.Grace = v.(time.Duration) }},
	{key: "poll_interval", env: "PGMILL_POLL_INTERVAL", flag: "poll-interval", preset: "1s", kind: between(50*time.Millisecond, time.Minute),
		usage: "how often to look without being woken",
		set:   func(c *Config, v any) { c.PollInterval = v.(time.Duration) }},
	{key: "max_conns", env: "PGMILL_MAX_CONNS", flag: "max-conns", preset: "20", kind: count(1, 1000),
		usage: "database connections for handlers; the host's own come on top",
		set:   func(c *Config, v any) { c.MaxConns = v.(int) }},
	{key: "max_claims", env: "PGMILL_MAX_CLAIMS", flag: "max-claims", preset: "100", kind: count(1, 10_000),
		usage: "shards this host works on at once at the most",
		set:   func(c *Config, v any) { c.MaxClaims = v.(int) }},
	{key: "max_jobs", env: "PGMILL_MAX_JOBS", flag: "max-jobs", preset: "100", kind: count(1, 10_000),
		usage: "jobs this host works on at once at the most",
		set:   func(c *Config, v any) { c.MaxJobs = v.(int) }},
	{key: "pools", env: "PGMILL_POOLS", flag: "pools", kind: pools,
		usage: "pools whose jobs this host takes (none: its steps' jobs wherever they go, but none that asks for a pool or what one offers)",
		set:   func(c *Config, v any) { c.Pools = v.([]string) }},
	{key: "labels", env: "PGMILL_LABELS", flag: "labels", kind: pairs,
		usage: "name=value, … that placements of jobs may ask for",
		set:   func(c *Config, v any) { c.Labels = v.(map[string]string) }},
	{key: "migrate", env: "PGMILL_MIGRATE", flag: "migrate", kind: yesNo,
		usage: "migrate the database before serving (none: as the profile says)",
		set:   func(c *Config, v any) { c.Migrate = v.(bool) }},
}

var poolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// settingBy finds a setting by one of its names.
func settingBy(name func(setting) string, want string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return name(s) == want })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

var (
	word = kind{name: "text", parse: func(text string) (any, error) { return text, nil }}
	list = kind{name: "names", isList: true, parse: func(text string) (any, error) {
		names := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		return names, nil
	}}
	pools = kind{name: "names", isList: true, parse: func(text string) (any, error) {
		names, _ := list.parse(text)
		all := names.([]string)
		if len(all) == 0 || len(all) > 100 || slices.ContainsFunc(all, func(name string) bool { return !poolName.MatchString(name) }) {
			return nil, fmt.Errorf("write names of letters, digits and _.-, with commas, at most 100")
		}
		return all, nil
	}}
	pairs = kind{name: "name=value", isList: true, parse: func(text string) (any, error) {
		all := map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if _, twice := all[name]; !ok || twice || name == "" || utf8.RuneCountInString(name) > 100 || utf8.RuneCountInString(value) > 256 {
				return nil, fmt.Errorf("write name=value, with commas, each name once, names of at most 100 characters and values of 256")
			}
			all[name] = value
		}
		if len(all) > 50 {
			return nil, fmt.Errorf("write at most 50 labels")
		}
		return all, nil
	}}
	yesNo = kind{name: "bool", isSwitch: true, parse: func(text string) (any, error) {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("write true or false")
		}
		return b, nil
	}}
	level = kind{name: "level", parse: func(text string) (any, error) {
		var l slog.Level
		if err := l.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("write debug, info, warn or error")
		}
		return l, nil
	}}
	address = kind{name: "host:port", parse: func(text string) (any, error) {
		_, port, err := net.SplitHostPort(text)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return nil, fmt.Errorf("write host:port, such as 127.0.0.1:8081")
		}
		return text, nil
	}}
	keyList = kind{name: "keys", parse: func(text string) (any, error) { return api.ParseKeys(text) }}
	dsn     = kind{name: "url", parse: func(text string) (any, error) { return text, checkDSN(text) }}
)

func oneOf(words ...string) kind {
	return kind{name: "word", parse: func(text string) (any, error) {
		if !slices.Contains(words, text) {
			return nil, fmt.Errorf("write one of %s", strings.Join(words, ", "))
		}
		return text, nil
	}}
}

func count(low, high int) kind {
	return kind{name: "number", parse: func(text string) (any, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return nil, fmt.Errorf("write a number from %d to %d", low, high)
		}
		return n, nil
	}}
}

func between(low, high time.Duration) kind {
	return kind{name: "duration", parse: func(text string) (any, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < low || d > high {
			return nil, fmt.Errorf("write a duration from %v to %v, such as 10s", low, high)
		}
		return d, nil
	}}
}

// inSeconds is for a duration whose environment variable ends in _SECS.
func inSeconds(k kind) kind {
	k.parseEnv = func(text string) (any, error) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err == nil {
			return k.parse(fmt.Sprintf("%ds", n))
		}
		return nil, fmt.Errorf("write whole seconds, such as 10")
	}
	return k
}
