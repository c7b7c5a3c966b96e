package platform

import "strings"

// dirt is what the data of a clean event does not hold, in lower case: whatever
// could make mill.emit look closer. The check of mill.outbox has the same list.
var dirt = []string{"://", "=", `\`, "-----", "eyj", "akia", "asia", "gh", "github_", "xox", "sk-", "sk_", "aiza", "glpat", "bearer", "pass", "secret", "token", "key"}

// maxClean keeps what Postgres prints of the data, with blanks after colons and
// commas, within the 256 bytes of mill.outbox.
const maxClean = 160

// clean reports whether an event is so plain that mill.emit could only accept it.
// It refuses nothing: what is not clean is put to mill.emit, the one place that
// refuses, and takes a little longer. TestEmitsShortWayIsNoOther holds the two together.
func (e NewEvent) clean(scope, data string) bool {
	if e.IdempotencyKey != "" || e.TraceID != "" || scope != "install" ||
		len(e.Type) > 128 || !words(e.Type) || strings.HasPrefix(e.Type, TickPrefix) || len(e.Target) > 200 || e.Target == "" || !plain(e.Target, "_.:/@#+=~-") ||
		len(e.Key) > 200 || !printable(e.Key) || len(data) > maxClean || data[0] != '{' || !printable(data) {
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
