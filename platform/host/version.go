package host

import (
	"cmp"
	"runtime/debug"
	"sync"
)

// modulePath is how this module is found in the build of a host of one's own.
const modulePath = "github.com/pgmill/pgmill"

// Version is the version of pgmill in this program: a release, or the commit it was
// built from; "devel" if neither is known.
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, dep := range info.Deps {
		if dep.Path == modulePath {
			return released(dep.Version, "")
		}
	}
	var commit, modified string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	return released(info.Main.Version, commit+modified)
})

func released(version, commit string) string {
	if version == "(devel)" {
		version = ""
	}
	return cmp.Or(version, commit, "devel")
}
