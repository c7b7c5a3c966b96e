package host

import (
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
)

// otherEnv are variables of ours that other programs or packages read.
var otherEnv = []string{"PGMILL_PG_BIN", "PGMILL_PRIVATE_POSTGRES", "PGMILL_URL", "PGMILL_API_KEY", "PGMILL_API_KEY_FILE"}

// environment takes our variables from the environment.
func (m *merger) environment(environ []string) layer {
	m.asFile = map[string]bool{}
	k := koanf.New(".")
	// Sorted, so that the same environment gives the same faults in the same order.
	environ = slices.Sorted(slices.Values(environ))
	err := k.Load(env.Provider("", env.Opt{
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, text string) (string, any) {
			key, v, err := m.variable(name, text, environ)
			if err != nil {
				m.faults = append(m.faults, err)
			}
			return key, v
		},
	}), nil)
	if err != nil {
		m.faults = append(m.faults, faultf("environment: %v", err))
	}
	return k.Raw()
}

// variable says which setting an environment variable is; "" is none of ours.
func (m *merger) variable(name, text string, environ []string) (key string, v any, err error) {
	byEnv := func(s setting) string { return s.env }
	if s, ok := settingBy(byEnv, name); ok {
		if text == "" {
			return "", nil, nil
		}
		return s.key, text, nil
	}
	base, isFile := strings.CutSuffix(name, "_FILE")
	if s, ok := settingBy(byEnv, base); ok && isFile && s.secret {
		if text == "" {
			return "", nil, nil
		}
		if slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, base+"=") && len(e) > len(base)+1 }) {
			return "", nil, faultf("%s and %s are both set: leave one", base, name)
		}
		secret, err := readSecret(name, text)
		m.asFile[s.key] = true
		if err != nil && s.kind.name == dsn.name {
			secret = "postgres:///" // stands in, so that its absence is no second fault
		}
		return s.key, secret, err
	}
	if !strings.HasPrefix(name, "PGMILL_") || strings.HasPrefix(name, "PGMILL_TEST_") || slices.Contains(otherEnv, name) {
		return "", nil, nil
	}
	return "", nil, faultf("%s: no such setting%s", name, didYouMean(name, envNames()))
}

// envName is the variable that a setting came from.
func (m *merger) envName(s setting) string {
	if m.asFile[s.key] {
		return s.env + "_FILE"
	}
	return s.env
}
