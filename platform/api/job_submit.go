package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform/client"
	"github.com/pgmill/pgmill/platform/internal/db"
	"github.com/pgmill/pgmill/platform/policy"
)

// submitJob is POST /api/v1/jobs. Names that are not known are passed over, as clients of
// this format expect; X-Ignored-Fields says which.
func (s *Server) submitJob(c echo.Context) error {
	var body client.Submit
	ignored, err := readBody(c, &body)
	if err != nil {
		return err
	}
	item, err := s.item(c, body, &ignored)
	if err != nil {
		return err
	}
	q, err := s.db(c)
	if err != nil {
		return err
	}
	ctx, topic := c.Request().Context(), item["topic"].(string)
	declared, err := s.schemas.input(ctx, q, topic, item["input"].(json.RawMessage))
	if err != nil {
		return err
	}
	raw, err := json.Marshal(item)
	if err != nil {
		return err
	}
	done, err := q.APISubmit(ctx, raw)
	if err != nil {
		return err
	}
	tell(c, done.Outcome, done.Reason)
	if len(ignored) > 0 {
		c.Response().Header().Set("X-Ignored-Fields", strings.Join(ignored[:min(len(ignored), 20)], ", "))
	}
	if !declared {
		known, err := q.APIKnownTopics(ctx, db.APIKnownTopicsParams{Topic: topic, Scope: item["scope"].(string)})
		if err != nil {
			s.Log.Warn("no answer to who knows a topic; its job is submitted", "topic", topic, "error", err)
		} else if !slices.Contains(known, topic) {
			c.Response().Header().Set("X-Warning", unknownTopic(topic, known))
		}
	}
	return c.JSON(http.StatusOK, client.Submitted{JobID: done.JobID, TraceID: done.TraceID})
}

// tell says in the header what became of a submit: the body has no place for it.
func tell(c echo.Context, outcome, reason string) {
	c.Response().Header().Set("X-Outcome", outcome)
	if reason != "" {
		c.Response().Header().Set("X-Reason", reason)
	}
}

// unknownTopic is what a person is told who may have mistyped a topic.
func unknownTopic(topic string, known []string) string {
	meant := ""
	if near := policy.Nearest(topic, known, 1+len(topic)/6); near != "" {
		meant = "; did you mean " + near + "?"
	}
	return "no host or worker knows the topic " + topic + ": the job waits until one does" + meant
}

// item is the job as mill.submit_jobs takes it, which checks the rest.
func (s *Server) item(c echo.Context, b client.Submit, ignored *[]string) (map[string]any, error) {
	if err := checkSubmit(b); err != nil {
		return nil, err
	}
	who := callerOf(c)
	scope, err := who.scopeFor(cmp.Or(b.OrgID, b.TenantID))
	if err != nil {
		return nil, err
	}
	if b.IdempotencyKey, err = idempotencyKey(c, b.IdempotencyKey); err != nil {
		return nil, err
	}
	if b.Priority != "" && b.Priority != "critical" && b.Priority != "interactive" && b.Priority != "batch" {
		b.Priority = ""
		*ignored = append(*ignored, "priority")
	}
	b.PrincipalID = cmp.Or(b.PrincipalID, c.Request().Header.Get("X-Principal-Id"))
	b.ActorID = cmp.Or(b.ActorID, b.PrincipalID)
	b.PreferredPool = cmp.Or(b.PreferredPool, b.Labels["preferred_pool"])
	b.PreferredWorker = cmp.Or(b.PreferredWorker, b.Labels["preferred_worker_id"])
	for k, v := range b.Labels {
		if place, ok := strings.CutPrefix(k, "place."); ok {
			if b.Placement == nil {
				b.Placement = map[string]string{}
			}
			b.Placement[place] = v
		}
	}
	item := map[string]any{"topic": cmp.Or(b.Topic, "job.default"), "scope": scope, "input": input(b)}
	for name, v := range map[string]any{
		"priority": b.Priority, "idempotency_key": b.IdempotencyKey, "labels": b.Labels, "placement": b.Placement, "requires": b.Requires, "trace_id": b.TraceID,
		"delay_ms": b.DelayMs, "run_at": b.RunAt, "deadline_ms": b.DeadlineMs, "max_runtime_ms": b.MaxRuntimeMs, "max_queue_wait_ms": b.MaxQueueWaitMs,
		"max_attempts": b.MaxAttempts, "cost": b.Cost, "key": b.Key, "unique_key": b.UniqueKey, "debounce_ms": b.DebounceMs,
		"preferred_pool": b.PreferredPool, "preferred_worker": b.PreferredWorker,
	} {
		if given(v) {
			item[name] = v
		}
	}
	meta := struct {
		client.Meta
		IdempotencyKey string `json:"idempotency_key,omitempty"`
	}{b.Meta, b.IdempotencyKey}
	if !reflect.ValueOf(meta).IsZero() {
		item["meta"] = meta
	}
	return item, nil
}

// given tells what was sent from zero values; a 0 that was sent is behind a pointer.
func given(v any) bool {
	switch v := v.(type) {
	case string:
		return v != ""
	case *int64:
		return v != nil
	default:
		return reflect.ValueOf(v).Len() > 0
	}
}

// input is what the step gets, byte for byte what was sent.
func input(b client.Submit) json.RawMessage {
	if b.Input != nil {
		return b.Input
	}
	raw, _ := json.Marshal(struct {
		Prompt  string          `json:"prompt"`
		Context json.RawMessage `json:"context,omitempty"`
	}{*b.Prompt, b.Context})
	return raw
}

// idempotencyKey is the body's, the header's or the query's: they may not differ.
func idempotencyKey(c echo.Context, body string) (string, error) {
	key := body
	h := c.Request().Header
	for _, other := range []string{h.Get("Idempotency-Key"), h.Get("X-Idempotency-Key"), c.QueryParam("idempotency_key")} {
		if other != "" && key != "" && other != key {
			return "", badField("idempotency_key", "the same in body, header and query")
		}
		key = cmp.Or(key, other)
	}
	return key, nil
}

// checkSubmit is what the database does not check.
func checkSubmit(b client.Submit) error {
	wrong := func(detail string) error { return refuse(http.StatusBadRequest, "invalid_field", detail) }
	switch {
	case b.Input == nil && (b.Prompt == nil || *b.Prompt == ""):
		return wrong("prompt is required")
	case b.Input != nil && (b.Prompt != nil || b.Context != nil):
		return wrong("input must come without prompt and context: it is what the step gets")
	case b.Prompt != nil && utf8.RuneCountInString(*b.Prompt) > 100_000:
		return wrong("prompt too long (>100000 chars)")
	case b.Topic != "" && !strings.HasPrefix(b.Topic, "job."):
		return wrong("topic must start with job.")
	case b.MaxInputTokens < 0 || b.MaxOutputTokens < 0 || b.MaxTotalTokens < 0:
		return wrong("token limits must be non-negative")
	case b.DeadlineMs != nil && *b.DeadlineMs < 0:
		return wrong("deadline_ms must be non-negative")
	case b.ActorType != "" && b.ActorType != "human" && b.ActorType != "service":
		return wrong("actor_type must be 'human' or 'service'")
	case b.ContextMode != "" && b.ContextMode != "chat" && b.ContextMode != "rag" && b.ContextMode != "raw":
		return wrong("context_mode must be chat, rag or raw")
	case len(b.Tags) > 50:
		return wrong("too many tags (max 50)")
	case len(b.Labels) > 50:
		return wrong("too many labels (max 50)")
	}
	return nil
}
