package api

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform/client"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// maxSweep is how many dead letters one request handles.
const maxSweep = 1000

// listDead is GET /api/v1/dlq: the latest, as an array.
func (s *Server) listDead(c echo.Context) error {
	page, err := s.dead(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, page.Items)
}

// pageDead is GET /api/v1/dlq/page.
func (s *Server) pageDead(c echo.Context) error {
	page, err := s.dead(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, page)
}

func (s *Server) dead(c echo.Context) (page client.Page[client.DeadLetter], err error) {
	f, err := deadFilter(callerOf(c), client.DeadFilter{ReasonCode: c.QueryParam("reason_code"), Topic: c.QueryParam("topic"), Tenant: c.QueryParam("tenant"),
		CreatedAfter: c.QueryParam("created_after"), CreatedBefore: c.QueryParam("created_before")})
	if err = cmp.Or(err, f.cursor(c)); err != nil {
		return page, err
	}
	q, err := s.db(c)
	if err != nil {
		return page, err
	}
	n := limit(c, 100)
	records, err := q.APIListDeadLetters(c.Request().Context(), db.APIListDeadLettersParams{Filter: f.json(), Size: int32(n + 1)})
	if err != nil {
		return page, err
	}
	if len(records) > n {
		records = records[:n]
		var last struct {
			JobID  string `json:"job_id"`
			DiedAt int64  `json:"died_at"`
		}
		if err := json.Unmarshal(records[n-1], &last); err != nil {
			return page, err
		}
		page.NextCursor = cursorAfter(last.DiedAt, last.JobID)
	}
	page.Items, err = decode[client.DeadLetter](records)
	return page, err
}

func deadFilter(who caller, d client.DeadFilter) (filter, error) {
	f := filter{}
	if d.ReasonCode != "" {
		f["reason_code"] = d.ReasonCode
	}
	if d.Topic != "" {
		f["topic"] = d.Topic
	}
	return f, cmp.Or(f.tenant(who, d.Tenant), f.time("created_after", d.CreatedAfter, "after"), f.time("created_before", d.CreatedBefore, "before"))
}

// countDead is GET /api/v1/dlq/counts: how many died of what, the most first.
func (s *Server) countDead(c echo.Context) error {
	q, err := s.db(c)
	if err != nil {
		return err
	}
	rows, err := q.APICountDeadLetters(c.Request().Context())
	if err != nil {
		return err
	}
	rows = cut(c, rows)
	counts := make([]client.DeadCount, len(rows))
	for i, r := range rows {
		counts[i] = client.DeadCount(r)
	}
	return c.JSON(http.StatusOK, counts)
}

// sweepDead is POST /api/v1/dlq/retry and /delete: all that the body names, at most a
// thousand at once. Everything is named by all only.
func (s *Server) sweepDead(retry bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		var body client.DeadSweep
		if err := readStrict(c, &body); err != nil {
			return err
		}
		if body.DeadFilter == (client.DeadFilter{}) && !body.All {
			return refuse(http.StatusBadRequest, "invalid_field", "name a reason_code, topic, tenant, created_after or created_before, or say all")
		} else if body.Limit < 0 || body.Limit > maxSweep {
			return badField("limit", "0 to 1000")
		}
		f, err := deadFilter(callerOf(c), body.DeadFilter)
		if err != nil {
			return err
		}
		q, err := s.db(c)
		if err != nil {
			return err
		}
		n := cmp.Or(body.Limit, maxSweep)
		rows, err := q.APISweepDeadLetters(c.Request().Context(), db.APISweepDeadLettersParams{Filter: f.json(), Retry: retry, Size: int32(n)})
		if err != nil {
			return err
		}
		done := client.Swept{Done: []client.SweptJob{}}
		for _, r := range rows {
			if retry && r.RetriedAs == "" {
				done.Rejected = append(done.Rejected, r.JobID)
			} else {
				done.Done = append(done.Done, client.SweptJob(r))
			}
		}
		done.More = len(rows) == n && len(done.Done) > 0
		return c.JSON(http.StatusOK, done)
	}
}

// retryDead is POST /api/v1/dlq/{id}/retry; asked again it answers the same job, merged. One
// of whose unique_key there is a live job is rejected, and stays.
func (s *Server) retryDead(c echo.Context) error {
	q, err := s.db(c)
	if err != nil {
		return err
	}
	done, err := q.APIRetryDeadLetter(c.Request().Context(), c.Param("id"))
	switch {
	case err != nil && problemOf(err).Code == "not_found":
		return refuse(http.StatusNotFound, "not_found", "dlq entry not found")
	case err != nil:
		return err
	}
	tell(c, done.Outcome, done.Reason)
	return c.JSON(http.StatusOK, client.Retried{JobID: done.JobID})
}

// deleteDead is DELETE /api/v1/dlq/{id}; that there is none is what was wanted.
func (s *Server) deleteDead(c echo.Context) error {
	q, err := s.db(c)
	if err != nil {
		return err
	}
	if err := q.APIDeleteDeadLetter(c.Request().Context(), c.Param("id")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
