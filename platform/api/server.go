package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
)

// Server answers /api/v1. Fill in the fields; those without a remark are needed.
type Server struct {
	Pool     func() *pgxpool.Pool // nil while there is no database yet
	Keys     []Key                // none: see Open
	Open     bool                 // without keys whoever reaches us may do anything; else nobody may
	Log      *slog.Logger
	Bell     *Bell           // rung when there may be jobs; nil: looked for only
	Stopping context.Context // its end sends those who wait home; nil: never

	Late        func()        // hears of each result that came too late; nil: nobody does
	BodyTimeout time.Duration // how long a request's body may take to arrive; 0 means 15 s

	schemas schemas
}

// right is what a route asks of a key's role.
type right string

const (
	read    right = "read"
	submit  right = "submit jobs"
	operate right = "cancel, retry and delete"
	work    right = "do jobs"

	configure right = "see and change the configuration"
	oversee   right = "see who does jobs"
)

// roles are what a key may be.
var roles = map[string][]right{
	"admin":    {read, submit, operate, work, configure, oversee},
	"operator": {read, submit, operate},
	"approver": {read},
	"viewer":   {read},
	"worker":   {work},
}

// Mount adds the routes.
func (s *Server) Mount(e *echo.Echo) {
	e.HTTPErrorHandler = s.fail
	e.Use(s.onlyAPI(s.hurry), s.onlyAPI(s.origin), s.onlyAPI(s.authenticate))
	for _, r := range []struct {
		method, path string
		right        right
		handle       echo.HandlerFunc
	}{
		{http.MethodPost, "/api/v1/jobs", submit, s.submitJob},
		{http.MethodGet, "/api/v1/jobs", read, s.listJobs},
		{http.MethodGet, "/api/v1/jobs/:id", read, s.getJob},
		{http.MethodGet, "/api/v1/jobs/:id/output", read, s.output},
		{http.MethodGet, "/api/v1/jobs/:id/decisions", read, s.decisions},
		{http.MethodPost, "/api/v1/jobs/:id/cancel", operate, s.cancelJob},
		{http.MethodGet, "/api/v1/traces/:id", read, s.trace},

		{http.MethodGet, "/api/v1/dlq", read, s.listDead},
		{http.MethodGet, "/api/v1/dlq/page", read, s.pageDead},
		{http.MethodGet, "/api/v1/dlq/counts", read, s.countDead},
		{http.MethodPost, "/api/v1/dlq/retry", operate, s.sweepDead(true)},
		{http.MethodPost, "/api/v1/dlq/delete", operate, s.sweepDead(false)},
		{http.MethodPost, "/api/v1/dlq/:id/retry", operate, s.retryDead},
		{http.MethodDelete, "/api/v1/dlq/:id", operate, s.deleteDead},

		{http.MethodGet, "/api/v1/config/pools", configure, s.getDocument("pools")},
		{http.MethodPut, "/api/v1/config/pools", configure, s.setDocument("pools")},
		{http.MethodGet, "/api/v1/config/timeouts", configure, s.getDocument("timeouts")},
		{http.MethodPut, "/api/v1/config/timeouts", configure, s.setDocument("timeouts")},

		{http.MethodGet, "/api/v1/workers", oversee, s.listWorkers},
		{http.MethodGet, "/api/v1/workers/page", oversee, s.pageWorkers},

		{http.MethodPost, "/api/v1/worker/claim", work, s.claim},
		{http.MethodPost, "/api/v1/worker/heartbeat", work, s.heartbeat},
		{http.MethodPost, "/api/v1/worker/progress", work, s.progress},
		{http.MethodPost, "/api/v1/worker/complete", work, s.complete},
		{http.MethodPost, "/api/v1/worker/fail", work, s.failJob},
		{http.MethodPost, "/api/v1/worker/release", work, s.release},
	} {
		handle := needs(r.right, r.handle)
		e.Add(r.method, r.path, handle)
		if r.method == http.MethodGet {
			e.Add(http.MethodHead, r.path, handle)
		}
	}
}

// onlyAPI keeps a middleware off the probes. It runs for what is not found too: without a
// key nobody learns which routes there are.
func (s *Server) onlyAPI(m echo.MiddlewareFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		inside := m(next)
		return func(c echo.Context) error {
			if strings.HasPrefix(c.Request().URL.Path, "/api/") {
				return inside(c)
			}
			return next(c)
		}
	}
}

func needs(r right, next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if who := callerOf(c); !who.may(r) {
			return refuse(http.StatusForbidden, "denied", "the role "+who.Role+" may not "+string(r))
		}
		return next(c)
	}
}
