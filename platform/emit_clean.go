package platform

import "strings"

// dirt is what the data of a clean event does not hold, in lower case: whatever
// could make mill.emit look closer, as pgmill.suspicious has it.
var dirt = []string{"://", "=", `\`, "-----", "eyj", "akia", "asia", "gh", "github_", "xox", "sk-", "sk_", "aiza", "glpat", "bearer", "pass", "secret", "token", "key"}

const (
	maxCleanNames = 128 // bytes of type, target and key together, and of a trace, as in mill.outbox
	maxCleanData  = 256 // bytes of the data as jsonb, as in pgmill.suspicious
)

// room is at least what data takes as jsonb, and as Postgres prints it: its text; for
// each name and member four bytes, an alignment and a number's head; more for the
// first of a list or object, and for that itself.
func room(data string) int {
	n := len(data)
	for i := range len(data) {
		switch data[i] {
		case ':', ',':
			n += 16
		case '[', '{':
			n += 24
		}
	}
	return n
}

// clean reports whether an event is so plain that mill.emit could only accept it.
// It refuses nothing: what is not clean is put to mill.emit, the one place that
// refuses, and takes a little longer. TestEmitsShortWayIsNoOther holds the two together.
func (e NewEvent) clean(scope, data string) bool {
	if e.IdempotencyKey != "" || len(e.TraceID) > maxCleanNames || !plain(e.TraceID, "_.:-") || scope != "install" ||
		len(e.Type)+len(e.Target)+len(e.Key) > maxCleanNames || !words(e.Type) || strings.HasPrefix(e.Type, TickPrefix) || e.Target == "" || !plain(e.Target, "_.:/@#+=~-") || !printable(e.Key) ||
		room(data) > maxCleanData || data[0] != '{' || !printable(data) || exponent(data) {
		return false
	}
	lower := strings.ToLower(data)
	for _, d := range dirt {
		if strings.Contains(lower, d) {
			return false
		}
	}
	return true
}

// exponent reports whether a number in data is written with one: Postgres prints
// 1e300 with all its digits.
func exponent(data string) bool {
	inside := false // a string; there are no escapes, see dirt
	for i := 1; i < len(data); i++ {
		switch {
		case data[i] == '"':
			inside = !inside
		case !inside && data[i]|' ' == 'e' && '0' <= data[i-1] && data[i-1] <= '9':
			return true
		}
	}
	return false
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// words reports whether s is lower-case words joined by dots.
func words(s string) bool {
	for word := range strings.SplitSeq(s, ".") {
		if word == "" || word != strings.ToLower(word) || !plain(word, "_") {
			return false
		}
	}
	return true
}

// plain reports whether s is made of ASCII letters, digits and others.
func plain(s, others string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}
