package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

var errNoPgbench = errors.New("no pgbench found: install it (Debian, Ubuntu: apt-get install postgresql; " +
	"Fedora: dnf install postgresql-contrib; macOS: brew install postgresql), or name its folder in PGMILL_PG_BIN")

// pgbench is the stock client, its tables in one schema of one database.
type pgbench struct {
	path   string
	dsn    string
	schema string
}

// findPgbench prefers PGMILL_PG_BIN, then the newest of the packages' folders. PATH
// is last: on Debian it has a wrapper that is there without the program.
func findPgbench() (string, error) {
	if dir := os.Getenv("PGMILL_PG_BIN"); dir != "" {
		if path, err := exec.LookPath(filepath.Join(dir, "pgbench")); err == nil {
			return path, nil
		}
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/pgbench", "/usr/pgsql-*/bin/pgbench"} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return numberIn(b) - numberIn(a) })
		if len(found) > 0 {
			return found[0], nil
		}
	}
	path, err := exec.LookPath("pgbench")
	if err != nil {
		return "", errNoPgbench
	}
	return path, nil
}

var firstNumber = regexp.MustCompile(`\d+`)

func numberIn(path string) int {
	n, _ := strconv.Atoi(firstNumber.FindString(path))
	return n
}

// initialize makes the four tables anew.
func (p pgbench) initialize(ctx context.Context, scale int) error {
	_, err := p.exec(ctx, "-i", "-q", "-s", strconv.Itoa(scale))
	return err
}

// run moves money until the time is over. rate is in transactions a second, 0 as
// fast as it goes. -n: its vacuum would also empty pgbench_history.
func (p pgbench) run(ctx context.Context, seconds, clients, rate int) (pgbenchResult, error) {
	args := []string{"-n", "-T", strconv.Itoa(seconds), "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, goruntime.NumCPU()))}
	if rate > 0 {
		args = append(args, "-R", strconv.Itoa(rate))
	}
	out, err := p.exec(ctx, args...)
	if err != nil {
		return pgbenchResult{}, err
	}
	return parsePgbench(out)
}

func (p pgbench) exec(ctx context.Context, args ...string) (string, error) {
	env, err := libpqEnv(p.dsn, p.schema)
	if err != nil {
		return "", err
	}
	var out, fault bytes.Buffer
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), inDSN), env...)
	cmd.Stdout, cmd.Stderr = &out, &fault
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		select { // Ctrl-C reaches pgbench too, and may do so before ctx has ended
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
		lines := strings.Split(strings.TrimSpace(fault.String()), "\n")
		return "", fmt.Errorf("pgbench %s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
	}
	return out.String(), nil
}

// pgbenchResult is what pgbench says at its end.
type pgbenchResult struct {
	transactions int64
	tps          float64
}

var (
	processedLine = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
	tpsLine       = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)
)

func parsePgbench(out string) (pgbenchResult, error) {
	processed, tps := processedLine.FindStringSubmatch(out), tpsLine.FindStringSubmatch(out)
	if processed == nil {
		return pgbenchResult{}, fmt.Errorf("pgbench said nothing of transactions: %q", out)
	}
	var r pgbenchResult
	r.transactions, _ = strconv.ParseInt(processed[1], 10, 64)
	if tps != nil { // absent if there was not one transaction
		r.tps, _ = strconv.ParseFloat(tps[1], 64)
	}
	return r, nil
}

// The connection parameters that libpq takes from the environment as they are.
var libpqNames = map[string]string{
	"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY",
	"channel_binding": "PGCHANNELBINDING", "connect_timeout": "PGCONNECT_TIMEOUT", "target_session_attrs": "PGTARGETSESSIONATTRS",
}

var keywordPair = regexp.MustCompile(`(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))`)

// libpqEnv is a DSN as libpq's environment: an argument would show the password to
// everybody on the machine, and libpq refuses the parameters that only pgx knows.
func libpqEnv(dsn, schema string) ([]string, error) {
	c, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	hosts, ports := []string{c.Host}, []string{strconv.Itoa(int(c.Port))}
	for _, f := range c.Fallbacks { // other hosts, and each again without TLS
		if port := strconv.Itoa(int(f.Port)); f.Host != hosts[len(hosts)-1] || port != ports[len(ports)-1] {
			hosts, ports = append(hosts, f.Host), append(ports, port)
		}
	}
	env := []string{
		"PGHOST=" + strings.Join(hosts, ","),
		"PGPORT=" + strings.Join(ports, ","),
		"PGUSER=" + c.User,
		"PGPASSWORD=" + c.Password,
		"PGDATABASE=" + c.Database,
		"PGAPPNAME=pgmill demo",
		"PGOPTIONS=" + strings.TrimSpace(c.RuntimeParams["options"]+" -c search_path="+schema),
	}
	for name, value := range dsnParameters(dsn) {
		if variable, ok := libpqNames[name]; ok && value != "" {
			env = append(env, variable+"="+value)
		}
	}
	return env, nil
}

// inDSN are variables that would win over what a DSN was made of.
func inDSN(variable string) bool {
	return strings.HasPrefix(variable, "PGSERVICE") || strings.HasPrefix(variable, "PGHOSTADDR=")
}

// dsnParameters are those of a DSN in either form.
func dsnParameters(dsn string) map[string]string {
	all := map[string]string{}
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
		for name, values := range u.Query() {
			all[name] = values[len(values)-1]
		}
		return all
	}
	for _, m := range keywordPair.FindAllStringSubmatch(dsn, -1) {
		all[m[1]] = m[2] + m[3]
	}
	return all
}
