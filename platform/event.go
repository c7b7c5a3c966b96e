package platform

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
)

// Event is one committed outbox row as a handler gets it (N33): the row itself,
// with pointers only, never content.
type Event struct {
	Pos       int64  // place in the one order; rises by one an event
	ID        int64  // the outbox row
	Type      string // what happened: "orders.placed"
	Target    string // what it happened to: "order-17"
	Key       string // what is kept in order; "" if the author gave none
	Scope     string // whose row: install, provider or org:<id>
	TraceID   string // "" if the author gave none
	EmittedAt time.Time
	Data      json.RawMessage // a JSON object of pointers, at most 4 KiB
}

// Data decodes the pointers of an event into T. Numbers keep their value: decode
// large ids into int64, or into json.Number in untyped fields. An error is final
// for this event: its reason is bad_data.
func Data[T any](e Event) (T, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return v, Fail(ReasonBadData, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return v, Fail(ReasonBadData, err)
	}
	return v, nil
}
