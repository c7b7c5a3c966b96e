package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client calls one host. The zero value calls http://127.0.0.1:8081 without a key.
type Client struct {
	URL  string       // "" means http://127.0.0.1:8081
	Key  string       // sent as X-API-Key
	HTTP *http.Client // nil means one that gives up after 40 s
}

var standard = &http.Client{Timeout: 40 * time.Second}

// most is how much of an answer is read.
const most = 64 << 20

// call sends body, if any, and reads the answer into out, if any. A refusal is a *Problem.
func (c *Client) call(ctx context.Context, method, path string, body, out any) error {
	_, err := c.ask(ctx, method, path, body, out)
	return err
}

// ask is call with the header of the answer.
func (c *Client) ask(ctx context.Context, method, path string, body, out any) (http.Header, error) {
	res, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if out == nil {
		return res.Header, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("%s %s: the answer is not the API's: %w", method, path, err)
	}
	return res.Header, nil
}

// send is call up to where the answer's body begins, which the caller closes.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(cmp.Or(c.URL, "http://127.0.0.1:8081"), "/")+path, content)
	if err != nil {
		return nil, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Key != "" {
		req.Header.Set("X-API-Key", c.Key)
	}
	res, err := cmp.Or(c.HTTP, standard).Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil, problem(res.StatusCode, answer)
}

func problem(status int, answer []byte) error {
	p := &Problem{}
	if json.Unmarshal(answer, p) != nil || p.Code == "" {
		p = &Problem{Detail: http.StatusText(status), Code: "http_" + strconv.Itoa(status)}
	}
	p.Status = status
	return p
}

// Submit makes a job.
func (c *Client) Submit(ctx context.Context, s Submit) (out Submitted, err error) {
	header, err := c.ask(ctx, http.MethodPost, "/api/v1/jobs", s, &out)
	out.Outcome, out.Reason, out.Warning = header.Get("X-Outcome"), header.Get("X-Reason"), header.Get("X-Warning")
	return out, err
}

// Job is one job with its input and output.
func (c *Client) Job(ctx context.Context, id string) (out JobDetail, err error) {
	return out, c.call(ctx, http.MethodGet, "/api/v1/jobs/"+url.PathEscape(id), nil, &out)
}

// Output is what a job answered, whatever its size: JSON, null while there is nothing.
// The caller closes it.
func (c *Client) Output(ctx context.Context, id string) (io.ReadCloser, error) {
	res, err := c.send(ctx, http.MethodGet, "/api/v1/jobs/"+url.PathEscape(id)+"/output", nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Jobs is a page of jobs, the last changed first.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (out Page[Job], err error) {
	q := query("state", f.State, "topic", f.Topic, "tenant", f.Tenant, "team", f.Team, "trace_id", f.TraceID,
		"updated_after", f.UpdatedAfter, "updated_before", f.UpdatedBefore, "cursor", f.Cursor, "limit", number(f.Limit))
	return out, c.call(ctx, http.MethodGet, "/api/v1/jobs"+q, nil, &out)
}

// Trace is the jobs of one trace, in the order of their making.
func (c *Client) Trace(ctx context.Context, id string) (out []Job, err error) {
	return out, c.call(ctx, http.MethodGet, "/api/v1/traces/"+url.PathEscape(id), nil, &out)
}

// Cancel ends a job; reason is a code, "" means cancelled.
func (c *Client) Cancel(ctx context.Context, id, reason string) (out Cancelled, err error) {
	var body any
	if reason != "" {
		body = map[string]string{"reason": reason}
	}
	return out, c.call(ctx, http.MethodPost, "/api/v1/jobs/"+url.PathEscape(id)+"/cancel", body, &out)
}

// DeadLetters is a page of them, the latest first.
func (c *Client) DeadLetters(ctx context.Context, f DeadFilter, limit int, cursor string) (out Page[DeadLetter], err error) {
	q := query("reason_code", f.ReasonCode, "topic", f.Topic, "tenant", f.Tenant, "created_after", f.CreatedAfter,
		"created_before", f.CreatedBefore, "limit", number(limit), "cursor", cursor)
	return out, c.call(ctx, http.MethodGet, "/api/v1/dlq/page"+q, nil, &out)
}

// DeadCounts says how many died of what.
func (c *Client) DeadCounts(ctx context.Context) (out []DeadCount, err error) {
	return out, c.call(ctx, http.MethodGet, "/api/v1/dlq/counts", nil, &out)
}

// RetryDead submits one dead letter again.
func (c *Client) RetryDead(ctx context.Context, id string) (out Retried, err error) {
	header, err := c.ask(ctx, http.MethodPost, "/api/v1/dlq/"+url.PathEscape(id)+"/retry", nil, &out)
	out.Outcome, out.Reason = header.Get("X-Outcome"), header.Get("X-Reason")
	return out, err
}

// DeleteDead forgets one dead letter; the job stays as it ended.
func (c *Client) DeleteDead(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/dlq/"+url.PathEscape(id), nil, nil)
}

// SweepDead retries or deletes many.
func (c *Client) SweepDead(ctx context.Context, retry bool, s DeadSweep) (out Swept, err error) {
	path := "/api/v1/dlq/delete"
	if retry {
		path = "/api/v1/dlq/retry"
	}
	return out, c.call(ctx, http.MethodPost, path, s, &out)
}

// Claim takes jobs for a worker.
func (c *Client) Claim(ctx context.Context, claim Claim) (out Claimed, err error) {
	return out, c.call(ctx, http.MethodPost, "/api/v1/worker/claim", claim, &out)
}

// Workers is a page of the hosts and workers that live, by their id.
func (c *Client) Workers(ctx context.Context, limit int, cursor string) (out Page[Worker], err error) {
	return out, c.call(ctx, http.MethodGet, "/api/v1/workers/page"+query("limit", number(limit), "cursor", cursor), nil, &out)
}

// Heartbeat renews leases.
func (c *Client) Heartbeat(ctx context.Context, h Heartbeat) (out Renewed, err error) {
	return out, c.call(ctx, http.MethodPost, "/api/v1/worker/heartbeat", h, &out)
}

// Report sends progress, complete, fail or release.
func (c *Client) Report(ctx context.Context, what string, r Report) (out Reported, err error) {
	return out, c.call(ctx, http.MethodPost, "/api/v1/worker/"+what, r, &out)
}

// Document is what the configuration says of pools or timeouts.
func (c *Client) Document(ctx context.Context, name string) (out Document, err error) {
	return out, c.call(ctx, http.MethodGet, "/api/v1/config/"+url.PathEscape(name), nil, &out)
}

// SetDocument replaces pools or timeouts as a whole; a document with faults changes nothing,
// and the *Problem has each of them. reason is a code, "" means none.
func (c *Client) SetDocument(ctx context.Context, name string, document json.RawMessage, reason string) (out DocumentSet, err error) {
	return out, c.call(ctx, http.MethodPut, "/api/v1/config/"+url.PathEscape(name)+query("reason", reason), document, &out)
}

// query is ?name=value of what is not empty.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
