package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform/client"
)

// refuse is an answer that is a refusal. Its detail never repeats what was sent; one that
// begins with a field says so among the faults, too.
func refuse(status int, code, detail string) *client.Problem {
	p := &client.Problem{Type: "urn:pgmill:" + code, Title: http.StatusText(status), Status: status, Detail: detail, Text: detail, Code: code}
	if m := ofField.FindStringSubmatch(detail); m != nil && (status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge) {
		p.Faults = []client.Fault{{Path: "/" + m[1], Message: m[2]}}
	}
	return p
}

var ofField = regexp.MustCompile(`^(?:invalid json: )?([a-z][a-z0-9_]*) ((?:must|is|too) .*)$`)

func badField(name, must string) *client.Problem {
	return refuse(http.StatusBadRequest, "invalid_field", name+" must be "+must)
}

// fail is the one place where an error becomes an answer.
func (s *Server) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	p := problemOf(err)
	if p.Status >= 500 && p.Code != "starting" && p.Code != "no_api_keys" {
		s.Log.Warn("request not answered", "route", c.Path(), "code", p.Code, "error", kindOf(err))
	}
	c.Response().Header().Set("X-Content-Type-Options", "nosniff")
	if p.Status == http.StatusServiceUnavailable {
		c.Response().Header().Set("Retry-After", "1")
	}
	body, _ := json.Marshal(p)
	if c.Request().Method == http.MethodHead {
		body = nil
	}
	_ = c.Blob(p.Status, "application/problem+json", body)
}

// kindOf is what the log says of an error: its text may hold what was sent.
func kindOf(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return "SQLSTATE " + pe.Code
	}
	return fmt.Sprintf("%T", err)
}

func problemOf(err error) *client.Problem {
	var p *client.Problem
	var pe *pgconn.PgError
	var he *echo.HTTPError
	var ne net.Error
	var ce *pgconn.ConnectError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &pe):
		return sqlProblem(pe)
	case errors.As(err, &he):
		code := strings.ReplaceAll(strings.ToLower(http.StatusText(he.Code)), " ", "_")
		return refuse(he.Code, code, strings.ReplaceAll(code, "_", " "))
	case errors.As(err, &ce), errors.As(err, &ne), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unreachable()
	}
	return refuse(http.StatusInternalServerError, "internal", "something went wrong here; the host's log has its kind")
}

func unreachable() *client.Problem {
	return refuse(http.StatusServiceUnavailable, "database_unreachable", "the database does not answer; try again")
}

// sqlProblem goes by what the database said. The texts of MI… are our own and name the
// field and what it may be.
func sqlProblem(pe *pgconn.PgError) *client.Problem {
	switch pe.Code {
	case "MI001", "MI003":
		return refuse(http.StatusBadRequest, "invalid_field", pe.Message)
	case "MI002":
		return refuse(http.StatusRequestEntityTooLarge, "too_large", pe.Message)
	case "MI004":
		return refuse(http.StatusConflict, "idempotency_conflict", pe.Message)
	case "MI101":
		return refuse(http.StatusConflict, "lease_lost", pe.Message)
	case "P0002":
		return notFound()
	case "22P05", "22021", "22P02", "22003", "22023", "54001":
		return refuse(http.StatusBadRequest, "invalid_json", "the body has text or numbers that the database cannot keep")
	case "40001", "40P01", "55P03":
		return refuse(http.StatusServiceUnavailable, "conflict", "another request was at the same rows; try again")
	case "42501":
		if pe.Message == "tenant access denied" {
			return refuse(http.StatusForbidden, "denied", pe.Message)
		}
		return refuse(http.StatusServiceUnavailable, "grant_missing", "the host's role may not become pgmill_api: grant pgmill_api to pgmill_runtime, or host migrate up")
	case "42883", "42P01", "3F000", "42703", "22000":
		return refuse(http.StatusServiceUnavailable, "not_migrated", "the database is not of this version: host migrate up")
	}
	if class := pe.Code[:2]; class == "57" || class == "08" || class == "53" || class == "28" {
		return unreachable()
	}
	return refuse(http.StatusInternalServerError, "internal", "the database refused it: SQLSTATE "+pe.Code)
}

func notFound() *client.Problem { return refuse(http.StatusNotFound, "not_found", "job not found") }
