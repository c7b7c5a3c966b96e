package platform

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Reason is a code, [a-z0-9_.]{1,64}: the only form in which a failure is stored
// or shown (N35, N71). System reasons have no dot and are the constants here;
// authors' reasons carry one ("stock.insufficient").
type Reason string

// The system reasons, a closed set.
const (
	ReasonHandlerError        Reason = "handler_error"            // the handler returned an error without a reason
	ReasonPanic               Reason = "panic"                    // the handler panicked
	ReasonTimeout             Reason = "timeout"                  // the function's timeout passed
	ReasonBadData             Reason = "bad_data"                 // the event's data does not decode into what the handler expects
	ReasonBadBatch            Reason = "bad_batch"                // BatchError named an index outside the batch
	ReasonBatchTooBig         Reason = "batch_too_big"            // a clean-up's statement deleted more than its Batch, and was rolled back (N82)
	ReasonBadReason           Reason = "bad_reason"               // Fail was given what is no reason code, or one that is not an author's
	ReasonHostLost            Reason = "host_lost"                // the host died while it worked on this
	ReasonLeaseLost           Reason = "lease_lost"               // another host owns the claim now
	ReasonCommitFailed        Reason = "commit_failed"            // the handler went well, its transaction did not commit
	ReasonConflict            Reason = "conflict"                 // a deadlock or serialization failure
	ReasonPermissionDenied    Reason = "permission_denied"        // the handler may not do that to this table: it is another module's, or a grant is missing (N39)
	ReasonOwnersIncomplete    Reason = "owner_matrix_incomplete"  // the declaration lacks owners (N40)
	ReasonNoLiveHost          Reason = "no_live_host"             // no live host has the function
	ReasonClaimable           Reason = "claimable"                // events wait for a host to claim their shard
	ReasonPaused              Reason = "paused"                   // somebody paused it
	ReasonHeld                Reason = "held"                     // an event failed for the last time, and its shard waits for somebody to decide
	ReasonExpired             Reason = "expired"                  // what comes after the cursor is archived
	ReasonListenUnavailable   Reason = "listen_unavailable"       // LISTEN is not heard here (a pooler); the host polls faster
	ReasonDatabaseUnreachable Reason = "database_unreachable"     // the database does not answer
	ReasonMissed              Reason = "missed"                   // a fire time passed with no host there for it, and was left out
	ReasonOverlap             Reason = "overlap"                  // a fire time came while the tick before was not done, and was left out
	ReasonBadSchedule         Reason = "bad_schedule"             // the cron line or zone in the database cannot be read
	ReasonDraining            Reason = "draining"                 // the process is stopping
	ReasonSchema              Reason = "schema_validation_failed" // a job's input does not fit its step's type
	ReasonBadOutput           Reason = "bad_output"               // a step's output is too large, does not fit its type, or is no JSON that Postgres takes
	ReasonDeadline            Reason = "deadline"                 // a job's deadline passed
	ReasonCancelled           Reason = "cancelled"                // somebody cancelled the job
	ReasonLateResult          Reason = "late_result"              // a result came for a job that had ended; it changed nothing
	ReasonNoPoolMapping       Reason = "no_pool_mapping"          // no step, worker or pool has ever been known for the topic, or none of its pools is what the job asks for
	ReasonNoWorkers           Reason = "no_workers"               // no live worker meets what the job asks for
	ReasonQueued              Reason = "queued"                   // it is next in line: who may run it has not looked yet
	ReasonPoolOverloaded      Reason = "pool_overloaded"          // those that may run it are full, for two seconds or more
	ReasonTenantLimit         Reason = "tenant_limit"             // the scope has as many running as it may
	ReasonTopicLimit          Reason = "topic_limit"              // the topic has as many running as it may
	ReasonKeyLimit            Reason = "key_limit"                // the key has as many running as it may
	ReasonScheduled           Reason = "scheduled"                // it is not due yet
	ReasonApprovalRequired    Reason = "approval_required"        // it waits for a person
)

// sayable are the system reasons that an author or an outside worker may give (mill.fail_job
// has the same): they tell of the work itself. The others are for pgmill to find out, and
// some act: after host_lost there is no rest, deadline makes a job a TIMEOUT.
var sayable = []Reason{ReasonHandlerError, ReasonPanic, ReasonBadData, ReasonSchema, ReasonBadOutput, ReasonConflict, ReasonPermissionDenied}

var reasonForm = regexp.MustCompile(`^[a-z0-9_.]{1,64}$`)

// Valid reports whether r has the form of a reason code.
func (r Reason) Valid() bool { return reasonForm.MatchString(string(r)) }

// Failure is an error that carries the reason to store and show. The cause's text
// goes to the redacting log only.
type Failure struct {
	Reason Reason
	Final  bool // no retry
	Cause  error
}

func (f *Failure) Error() string {
	if f.Cause == nil {
		return string(f.Reason)
	}
	return fmt.Sprintf("%s: %v", f.Reason, f.Cause)
}

func (f *Failure) Unwrap() error { return f.Cause }

// Fail ends the work on this event for good: no retry, and reason is what is shown.
// Authors' reasons carry a dot; of the system's they may give those that tell of the work
// itself, such as ReasonBadData. Any other code is stored as bad_reason. err may be nil.
func Fail(reason Reason, err error) error {
	return &Failure{Reason: wellFormed(reason), Final: true, Cause: err}
}

// Because gives an error the reason to show, as Fail does; the work is retried.
func Because(reason Reason, err error) error {
	return &Failure{Reason: wellFormed(reason), Cause: err}
}

func wellFormed(r Reason) Reason {
	if !r.Valid() || !strings.Contains(string(r), ".") && !slices.Contains(sayable, r) {
		return ReasonBadReason
	}
	return r
}

// ReasonOf is the reason an error is stored with: its Failure's, else
// handler_error. nil has none.
func ReasonOf(err error) Reason {
	var f *Failure
	switch {
	case err == nil:
		return ""
	case errors.As(err, &f):
		return f.Reason
	default:
		return ReasonHandlerError
	}
}

// Snooze puts a job back for d without counting the attempt: what it needs is not there
// yet.
func Snooze(d time.Duration) error { return &Snoozed{For: d} }

// Snoozed is the error that Snooze returns.
type Snoozed struct{ For time.Duration }

func (s *Snoozed) Error() string { return fmt.Sprintf("snoozed for %v", s.For) }

// BatchError says which event of a batch failed, which saves the search for it.
// Index is into the slice given to HandleBatch.
type BatchError struct {
	Index int
	Err   error
}

func (e *BatchError) Error() string { return fmt.Sprintf("event %d of the batch: %v", e.Index, e.Err) }

func (e *BatchError) Unwrap() error { return e.Err }
