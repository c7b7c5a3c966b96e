package claim

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrLost says that another host has the claim, or nobody. The work may have been
// done twice; its result must be dropped.
var ErrLost = errors.New("claim lost")

// IsLost reports whether an error means that the claim is gone: ErrLost, or the
// refusal of pgmill.fence and pgmill.release_claim.
func IsLost(err error) bool {
	return errors.Is(err, ErrLost) || sqlState(err) == "MI101"
}

// IsMoved reports whether the cursor's next n was taken: somebody else moved it.
func IsMoved(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "23505" && pe.SchemaName == schema && pe.TableName == "cursor"
}

// IsConflict reports whether the database ended a transaction for the sake of
// another (deadlock, serialization failure, lock not available), or because a
// migration changed what a statement that was prepared before it answers (F76: the next
// try prepares it anew): nobody's failure.
func IsConflict(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03":
		return true
	case "0A000":
		var pe *pgconn.PgError
		return errors.As(err, &pe) && pe.Routine == "RevalidateCachedQuery"
	}
	return false
}

// IsDenied reports whether the server refused a statement for want of a right.
func IsDenied(err error) bool { return sqlState(err) == "42501" }

// IsServer reports whether the server itself ended the session, is going down, or
// was down and has lost positions that this host has seen (MI102).
func IsServer(err error) bool {
	s := sqlState(err)
	return len(s) == 5 && (s[:3] == "57P" || s[:2] == "08" || s[:2] == "53" || s == "25P03" || s == "MI102")
}

func sqlState(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// IsSQL reports whether the server answered with an error of any kind.
func IsSQL(err error) bool { return sqlState(err) != "" }

// IsBadValue reports whether the server refused a value for what it is: a NUL, a lone
// surrogate, a number or a depth that it cannot keep (F27).
func IsBadValue(err error) bool {
	s := sqlState(err)
	return len(s) == 5 && (s[:2] == "22" || s[:2] == "54")
}
