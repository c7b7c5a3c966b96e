package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/pgmill/pgmill/platform/client"
)

// The exit codes; they are the host's.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotFound    = 5
	exitConflict    = 6
	exitDenied      = 7
	exitSignal      = 130
)

// usage is a wrong command line.
type usage struct{ error }

// errEnded is that a job which was watched did not end well.
var errEnded = errors.New("the job did not succeed")

// report says what went wrong and answers the exit code.
func (p *program) report(err error) int {
	if err == nil {
		return exitOK
	}
	if !p.understood {
		err = usage{err}
	}
	code := exitCode(err)
	var said *client.Problem
	if code == exitUnreachable && !errors.As(err, &said) { // nobody there to say why
		err = errors.New("no answer from the host: is `host serve` running, and PGMILL_URL its address?")
	}
	if !errors.Is(err, errEnded) && code != exitSignal {
		fmt.Fprintln(p.stderr, "pgmill:", err)
	}
	return code
}

func exitCode(err error) int {
	var wrong usage
	var refused *client.Problem
	var network net.Error
	var sent *url.Error
	switch {
	case errors.As(err, &wrong):
		return exitUsage
	case errors.As(err, &refused):
		return statusCode(refused.Status)
	case errors.Is(err, context.Canceled):
		return exitSignal
	case errors.As(err, &network), errors.As(err, &sent), errors.Is(err, io.ErrUnexpectedEOF):
		return exitUnreachable
	}
	return exitFailed
}

func statusCode(status int) int {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed:
		return exitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitDenied
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusConflict:
		return exitConflict
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitUnreachable
	}
	return exitFailed
}

func readFile(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, usage{err}
	}
	return b, nil
}
