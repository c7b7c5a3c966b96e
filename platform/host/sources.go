package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/pgmill/pgmill/platform/policy"
)

// sources are where settings come from; a test gives its own.
type sources struct {
	flags   *pflag.FlagSet // nil: none
	environ []string       // as of os.Environ
}

// value is a setting's value and where it came from, for the fault that names it.
type value struct {
	text string
	from string // "--grace", "PGMILL_GRACE", "grace in pgmill.yaml"
	env  bool
}

// layer is a koanf provider of what is already in hand.
type layer map[string]any

func (l layer) Read() (map[string]any, error) { return l, nil }
func (l layer) ReadBytes() ([]byte, error)    { return nil, fmt.Errorf("a layer has no bytes") }

// merge layers default, profile, file, environment and flags. All that is wrong is
// in faults; what could be read is in values nevertheless, so that the rest is
// checked too.
func (in sources) merge() (values map[string]value, profile Profile, faults []error) {
	m := merger{k: koanf.New("."), values: map[string]value{}}
	envLayer := m.environment(in.environ)
	flagLayer := m.flags(in.flags)

	path, _ := first("config", flagLayer, envLayer)
	fileLayer := m.file(path)
	profile = m.profile(flagLayer, envLayer, fileLayer)

	preset := layer{}
	for _, s := range settings {
		if s.preset != "" {
			preset[s.key] = s.preset
		}
	}
	m.add(preset, func(s setting) value { return value{from: "default of " + s.key} })
	m.add(m.known(profile.Settings, "profile "+profile.Name), func(s setting) value { return value{from: s.key + " of profile " + profile.Name} })
	if len(profile.Functions) > 0 {
		m.add(layer{"functions": profile.Functions}, func(setting) value { return value{from: "functions of profile " + profile.Name} })
	}
	m.add(fileLayer, func(s setting) value { return value{from: s.key + " in " + path} })
	m.add(envLayer, func(s setting) value { return value{from: m.envName(s), env: true} })
	m.add(flagLayer, func(s setting) value { return value{from: "--" + s.flag} })
	return m.values, profile, m.faults
}

type merger struct {
	k      *koanf.Koanf
	values map[string]value
	faults []error
	asFile map[string]bool // keys whose variable was the _FILE one
}

// add puts a layer on top and notes where its values came from.
func (m *merger) add(l layer, from func(setting) value) {
	if err := m.k.Load(l, nil); err != nil {
		m.faults = append(m.faults, faultf("%v", err))
		return
	}
	for key := range l {
		s, _ := settingBy(func(s setting) string { return s.key }, key)
		v := from(s)
		if s.kind.isList {
			v.text = strings.Join(m.k.Strings(key), ",")
			if t, ok := l[key].(string); ok {
				v.text = t
			}
		} else {
			v.text = m.k.String(key)
		}
		m.values[key] = v
	}
}

func (m *merger) flags(set *pflag.FlagSet) layer {
	if set == nil {
		return nil
	}
	k := koanf.New(".")
	err := k.Load(posflag.ProviderWithFlag(set, ".", nil, func(f *pflag.Flag) (string, any) {
		s, ok := settingBy(func(s setting) string { return s.flag }, f.Name)
		if !ok {
			return "", nil
		}
		return s.key, f.Value.String()
	}), nil)
	if err != nil {
		m.faults = append(m.faults, faultf("flags: %v", err))
	}
	return k.Raw()
}

func (m *merger) file(path string) layer {
	if path == "" {
		return nil
	}
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		m.faults = append(m.faults, faultf("config file %s: %s", path, policy.Redact(err.Error())))
		return nil
	}
	return m.known(k.Raw(), "config file "+path)
}

// known takes from a file's settings those that there are; the rest are faults.
func (m *merger) known(raw map[string]any, where string) layer {
	l := layer{}
	for _, key := range sorted(raw) {
		s, ok := settingBy(func(s setting) string { return s.key }, key)
		switch _, nested := raw[key].(map[string]any); {
		case !ok || key == "config":
			m.faults = append(m.faults, faultf("%s: no setting %q%s", where, key, didYouMean(key, keys())))
		case nested, raw[key] == nil, !s.kind.isList && isList(raw[key]):
			m.faults = append(m.faults, faultf("%s: %s: write one value", where, key))
		default:
			l[key] = raw[key]
		}
	}
	return l
}

// profile reads the profile that is asked for.
func (m *merger) profile(flags, env, file layer) Profile {
	name, named := first("profile", flags, env, file)
	path, filed := first("profile_file", flags, env, file)
	var p Profile
	var err error
	switch {
	case named && filed:
		err = faultf("profile and profile-file are both set: leave one")
	case filed:
		p, err = readProfile(path)
	case named:
		p, err = shippedProfile(name)
	default:
		p, err = shippedProfile("local")
	}
	if err != nil {
		m.faults = append(m.faults, err)
	}
	return p
}

// first is the value of a key in the first layer that has it.
func first(key string, layers ...layer) (string, bool) {
	for _, l := range layers {
		if v, ok := l[key]; ok {
			return fmt.Sprint(v), true
		}
	}
	return "", false
}

func isList(v any) bool { _, ok := v.([]any); return ok }

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}
