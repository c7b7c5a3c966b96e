package client

import (
	"fmt"
	"strings"
)

// Problem is every refusal (RFC 9457). Error repeats Detail for clients that look for
// that name.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Text   string  `json:"error"`
	Code   string  `json:"code"`
	Faults []Fault `json:"faults,omitempty"` // where a request, an input or a document is not as it must be
}

// Fault is one place of a document, a JSON pointer; "" is all of it.
type Fault struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (p *Problem) Error() string {
	text := fmt.Sprintf("%s (%d %s)", p.Detail, p.Status, p.Code)
	for _, f := range p.Faults {
		if strings.HasSuffix(p.Detail, f.Message) { // it is all that is wrong
			continue
		}
		text += "\n  " + strings.TrimPrefix(f.Path+": "+f.Message, ": ")
	}
	return text
}
