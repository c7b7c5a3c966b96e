package client

// DeadLetter is a job that ended without success and was not cancelled or retried.
type DeadLetter struct {
	JobID      string `json:"job_id"`
	Topic      string `json:"topic"`
	Status     string `json:"status"`
	Reason     string `json:"reason"`
	ReasonCode string `json:"reason_code"`
	LastState  string `json:"last_state"`
	Attempts   int    `json:"attempts,omitempty"`
	CreatedAt  string `json:"created_at"`
	Tenant     string `json:"tenant,omitempty"`
}

// DeadFilter chooses dead letters; zero values do not filter.
type DeadFilter struct {
	ReasonCode    string `json:"reason_code,omitempty"`
	Topic         string `json:"topic,omitempty"`
	Tenant        string `json:"tenant,omitempty"`
	CreatedAfter  string `json:"created_after,omitempty"` // s, ms, µs or ns since 1970
	CreatedBefore string `json:"created_before,omitempty"`
}

// DeadSweep is the body of POST /api/v1/dlq/retry and /api/v1/dlq/delete. A filter or All
// is needed.
type DeadSweep struct {
	DeadFilter
	All   bool `json:"all,omitempty"`
	Limit int  `json:"limit,omitempty"` // 0 means 1000, which is the most
}

// Swept is what was done; More says that the limit was met: call again. Rejected are the
// letters that were not retried, since a live job has their unique_key.
type Swept struct {
	Done     []SweptJob `json:"done"`
	Rejected []string   `json:"rejected,omitempty"`
	More     bool       `json:"more"`
}

// SweptJob is one dead letter; RetriedAs is its new job.
type SweptJob struct {
	JobID     string `json:"job_id"`
	RetriedAs string `json:"retried_as,omitempty"`
}

// DeadCount is how many died of one reason on one topic.
type DeadCount struct {
	ReasonCode string `json:"reason_code"`
	Topic      string `json:"topic"`
	Count      int64  `json:"count"`
}

// Retried answers a retry of one dead letter; Outcome and Reason as in Submitted.
type Retried struct {
	JobID   string `json:"job_id"`
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
}
