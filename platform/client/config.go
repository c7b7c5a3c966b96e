package client

import "encoding/json"

// Document is GET /api/v1/config/pools or timeouts: what counts now.
type Document struct {
	Name     string          `json:"name"`
	Version  int             `json:"version"` // 0: none was set, and Document is {}
	Document json.RawMessage `json:"document"`
	SetBy    string          `json:"set_by,omitempty"`
	SetAt    string          `json:"set_at,omitempty"`   // RFC 3339
	Rejected *Rejected       `json:"rejected,omitempty"` // the last change since then that was refused
}

// Rejected is a change that was refused; what it was is not kept.
type Rejected struct {
	At     string `json:"at"` // RFC 3339
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// DocumentSet answers PUT /api/v1/config/pools or timeouts.
type DocumentSet struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}
