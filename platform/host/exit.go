package host

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform/pg"
)

// The exit codes of every command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotMigrated = 4
	exitNotFound    = 5
	exitConflict    = 6
	exitDenied      = 7
	exitSignal      = 130
)

var (
	errUsage   = errors.New("usage")            // wrapped by what the command line did wrong
	errStopped = errors.New("stopped at once")  // a second signal
	errAborted = errors.New("nothing was done") // the person said no
	errPending = errors.New("migrations pending: run `host migrate up`")
)

// usageError is a wrong command line.
type usageError struct{ error }

func (usageError) Is(target error) bool { return target == errUsage }

// notFound is a name that the command looked for and did not find.
type notFound string

func (n notFound) Error() string { return string(n) }

// exitCode is the one place that turns an error into the code of its class.
func exitCode(err error) int {
	var pe *pgconn.PgError
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errStopped):
		return exitSignal
	case errors.Is(err, errBroken):
		return exitFailed
	case errors.Is(err, errWarnings):
		return exitWarnings
	case errors.Is(err, ErrConfig), errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, pg.ErrNotMigrated), errors.Is(err, pg.ErrGrantMissing), errors.Is(err, errPending):
		return exitNotMigrated
	case errors.Is(err, pg.ErrBusy), errors.Is(err, errNotDemos), errors.As(err, new(conflict)):
		return exitConflict
	case errors.As(err, new(notFound)):
		return exitNotFound
	case errors.Is(err, pg.ErrNoBinaries):
		return exitUnreachable
	case errors.As(err, &pe):
		return sqlstateCode(pe)
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	}
	return exitFailed
}

// sqlstateCode goes by what the database said: MI… are our own (sql/functions).
func sqlstateCode(pe *pgconn.PgError) int {
	state := stateOf(pe)
	switch state {
	case "MI404":
		return exitNotFound
	case "MI409", "MI101", "55P03", "40001", "40P01":
		return exitConflict
	case "MI001", "MI002", "MI003":
		return exitUsage
	case "42501":
		return exitDenied
	case "3D000", "53300", "57P01", "57P02", "57P03":
		return exitUnreachable
	}
	switch {
	case missing(pe) && ours.MatchString(pe.Message):
		return exitNotMigrated
	case strings.HasPrefix(state, "28"): // wrong user or password
		return exitDenied
	case strings.HasPrefix(state, "08"):
		return exitUnreachable
	}
	return exitFailed
}

// missing reports whether something that a statement names is not there: a table, a
// function, a schema or a column.
func missing(pe *pgconn.PgError) bool {
	return slices.Contains([]string{"42P01", "42883", "3F000", "42703"}, pe.Code)
}

// ours finds the name of one of our schemas in what the database said is missing. A
// handler's own table is not mended by a migration of ours.
var ours = regexp.MustCompile(`(^|[^\pL\d_])(pg)?mill[."]`)

// errorLines is what a person is told, one line a fault. Our own refusals are told
// without the SQL around them.
func errorLines(err error) []string {
	if isJoin(err) {
		var lines []string
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			lines = append(lines, errorLines(e)...)
		}
		return lines
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) && strings.HasPrefix(pe.Code, "MI") {
		return []string{pe.Message}
	}
	if errors.As(err, &pe) && exitCode(err) == exitNotMigrated {
		return []string{pg.ErrNotMigrated.Error()}
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return []string{oneLine(noConnection(connect))}
	}
	return []string{oneLine(errorText(err))}
}

// isJoin tells errors.Join's result, one line an error, from fmt.Errorf's.
func isJoin(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return false
	}
	var parts []string
	for _, e := range joined.Unwrap() {
		parts = append(parts, e.Error())
	}
	return err.Error() == strings.Join(parts, "\n")
}
