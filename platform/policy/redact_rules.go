package policy

import (
	"regexp"
	"strings"
)

// rule takes one kind of secret out. hint, lower case, must be in the text for it
// to be worth trying; "" always tries.
type rule struct {
	hint  string
	apply func(string) string
}

// The order counts: wholes before parts, so that a rule does not cut the piece by
// which a later one would have known the rest.
var rules = []rule{
	{"-----begin", all(privateKey, Mark)},
	{"://", secretURLs},
	{"://", all(userinfo, "${1}"+Mark+"@")},
	{"", all(headers, "${1}"+Mark)},
	{"bearer", bearers},
	{"", namedValues},
	{"password", all(sqlPassword, "${1}"+Mark)},
	{"eyj", all(jwt, Mark)},
	{"", all(knownKeys, Mark)},
	{"", longKeys},
}

func all(re *regexp.Regexp, with string) func(string) string {
	return func(s string) string { return re.ReplaceAllString(s, with) }
}

// A field's name and what separates it from its value; the quotes of JSON and of
// JSON inside a Go string included.
const (
	secretName = `[a-z0-9_.-]*(?:password|passwd|passphrase|pwd|secret|token|api[_-]?keys?|access[_-]?key|private[_-]?key|signing[_-]?key|credentials?|signature)[a-z0-9_-]*`
	separator  = `\\*["'` + "`" + `]?\s*(?:=>|:=|=|:)\s*`
)

var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)

	// Schemes whose URLs say too much even without a password.
	secretScheme = regexp.MustCompile(`(?i)\b(postgres|postgresql|amqps?|rediss?|mysql|mongodb(?:\+srv)?|nats|kafka|secret|vault)://`)
	// A password with blanks in it: user, colon, and an @ later in the line.
	blankPassword = regexp.MustCompile(`^[^\s@/]*:[^@\n]*@\S*`)
	userinfo      = regexp.MustCompile(`\b([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s@/]*:[^@\n/]*|\S*)@`)

	headers = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization` + separator + `|(?:set-)?cookie` + separator + `)[^\r\n]+`)
	bearer  = regexp.MustCompile(`(?i)\b(bearer)([\s:=]+)([^\s"'` + "`" + `]+)`)
	// A quoted value with escapes in it, or everything up to a blank that is not escaped.
	fields = regexp.MustCompile(`(?i)(\b` + secretName + separator + `)(?:\\+"(?:[^"\\]|\\[^"])*\\+"|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.|'')*'|(?:\\.|[^\s\\])+)`)
	// alter role x password '…'
	sqlPassword = regexp.MustCompile(`(?i)(\bpassword\s+)(?:e?'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")`)

	jwt       = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)*`)
	knownKeys = regexp.MustCompile(`\b(?:(?:AKIA|ASIA)[0-9A-Z]{12,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w+|xox[abeprs]-[\w-]+|(?:sk|pk|rk)[-_][\w-]{12,}|AIza[\w-]{20,}|glpat-[\w-]+|hv[sb]\.[\w.-]+|npm_\w{16,}|whsec_[\w+/=]+)`)
	longRun   = regexp.MustCompile(`[A-Za-z0-9+/_=-]{32,}`)
	uuid      = regexp.MustCompile(`(?i)^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

	keywordPassword = regexp.MustCompile(`(?i)\b(?:password|sslpassword)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:\\.|[^\s\\])+))`)
)

// secretURLs takes out whole URLs. One that stands in quotes ends with them, unless
// an @ after them says that the quote was a part of the password.
func secretURLs(s string) string {
	var b strings.Builder
	for {
		at := secretScheme.FindStringIndex(s)
		if at == nil {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:at[1]])
		b.WriteString(Mark)
		rest := s[at[1]:]
		end := strings.IndexAny(rest, " \t\r\n")
		if end < 0 {
			end = len(rest)
		}
		if quote := quoteBefore(s, at[0]); quote != 0 {
			end = closing(rest, quote, end)
		}
		if !strings.Contains(rest[:end], "@") {
			end = max(end, len(blankPassword.FindString(rest)))
		}
		s = rest[end:]
	}
}

func quoteBefore(s string, at int) byte {
	if at > 0 && strings.IndexByte("\"'`", s[at-1]) >= 0 {
		return s[at-1]
	}
	return 0
}

// closing is where a quoted URL ends: at the first such quote that is not escaped
// and after which the word holds no @.
func closing(rest string, quote byte, word int) int {
	for i := 0; i < len(rest) && rest[i] != '\n'; i++ {
		switch {
		case rest[i] == '\\':
			i++
		case rest[i] == quote:
			if i < word && strings.Contains(rest[i:word], "@") {
				return word
			}
			return i
		}
	}
	return word
}

// namedValues leaves the scheme of a URL alone: secret://… has had its turn.
func namedValues(s string) string {
	return fields.ReplaceAllStringFunc(s, func(m string) string {
		name := fields.FindStringSubmatch(m)[1]
		if strings.HasSuffix(name, ":") && strings.HasPrefix(m[len(name):], "//") {
			return m
		}
		return name + Mark
	})
}

// bearers leaves the word alone where it is prose.
func bearers(s string) string {
	return bearer.ReplaceAllStringFunc(s, func(m string) string {
		p := bearer.FindStringSubmatch(m)
		switch strings.ToLower(p[3]) {
		case "token", "tokens", "auth", "authentication", "authorization", "is", "was", "of":
			return m
		}
		return p[1] + p[2] + Mark
	})
}

// longKeys takes out what is long and looks random: upper and lower case and digits
// in one run, or 40 hexadecimal digits or more. UUIDs, trace ids (32 hexadecimal
// digits), paths and names stay.
func longKeys(s string) string {
	return longRun.ReplaceAllStringFunc(s, func(run string) string {
		if random(run) {
			return Mark
		}
		return run
	})
}

func random(run string) bool {
	if uuid.MatchString(run) || strings.Count(run, "/") > len(run)/16 {
		return false
	}
	var upper, lower, digit, beyondHex bool
	for _, c := range run {
		switch {
		case c >= '0' && c <= '9':
			digit = true
		case c >= 'A' && c <= 'Z':
			upper = true
			beyondHex = beyondHex || c > 'F'
		case c >= 'a' && c <= 'z':
			lower = true
			beyondHex = beyondHex || c > 'f'
		default:
			beyondHex = true
		}
	}
	return digit && upper && lower || digit && (upper || lower) && !beyondHex && len(run) >= 40
}
