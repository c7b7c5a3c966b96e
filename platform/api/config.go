package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/client"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// getDocument is GET /api/v1/config/pools and timeouts.
func (s *Server) getDocument(name string) echo.HandlerFunc {
	return func(c echo.Context) error {
		q, err := s.db(c)
		if err != nil {
			return err
		}
		record, err := q.APIGetDocument(c.Request().Context(), name)
		if err != nil {
			return err
		}
		return c.JSONBlob(http.StatusOK, record)
	}
}

// setDocument is PUT of the same; the body is the document. One with faults is refused as
// a whole, which the audit and the next GET tell (C27).
func (s *Server) setDocument(name string) echo.HandlerFunc {
	return func(c echo.Context) error {
		body, err := readJSON(c)
		if err != nil {
			return err
		}
		q, err := s.db(c)
		if err != nil {
			return err
		}
		p := db.APISetDocumentParams{Name: name, Document: body}
		if reason := c.QueryParam("reason"); reason != "" {
			p.Reason = &reason
		}
		ctx := c.Request().Context()
		version, err := q.APISetDocument(ctx, p)
		if faults := faultsOf(err); faults != nil {
			s.noteRejected(ctx, q, name)
			refused := refuse(http.StatusUnprocessableEntity, string(platform.ReasonSchema), "the document of "+name+" is not as it must be; the one before still counts")
			refused.Faults = faults
			return refused
		} else if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, client.DocumentSet{Name: name, Version: int(version)})
	}
}

// faultsOf is what the database found wrong with a document; nil: the error is another.
func faultsOf(err error) (faults []client.Fault) {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Code != "MI001" || json.Unmarshal([]byte(pe.Detail), &faults) != nil {
		return nil
	}
	return faults
}

// noteRejected outlasts the request, whose sender may not wait for it. Without the note
// the refusal stands, so that it is not answered by another error.
func (s *Server) noteRejected(ctx context.Context, q *db.Queries, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := q.APINoteRejected(ctx, name); err != nil {
		s.Log.Warn("a refused change of the configuration is not in the audit", "document", name, "error", kindOf(err))
	}
}
