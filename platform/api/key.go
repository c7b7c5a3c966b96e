package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Key is one API key; of the secret only its hash is kept.
type Key struct {
	Name  string // for the audit
	Scope string // install, provider, org:<id> or * for all
	Role  string // admin, operator, approver, viewer or worker
	hash  [sha256.Size]byte
}

var (
	keyName   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	keySecret = regexp.MustCompile(`^[!-+\--9;-~]{16,256}$`) // visible, without : and ,
	keyScope  = regexp.MustCompile(`^(\*|install|provider|org:[A-Za-z0-9_.-]{1,100})$`)
)

// ParseKeys reads name:key:scope[:role], separated by commas or lines; lines that begin
// with # are left out, the role is admin if none is said. Its faults name the entry, never the key.
func ParseKeys(text string) ([]Key, error) {
	var keys []Key
	var faults []error
	seen := map[string]bool{}
	entry := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for one := range strings.SplitSeq(line, ",") {
			if one = strings.TrimSpace(one); one == "" {
				continue
			}
			entry++
			k, err := parseKey(one)
			if err == nil && seen[k.Name] {
				err = errors.New("its name is taken")
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("API key %d: %w", entry, err))
				continue
			}
			seen[k.Name] = true
			keys = append(keys, k)
		}
	}
	return keys, errors.Join(faults...)
}

func parseKey(text string) (Key, error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) < 3 {
		return Key{}, errors.New("write name:key:scope or name:key:scope:role, such as ci:…:org:acme:operator")
	}
	k := Key{Name: parts[0], Scope: parts[2], Role: "admin", hash: sha256.Sum256([]byte(parts[1]))}
	if i := strings.LastIndexByte(k.Scope, ':'); i >= 0 && roles[k.Scope[i+1:]] != nil && k.Scope[:i] != "org" {
		k.Scope, k.Role = k.Scope[:i], k.Scope[i+1:]
	}
	switch {
	case !keyName.MatchString(k.Name):
		return Key{}, errors.New("its name is 1 to 64 of letters, digits and _.-")
	case !keySecret.MatchString(parts[1]):
		return Key{}, fmt.Errorf("%s: the key is 16 to 256 visible characters without : and ,", k.Name)
	case !keyScope.MatchString(k.Scope):
		return Key{}, fmt.Errorf("%s: the scope is install, provider, org:<id> or *, then perhaps :admin, :operator, :approver, :viewer or :worker", k.Name)
	}
	return k, nil
}

// match finds the key of a secret, in a time that does not depend on which it is.
func match(keys []Key, secret string) (found Key, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	for _, k := range keys {
		if subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1 {
			found, ok = k, true
		}
	}
	return found, ok
}
