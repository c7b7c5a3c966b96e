// Package api is the HTTP API: one file a resource, one error mapper (problem.go). It
// holds no state and no truth: each request is one statement, sent with the caller's
// scope in one batch as role pgmill_api (scope.go), and what that may see is decided in
// SQL by pgmill.in_scope, so a forgotten predicate shows nothing. It imports platform, client and
// internal/db; that there may be work it hears from the host by a Bell.
//
// A key has a name for the audit, one scope ('*': all) and a role. Another scope's job
// does not exist. Bodies are read strictly (body.go) and inputs pass through as they
// came: no number is read into a float.
//
// GET /api/v1/workers is read from the leases, so the dead are not in it. /api/v1/status
// is not here: it is the control plane's.
//
// A submit, a retry of a dead letter too, answers 200 with a job's id, and by the header
// X-Outcome what that job is: accepted (a new one), merged (one that was there has taken
// this submit in) or rejected (one that was there is in the way, and nothing was made).
// X-Reason is the gate then, idempotency_key or unique_key. A list without pages (a trace,
// the counts of dead letters) ends after a thousand items; X-Truncated: true says that it did.
//
// Of a submit's fields that speak of tokens and memory (max_input_tokens, max_output_tokens,
// max_total_tokens, memory_id, …) what was sent is kept, and nothing is put in their place:
// the defaults (8000, 1024, mem:<job id>), and an actor that follows from the key, are the control
// plane's to apply. actor_id is the principal where one is named.
package api
