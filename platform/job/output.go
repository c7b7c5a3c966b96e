package job

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pgmill/pgmill/platform"
)

// isLarge reports whether an output is to be stored apart.
func isLarge(out []byte) bool { return len(out) > platform.MaxOutput }

// patient is how long an attempt's end may take to be written: what is large has ten
// seconds, however short the lease.
func (e *Engine) patient(out []byte) time.Duration {
	if isLarge(out) {
		return max(e.LeaseTTL, 10*time.Second)
	}
	return e.LeaseTTL
}

// checkLarge refuses of a large output, which Postgres stores as bytes, what it would refuse
// of one that is jsonb: NUL, halves of surrogate pairs and what is no UTF-8. That it is
// JSON, its encoder has seen to.
func checkLarge(out []byte) error {
	if isLarge(out) && (!utf8.Valid(out) || !escapesAreText(out)) {
		return platform.Fail(platform.ReasonBadOutput, errors.New("the output has NUL, half of a surrogate pair or what is no UTF-8 in it"))
	}
	return nil
}

// shown is what a progress message becomes that is too long, or has what Postgres or a
// terminal does not take.
func shown(message string) string {
	clean := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, "\uFFFD")))
	return string(clean[:min(len(clean), 200)])
}

// escapesAreText looks at each \u of valid JSON.
func escapesAreText(raw []byte) bool {
	high := false // the escape just before is the first half of a pair
	for {
		i := bytes.IndexByte(raw, '\\')
		if high && i != 0 {
			return false
		}
		if i < 0 {
			return true
		}
		raw = raw[i:]
		if raw[1] != 'u' {
			if high {
				return false
			}
			raw = raw[2:]
			continue
		}
		r, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
		low := r >= 0xDC00 && r < 0xE000
		if err != nil || r == 0 || low != high {
			return false
		}
		high = r >= 0xD800 && r < 0xDC00
		raw = raw[6:]
	}
}
