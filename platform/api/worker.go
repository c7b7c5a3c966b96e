package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/client"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// maxWait bounds how long a claim waits for jobs, in milliseconds.
const maxWait = 30_000

// claim is POST /api/v1/worker/claim. It looks again when the bell rings, and without one
// ever more seldom, up to a second.
func (s *Server) claim(c echo.Context) error {
	var body client.Claim
	if err := readStrict(c, &body); err != nil {
		return err
	}
	if body.WaitMs < 0 || body.WaitMs > maxWait {
		return badField("wait_ms", "0 to 30000")
	}
	p := db.APIClaimParams{Worker: body.Worker, Topics: body.Topics, N: 1, LeaseSecs: 60, Pools: body.Pools}
	if body.Labels != nil {
		p.Labels, _ = json.Marshal(body.Labels)
	}
	for _, n := range []struct {
		name string
		sent *int64
		into *int32
		most int64
	}{{"n", body.N, &p.N, 1000}, {"lease_secs", body.LeaseSecs, &p.LeaseSecs, 86400}} {
		if n.sent == nil {
			continue
		} else if *n.sent < 1 || *n.sent > n.most {
			return badField(n.name, "within its bounds: n 1 to 1000, lease_secs 1 to 86400")
		}
		*n.into = int32(*n.sent)
	}
	q, err := s.db(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	wait, cancel := context.WithTimeout(ctx, time.Duration(body.WaitMs)*time.Millisecond)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		rung := s.Bell.heard()
		rows, err := q.APIClaim(ctx, p)
		if err != nil {
			return err
		}
		if len(rows) > 0 && ctx.Err() != nil { // nobody reads the answer
			giveBack(context.WithoutCancel(ctx), q, rows)
			return nil
		}
		if len(rows) > 0 || !s.rest(wait, rung, pause) {
			return c.JSON(http.StatusOK, claimed(rows))
		}
	}
}

// rest waits for the bell or a while; false: that was all. A bell that rings and rings is
// followed at a measured pace.
func (s *Server) rest(ctx context.Context, rung <-chan struct{}, pause time.Duration) bool {
	var stopping <-chan struct{}
	if s.Stopping != nil {
		stopping = s.Stopping.Done()
	}
	look := time.NewTimer(pause)
	defer look.Stop()
	select {
	case <-rung:
		look.Reset(20 * time.Millisecond)
		rung = nil
	case <-look.C:
		return ctx.Err() == nil
	case <-stopping:
		return false
	case <-ctx.Done():
		return false
	}
	select {
	case <-look.C:
		return true
	case <-stopping:
	case <-ctx.Done():
	}
	return false
}

// giveBack releases what was claimed for somebody who has gone; what it misses comes back
// when its lease is over.
func giveBack(ctx context.Context, q *db.Queries, rows []db.APIClaimRow) {
	for _, r := range rows {
		_, _ = q.APIRelease(ctx, db.APIReleaseParams{ID: r.JobID, Token: r.Token})
	}
}

func claimed(rows []db.APIClaimRow) client.Claimed {
	got := client.Claimed{Jobs: make([]client.ClaimedJob, len(rows))}
	for i, r := range rows {
		got.Jobs[i] = client.ClaimedJob{JobID: r.JobID, Token: r.Token, Topic: r.Topic, Input: r.Input, Attempt: int(r.Attempt), DeadlineAt: r.DeadlineAt}
	}
	return got
}

// heartbeat is POST /api/v1/worker/heartbeat.
func (s *Server) heartbeat(c echo.Context) error {
	var body client.Heartbeat
	if err := readStrict(c, &body); err != nil {
		return err
	}
	if body.IDs == nil || len(body.IDs) != len(body.Tokens) || len(body.IDs) > 1000 {
		return badField("ids and tokens", "arrays of one length, at most 1000")
	}
	q, err := s.db(c)
	if err != nil {
		return err
	}
	rows, err := q.APIRenew(c.Request().Context(), db.APIRenewParams{Ids: body.IDs, Tokens: body.Tokens})
	if err != nil {
		return err
	}
	all := client.Renewed{Jobs: make([]client.RenewedJob, len(rows))}
	for i, r := range rows {
		all.Jobs[i] = client.RenewedJob(r)
	}
	return c.JSON(http.StatusOK, all)
}

// reported is a route that says something of one claimed job. One that says its result
// (complete, fail) may come too late, which is noted.
func (s *Server) reported(c echo.Context, result bool, say func(ctx context.Context, q *db.Queries, r client.Report) (state string, err error)) error {
	var body client.Report
	if err := readStrict(c, &body); err != nil {
		return err
	}
	if body.ID == "" || body.Token == "" {
		return badField("id and token", "those of the claim")
	}
	q, err := s.db(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	state, err := say(ctx, q, body)
	if result && err != nil && problemOf(err).Code == string(platform.ReasonLeaseLost) {
		s.noteLate(ctx, q, body)
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, client.Reported{JobID: body.ID, State: state})
}

// noteLate outlasts the request and does not change its answer, as noteRejected.
func (s *Server) noteLate(ctx context.Context, q *db.Queries, r client.Report) {
	if s.Late != nil {
		s.Late()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := q.APILate(ctx, db.APILateParams{ID: r.ID, Token: r.Token}); err != nil {
		s.Log.Warn("a late result was not noted", "error", kindOf(err))
	}
}

// progress is POST /api/v1/worker/progress.
func (s *Server) progress(c echo.Context) error {
	return s.reported(c, false, func(ctx context.Context, q *db.Queries, r client.Report) (string, error) {
		p := db.APIProgressParams{ID: r.ID, Token: r.Token}
		if r.Percent == nil || *r.Percent < 0 || *r.Percent > 100 {
			return "", badField("percent", "0 to 100")
		}
		p.Percent = int32(*r.Percent)
		if r.Message != "" {
			p.Message = &r.Message
		}
		return "RUNNING", q.APIProgress(ctx, p)
	})
}

// complete is POST /api/v1/worker/complete. An output that is not of the step's schema is
// refused, and the worker may complete again or fail.
func (s *Server) complete(c echo.Context) error {
	return s.reported(c, true, func(ctx context.Context, q *db.Queries, r client.Report) (string, error) {
		if r.Output == nil {
			r.Output = json.RawMessage("{}")
		}
		if err := s.schemas.output(ctx, q, r); err != nil {
			return "", err
		}
		return q.APIComplete(ctx, db.APICompleteParams{ID: r.ID, Token: r.Token, Output: r.Output})
	})
}

// failJob is POST /api/v1/worker/fail.
func (s *Server) failJob(c echo.Context) error {
	return s.reported(c, true, func(ctx context.Context, q *db.Queries, r client.Report) (string, error) {
		return q.APIFail(ctx, db.APIFailParams{ID: r.ID, Token: r.Token, Reason: r.Reason, Retry: r.Retry == nil || *r.Retry})
	})
}

// release is POST /api/v1/worker/release.
func (s *Server) release(c echo.Context) error {
	return s.reported(c, false, func(ctx context.Context, q *db.Queries, r client.Report) (string, error) {
		return q.APIRelease(ctx, db.APIReleaseParams{ID: r.ID, Token: r.Token})
	})
}
