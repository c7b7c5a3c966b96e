package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform/client"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// listJobs is GET /api/v1/jobs.
func (s *Server) listJobs(c echo.Context) error {
	f := filter{}
	if state := c.QueryParam("state"); state != "" {
		f["state"] = strings.ToUpper(state)
	}
	f.text(c, "topic", "topic")
	f.text(c, "team", "team")
	f.text(c, "trace_id", "trace_id")
	err := cmp.Or(f.tenant(callerOf(c), c.QueryParam("tenant")), f.time("updated_after", c.QueryParam("updated_after"), "after"),
		f.time("updated_before", c.QueryParam("updated_before"), "before"), f.cursor(c))
	if err != nil {
		return err
	}
	q, err := s.db(c)
	if err != nil {
		return err
	}
	n := limit(c, 50)
	records, err := q.APIListJobs(c.Request().Context(), db.APIListJobsParams{Filter: f.json(), Size: int32(n + 1)})
	if err != nil {
		return err
	}
	page := client.Page[client.Job]{}
	if page.Items, err = decode[client.Job](records); err != nil {
		return err
	}
	if len(page.Items) > n {
		page.Items = page.Items[:n]
		page.NextCursor = cursorAfter(page.Items[n-1].UpdatedAt, page.Items[n-1].ID)
	}
	return c.JSON(http.StatusOK, page)
}

// trace is GET /api/v1/traces/{id}: an unknown trace has no jobs.
func (s *Server) trace(c echo.Context) error {
	q, err := s.db(c)
	if err != nil {
		return err
	}
	records, err := q.APITrace(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	jobs, err := decode[client.Job](cut(c, records))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jobs)
}

// getJob is GET /api/v1/jobs/{id}.
func (s *Server) getJob(c echo.Context) error {
	q, err := s.db(c)
	if err != nil {
		return err
	}
	record, err := q.APIGetJob(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	var d struct {
		client.JobDetail
		Meta client.Meta `json:"meta"`
	}
	if err := json.Unmarshal(record, &d); err != nil {
		return err
	}
	if d.ID == "" {
		return notFound()
	}
	fillIn(&d.JobDetail, d.Meta)
	return c.JSON(http.StatusOK, d.JobDetail)
}

// decisions is GET /api/v1/jobs/{id}/decisions: the verdict on the job, if it was asked for
// by now. An unknown job has none.
func (s *Server) decisions(c echo.Context) error {
	q, err := s.db(c)
	if err != nil {
		return err
	}
	record, err := q.APIGetJob(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	var d client.JobDetail
	if err := json.Unmarshal(record, &d); err != nil {
		return err
	}
	all := []client.Decision{}
	if d.SafetyDecision != "" {
		all = append(all, client.Decision{Decision: d.SafetyDecision, RuleID: d.SafetyRuleID, PolicySnapshot: d.SafetySnapshot, CheckedAt: cmp.Or(d.StartedAt, d.UpdatedAt)})
	}
	return c.JSON(http.StatusOK, all)
}

// fillIn adds what follows from the record: the pointers, the context that was
// sent and, of a job that failed, its result.
func fillIn(d *client.JobDetail, m client.Meta) {
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	if d.SafetyReason == "" && d.State == "DENIED" {
		d.SafetyReason = d.Reason
	}
	var sent struct {
		Prompt  string          `json:"prompt"`
		Context json.RawMessage `json:"context,omitempty"`
	}
	_ = json.Unmarshal(d.Input, &sent)   // an input of another form has no prompt
	d.ContextPtr = "redis://ctx:" + d.ID // the name that clients of this format know it by
	d.Context, _ = json.Marshal(struct {
		AdapterID string          `json:"adapter_id"`
		CreatedAt string          `json:"created_at"`
		Priority  string          `json:"priority"`
		Prompt    string          `json:"prompt"`
		TenantID  string          `json:"tenant_id"`
		Topic     string          `json:"topic"`
		Context   json.RawMessage `json:"context,omitempty"`
	}{m.AdapterID, micros(d.CreatedAt), d.Priority, sent.Prompt, d.Tenant, d.Topic, sent.Context})
	switch d.State {
	case "SUCCEEDED":
		d.Result = d.Output
	case "FAILED", "TIMEOUT", "DENIED":
		d.ErrorMessage, d.ErrorCode, d.ErrorStatus, d.LastState = d.Reason, d.Reason, "JOB_STATUS_"+d.State, d.State
		d.Result, _ = json.Marshal(map[string]any{"job_id": d.ID, "status": d.ErrorStatus, "error": map[string]string{"message": d.Reason},
			"processed_by": cmp.Or(d.Worker, "pgmill"), "completed_at": micros(d.FinishedAt)})
	default:
		return
	}
	d.ResultPtr = cmp.Or(d.OutputPtr, "redis://res:"+d.ID)
}

func micros(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339) }

// cancelJob is POST /api/v1/jobs/{id}/cancel. A body may give a reason code.
func (s *Server) cancelJob(c echo.Context) error {
	p := db.APICancelParams{ID: c.Param("id")}
	var body struct {
		Reason *string `json:"reason"`
	}
	if c.Request().ContentLength != 0 {
		if _, err := readBody(c, &body); err != nil {
			return err
		}
		p.Reason = body.Reason
	}
	q, err := s.db(c)
	if err != nil {
		return err
	}
	state, err := q.APICancel(c.Request().Context(), p)
	if err != nil {
		return err
	}
	done := client.Cancelled{ID: p.ID, State: state}
	if state != "CANCELLED" {
		done.Reason = "job already terminal"
	}
	return c.JSON(http.StatusOK, done)
}
