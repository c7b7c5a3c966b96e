package client

import "fmt"

// Problem is every refusal (RFC 9457). Error repeats Detail for clients that look for
// that name.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Text   string  `json:"error"`
	Code   string  `json:"code"`
	Faults []Fault `json:"faults,omitempty"` // where an input does not fit its schema
}

// Fault is one place of a document, a JSON pointer.
type Fault struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (p *Problem) Error() string {
	text := fmt.Sprintf("%s (%d %s)", p.Detail, p.Status, p.Code)
	for _, f := range p.Faults {
		text += fmt.Sprintf("\n  %s: %s", f.Path, f.Message)
	}
	return text
}
