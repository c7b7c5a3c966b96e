package api

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/client"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// schemas are those of topics, by their text: a changed one is another one.
type schemas struct {
	mu    sync.Mutex
	known map[string]platform.Schema
}

const maxSchemas = 1000

// input refuses an input that its topic does not take. A topic that no step has
// declared takes everything; declared is false for it, and for a step that says nothing of
// its input.
func (s *schemas) input(ctx context.Context, q *db.Queries, topic string, input json.RawMessage) (declared bool, err error) {
	text, err := q.APITopicInput(ctx, topic)
	if err != nil || text == "" {
		return false, err
	}
	return true, s.check(text, input, "the input does not fit the schema of its topic")
}

// output refuses an output that is not what its topic's step says. The claim stays.
func (s *schemas) output(ctx context.Context, q *db.Queries, r client.Report) error {
	text, err := q.APIJobOutput(ctx, db.APIJobOutputParams{ID: r.ID, Token: r.Token})
	if err != nil || text == "" {
		return err
	}
	return s.check(text, r.Output, "the output does not fit the schema of the job's topic; the claim is still yours")
}

func (s *schemas) check(text string, doc json.RawMessage, detail string) error {
	schema, err := s.parse(text)
	if err != nil {
		return err
	}
	faults := schema.Check(doc)
	if len(faults) == 0 {
		return nil
	}
	p := refuse(http.StatusUnprocessableEntity, string(platform.ReasonSchema), detail)
	for _, f := range faults[:min(len(faults), 100)] {
		p.Faults = append(p.Faults, client.Fault(f))
	}
	return p
}

func (s *schemas) parse(text string) (platform.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if schema, ok := s.known[text]; ok {
		return schema, nil
	}
	schema, err := platform.ParseSchema(json.RawMessage(text))
	if err != nil {
		return schema, err
	}
	if s.known == nil || len(s.known) >= maxSchemas {
		s.known = map[string]platform.Schema{}
	}
	s.known[text] = schema
	return schema, nil
}
