package policy

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Mark stands where something was taken out.
const Mark = "[redacted]"

// shortest is the length from which a known secret is looked for: taking out
// every "a" would hide more than it protects.
const shortest = 4

// Redact takes out of a text what looks like a credential (N84): whole URLs of
// databases, brokers and caches, user and password of any other URL, values of
// fields that are called password, token or the like, bearer tokens, JWTs, private
// keys, and long keys. It rather takes too much than too little. What it cannot
// know by its looks is for Redactor (passwords) and Without (payloads).
func Redact(text string) string {
	for _, r := range rules {
		if r.hint != "" && !containsFold(text, r.hint) {
			continue
		}
		text = r.apply(text)
	}
	return text
}

// Redactor also takes out secrets that it knows, in whatever form they come. The
// zero value knows none and does what Redact does.
type Redactor struct{ known []string }

// NewRedactor knows the given secrets, and the passwords in those that are URLs or
// keyword DSNs. Values of fewer than 4 bytes are left out.
func NewRedactor(secrets ...string) Redactor {
	var r Redactor
	for _, s := range secrets {
		for _, part := range append(passwords(s), s) {
			r.known = append(r.known, spellings(part)...)
		}
	}
	// The longest first: one secret may be a part of another.
	slices.SortFunc(r.known, func(a, b string) int { return len(b) - len(a) })
	r.known = slices.Compact(r.known)
	return r
}

// Text is Redact without the known secrets.
func (r Redactor) Text(text string) string {
	for _, secret := range r.known {
		text = strings.ReplaceAll(text, secret, Mark)
	}
	return Redact(text)
}

// Without takes the strings of a JSON payload out of a text, so that the error of
// a handler can be logged without what the event carried. Strings of fewer than 4
// bytes stay; data that does not decode is taken out as a whole.
func Without(text string, data []byte) string {
	if len(data) == 0 {
		return text
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return strings.ReplaceAll(text, string(data), Mark)
	}
	var known []string
	eachString(v, func(s string) { known = append(known, spellings(s)...) })
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) })
	for _, s := range known {
		text = strings.ReplaceAll(text, s, Mark)
	}
	return text
}

// Panic says of a recovered value what may be logged: a runtime error's own text,
// else its type only, since the value is the author's.
func Panic(v any) string {
	if re, ok := v.(interface{ RuntimeError() }); ok {
		return Redact(fmt.Sprint(re))
	}
	return fmt.Sprintf("panic of type %T", v)
}

// passwords finds the password of a DSN, if there is one.
func passwords(dsn string) []string {
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" && u.User != nil {
		if p, ok := u.User.Password(); ok {
			return []string{p}
		}
		return nil
	}
	var found []string
	for _, m := range keywordPassword.FindAllStringSubmatch(dsn, -1) {
		found = append(found, strings.NewReplacer(`\'`, `'`, `\\`, `\`, `\ `, ` `).Replace(m[1]+m[2]))
	}
	return found
}

// spellings are the forms in which a secret may turn up: as it is, in a URL, in
// quotes.
func spellings(s string) []string {
	if len(s) < shortest {
		return nil
	}
	all := []string{s, url.QueryEscape(s), url.PathEscape(s), url.UserPassword("", s).String()[1:], inner(fmt.Sprintf("%q", s))}
	if b, err := json.Marshal(s); err == nil {
		all = append(all, inner(string(b)))
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return len(s) < shortest })
}

func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

func eachString(v any, f func(string)) {
	switch v := v.(type) {
	case string:
		f(v)
	case []any:
		for _, e := range v {
			eachString(e, f)
		}
	case map[string]any:
		for k, e := range v {
			f(k)
			eachString(e, f)
		}
	}
}

func containsFold(text, lower string) bool {
	return strings.Contains(strings.ToLower(text), lower)
}
