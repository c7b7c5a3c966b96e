package client

import "encoding/json"

// Submit is the body of POST /api/v1/jobs. Prompt or Input is needed: without Input
// the step gets {"prompt": …, "context": …}. Times are milliseconds.
type Submit struct {
	Prompt  *string         `json:"prompt,omitempty"`
	Context json.RawMessage `json:"context,omitempty"`
	Input   json.RawMessage `json:"input,omitempty"` // an object; passed on as it is
	Topic   string          `json:"topic,omitempty"` // "" means job.default

	Priority       string            `json:"priority,omitempty"` // critical, interactive or batch; "" means interactive
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Placement      map[string]string `json:"placement,omitempty"`
	Requires       []string          `json:"requires,omitempty"`
	TraceID        string            `json:"trace_id,omitempty"`

	DelayMs        *int64 `json:"delay_ms,omitempty"`
	RunAt          string `json:"run_at,omitempty"` // RFC 3339
	DeadlineMs     *int64 `json:"deadline_ms,omitempty"`
	MaxRuntimeMs   *int64 `json:"max_runtime_ms,omitempty"`
	MaxQueueWaitMs *int64 `json:"max_queue_wait_ms,omitempty"`
	MaxAttempts    *int64 `json:"max_attempts,omitempty"`
	Cost           *int64 `json:"cost,omitempty"`
	Key            string `json:"key,omitempty"`
	UniqueKey      string `json:"unique_key,omitempty"`
	DebounceMs     *int64 `json:"debounce_ms,omitempty"`

	PreferredPool   string `json:"preferred_pool,omitempty"`
	PreferredWorker string `json:"preferred_worker,omitempty"`

	TenantID string `json:"tenant_id,omitempty"` // "" means the key's
	OrgID    string `json:"org_id,omitempty"`    // counts before TenantID

	Meta
}

// Meta is what a submitter says of a job besides its work. It is kept and copied to
// retries.
type Meta struct {
	AdapterID       string   `json:"adapter_id,omitempty"`
	MemoryID        string   `json:"memory_id,omitempty"`
	ContextMode     string   `json:"context_mode,omitempty"` // chat, rag or raw
	TeamID          string   `json:"team_id,omitempty"`
	ProjectID       string   `json:"project_id,omitempty"`
	PrincipalID     string   `json:"principal_id,omitempty"`
	ActorID         string   `json:"actor_id,omitempty"`
	ActorType       string   `json:"actor_type,omitempty"` // human, service or ""
	PackID          string   `json:"pack_id,omitempty"`
	Capability      string   `json:"capability,omitempty"`
	RiskTags        []string `json:"risk_tags,omitempty"`
	Tags            []string `json:"tags,omitempty"`
	MaxInputTokens  int64    `json:"max_input_tokens,omitempty"`
	MaxOutputTokens int64    `json:"max_output_tokens,omitempty"`
	MaxTotalTokens  int64    `json:"max_total_tokens,omitempty"`
	AllowSummary    bool     `json:"allow_summarization,omitempty"`
	AllowRetrieval  bool     `json:"allow_retrieval,omitempty"`
}

// Submitted answers a submit: the job, or an earlier one (see Outcome). On the wire there are
// two fields, the others are headers.
type Submitted struct {
	JobID   string `json:"job_id"`
	TraceID string `json:"trace_id"`
	Outcome string `json:"outcome,omitempty"` // X-Outcome: accepted, merged into JobID, or rejected as JobID is in the way
	Reason  string `json:"reason,omitempty"`  // X-Reason, if it is not accepted: idempotency_key or unique_key
	Warning string `json:"-"`                 // X-Warning: what is odd about it, for people; "" is nothing
}

// Job is one of a list. Times are microseconds since 1970.
type Job struct {
	ID             string   `json:"id"`
	TraceID        string   `json:"trace_id,omitempty"`
	UpdatedAt      int64    `json:"updated_at"`
	State          string   `json:"state"`
	Topic          string   `json:"topic"`
	Tenant         string   `json:"tenant"`
	Team           string   `json:"team,omitempty"`
	Principal      string   `json:"principal,omitempty"`
	ActorID        string   `json:"actor_id,omitempty"`
	ActorType      string   `json:"actor_type,omitempty"`
	IdempotencyKey string   `json:"idempotency_key,omitempty"`
	Capability     string   `json:"capability,omitempty"`
	RiskTags       []string `json:"risk_tags,omitempty"`
	Requires       []string `json:"requires,omitempty"`
	PackID         string   `json:"pack_id,omitempty"`
	Attempts       int      `json:"attempts,omitempty"`
	SafetyDecision string   `json:"safety_decision,omitempty"`
	SafetyReason   string   `json:"safety_reason,omitempty"`
	SafetyRuleID   string   `json:"safety_rule_id,omitempty"`
	SafetySnapshot string   `json:"safety_snapshot,omitempty"`
	DeadlineUnix   int64    `json:"deadline_unix,omitempty"`

	Priority   string `json:"priority,omitempty"`
	Reason     string `json:"reason,omitempty"` // the last attempt's, a code
	Worker     string `json:"worker,omitempty"` // who has or had it
	CreatedAt  int64  `json:"created_at,omitempty"`
	RunAt      int64  `json:"run_at,omitempty"`
	StartedAt  int64  `json:"started_at,omitempty"`
	FinishedAt int64  `json:"finished_at,omitempty"`
	RunID      string `json:"run_id,omitempty"`
	StepID     string `json:"step_id,omitempty"`
	RetryOf    string `json:"retry_of,omitempty"`
}

// Ended reports whether the job is at its end.
func (j Job) Ended() bool {
	switch j.State {
	case "SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT", "DENIED":
		return true
	}
	return false
}

// JobDetail is GET /api/v1/jobs/{id}. The first block is always there, whatever it is
// empty of: clients of this format count on it.
type JobDetail struct {
	ID                 string            `json:"id"`
	TraceID            string            `json:"trace_id"`
	State              string            `json:"state"`
	Topic              string            `json:"topic"`
	Tenant             string            `json:"tenant"`
	Attempts           int               `json:"attempts"`
	ActorID            string            `json:"actor_id"`
	ActorType          string            `json:"actor_type"`
	IdempotencyKey     string            `json:"idempotency_key"`
	Capability         string            `json:"capability"`
	PackID             string            `json:"pack_id"`
	RiskTags           []string          `json:"risk_tags"`
	Requires           []string          `json:"requires"`
	Labels             map[string]string `json:"labels"`
	WorkflowID         string            `json:"workflow_id"`
	RunID              string            `json:"run_id"`
	StepID             string            `json:"step_id"`
	ContextPtr         string            `json:"context_ptr"`
	Context            json.RawMessage   `json:"context"`
	ResultPtr          string            `json:"result_ptr"`
	Result             json.RawMessage   `json:"result"` // the output, or what went wrong; null while it has not ended
	SafetyDecision     string            `json:"safety_decision"`
	SafetyReason       string            `json:"safety_reason"`
	SafetyRuleID       string            `json:"safety_rule_id"`
	SafetySnapshot     string            `json:"safety_snapshot"`
	SafetyJobHash      string            `json:"safety_job_hash"`
	SafetyConstraints  json.RawMessage   `json:"safety_constraints"`
	SafetyRemediations json.RawMessage   `json:"safety_remediations"`
	ApprovalRequired   bool              `json:"approval_required"`
	ApprovalRef        string            `json:"approval_ref"`

	ErrorMessage string `json:"error_message,omitempty"` // a reason code, never a text
	ErrorStatus  string `json:"error_status,omitempty"`
	ErrorCode    string `json:"error_code,omitempty"`
	LastState    string `json:"last_state,omitempty"`

	Input       json.RawMessage `json:"input"`
	Output      json.RawMessage `json:"output"`               // null if it is large, too: see OutputPtr
	OutputPtr   string          `json:"output_ptr,omitempty"` // of an output above 256 KiB; Client.Output reads it
	OutputBytes int64           `json:"output_bytes,omitempty"`
	OutputHash  string          `json:"output_sha256,omitempty"`
	AttemptList []Attempt       `json:"attempt_list"` // those before the last one
	Progress    *Progress       `json:"progress"`
	WaitingFor  string          `json:"waiting_for,omitempty"` // why one that waits does not run
	Priority    string          `json:"priority"`
	Reason      string          `json:"reason,omitempty"`
	Worker      string          `json:"worker,omitempty"`
	Principal   string          `json:"principal,omitempty"`
	Team        string          `json:"team,omitempty"`
	SubmittedBy string          `json:"submitted_by"`
	UpdatedAt   int64           `json:"updated_at"`
	CreatedAt   int64           `json:"created_at"`
	RunAt       int64           `json:"run_at,omitempty"`
	StartedAt   int64           `json:"started_at,omitempty"`
	FinishedAt  int64           `json:"finished_at,omitempty"`
	RetryOf     string          `json:"retry_of,omitempty"`
}

// Attempt is one try that did not end the job.
type Attempt struct {
	Attempt   int    `json:"attempt"`
	Worker    string `json:"worker"`
	StartedAt int64  `json:"started_at"`
	EndedAt   int64  `json:"ended_at"`
	Reason    string `json:"reason"`
}

// Progress is the last word of a running job.
type Progress struct {
	Percent int    `json:"percent"`
	Message string `json:"message"`
	At      int64  `json:"at"`
}

// Decision is what the policy said of a job.
type Decision struct {
	Decision       string `json:"decision"`
	RuleID         string `json:"rule_id,omitempty"`
	PolicySnapshot string `json:"policy_snapshot,omitempty"`
	CheckedAt      int64  `json:"checked_at"`
}

// Page is a page of a list; NextCursor is nil on the last one.
type Page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

// JobFilter is what GET /api/v1/jobs takes; zero values do not filter.
type JobFilter struct {
	State, Topic, Tenant, Team, TraceID string
	UpdatedAfter, UpdatedBefore         string // s, ms, µs or ns since 1970
	Limit                               int    // 0 means 50; at most 500
	Cursor                              string
}

// Cancelled answers a cancel. Reason says that the job had ended before.
type Cancelled struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}
