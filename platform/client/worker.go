package client

import "encoding/json"

// The routes of outside workers, /api/v1/worker/*, are the functions mill.claim_jobs
// and the others behind HTTP: the same names, the same refusals.

// Claim asks for jobs. With WaitMs the answer waits until there is one.
type Claim struct {
	Worker    string   `json:"worker"`
	Topics    []string `json:"topics"`
	N         *int64   `json:"n,omitempty"`          // nil means 1
	LeaseSecs *int64   `json:"lease_secs,omitempty"` // nil means 60
	WaitMs    int64    `json:"wait_ms,omitempty"`    // at most 30000
}

// Claimed are the jobs that the worker has now, each until its lease runs out.
type Claimed struct {
	Jobs []ClaimedJob `json:"jobs"`
}

// ClaimedJob is a job and the right to end it.
type ClaimedJob struct {
	JobID      string          `json:"job_id"`
	Token      string          `json:"token"`
	Topic      string          `json:"topic"`
	Input      json.RawMessage `json:"input"`
	Attempt    int             `json:"attempt"`
	DeadlineAt string          `json:"deadline_at,omitempty"` // RFC 3339
}

// Heartbeat renews leases: ids and tokens in the same order.
type Heartbeat struct {
	IDs    []string `json:"ids"`
	Tokens []string `json:"tokens"`
}

// Renewed says of each job whether the work is to be dropped.
type Renewed struct {
	Jobs []RenewedJob `json:"jobs"`
}

// RenewedJob: Cancelled means cancelled or taken over.
type RenewedJob struct {
	JobID     string `json:"job_id"`
	Cancelled bool   `json:"cancelled"`
}

// Report is the body of progress, complete, fail and release.
type Report struct {
	ID    string `json:"id"`
	Token string `json:"token"`

	Output  json.RawMessage `json:"output,omitempty"`  // complete; absent means {}
	Reason  string          `json:"reason,omitempty"`  // fail: a code
	Retry   *bool           `json:"retry,omitempty"`   // fail; nil means true
	Percent *int64          `json:"percent,omitempty"` // progress
	Message string          `json:"message,omitempty"` // progress
}

// Reported is the job's state after it.
type Reported struct {
	JobID string `json:"job_id"`
	State string `json:"state"`
}
