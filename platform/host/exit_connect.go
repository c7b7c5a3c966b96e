package host

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// noConnection is what a person is told of a connection that was not made, and what
// to look at. The driver's own text names every try, with and without TLS.
func noConnection(err *pgconn.ConnectError) string {
	c := err.Config
	at := c.Host
	if !strings.HasPrefix(at, "/") { // a folder of sockets
		at = net.JoinHostPort(at, strconv.Itoa(int(c.Port)))
	}
	const look = "DATABASE_URL (or --database-url)"
	var pe *pgconn.PgError
	var name *net.DNSError
	switch {
	case errors.As(err, &pe) && strings.HasPrefix(stateOf(pe), "28"):
		return fmt.Sprintf("%s at %s: check the user and the password in %s", pe.Message, at, look)
	case errors.As(err, &pe) && stateOf(pe) == "3D000":
		return fmt.Sprintf("%s at %s: create it (`createdb %s`), or correct %s", pe.Message, at, c.Database, look)
	case errors.As(err, &pe) && exitCode(pe) == exitUnreachable:
		return fmt.Sprintf("database unreachable: %s says: %s (SQLSTATE %s)", at, pe.Message, pe.Code)
	case errors.As(err, &pe):
		return fmt.Sprintf("%s refuses the connection: %s (SQLSTATE %s): correct %s", at, pe.Message, pe.Code, look)
	case noTLS(err):
		return fmt.Sprintf("%s has no TLS, which sslmode asks for: set it up there, or check %s", at, look)
	case errors.As(err, &name):
		return fmt.Sprintf("database unreachable: no host %s: check the host in %s", name.Name, look)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fmt.Sprintf("database unreachable: connection refused at %s: start Postgres there, or correct %s; without it the profile local starts a private one", at, look)
	}
	return fmt.Sprintf("database unreachable: %v: check %s", err, look)
}

// stateOf is what pe says. PgBouncer has one SQLSTATE, of a broken protocol, for
// whatever it refuses: what that is, is in the message only (as of 1.18 to 1.25).
func stateOf(pe *pgconn.PgError) string {
	if pe.Code != "08P01" {
		return pe.Code
	}
	for _, of := range []struct{ says, state string }{
		{"authentication failed", "28P01"}, // "password …", "SASL …"
		{"no such user", "28000"},
		{"no such database", "3D000"},
		{"does not exist", "3D000"}, // the server's own word
		{"unsupported startup parameter", "42704"},
	} {
		if strings.Contains(pe.Message, of.says) {
			return of.state
		}
	}
	return pe.Code
}
