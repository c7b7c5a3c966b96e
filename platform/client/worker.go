package client

import "encoding/json"

// The routes of outside workers, /api/v1/worker/*, are the functions mill.claim_jobs
// and the others behind HTTP: the same names, the same refusals.

// Claim asks for jobs: of topics, of all topics that go to its pools, or of those of the
// topics that do. Without pools it gets none that asks for one; a job with a placement goes
// to who has those labels. With WaitMs the answer waits until there is a job.
type Claim struct {
	Worker    string            `json:"worker"`
	Topics    []string          `json:"topics,omitempty"`
	Pools     []string          `json:"pools,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	N         *int64            `json:"n,omitempty"`          // nil means 1
	LeaseSecs *int64            `json:"lease_secs,omitempty"` // nil means 60
	WaitMs    int64             `json:"wait_ms,omitempty"`    // at most 30000
}

// Worker is one of GET /api/v1/workers: a host, or a program that claimed not long ago.
// What is empty is left out.
type Worker struct {
	ID           string            `json:"worker_id"`
	Kind         string            `json:"kind"` // host or outside
	Tenant       string            `json:"tenant"`
	Pool         string            `json:"pool,omitempty"` // the first of Pools
	Pools        []string          `json:"pools,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Topics       []string          `json:"topics,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"` // what its pools offer to requires
	ActiveJobs   int               `json:"active_jobs,omitempty"`  // claims that it has
	UpdatedAt    int64             `json:"updated_at"`             // when it was last heard of; microseconds since 1970
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
