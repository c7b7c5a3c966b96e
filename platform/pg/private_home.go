package pg

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// home is the directory of one private Postgres: data/, password, port, log and
// the locks. All but data/ belong to who starts it; data/ belongs to the user
// that the server runs as.
type home struct {
	dir  string
	cred *syscall.Credential // nil: the server runs as ourselves
}

func (h home) path(name string) string { return filepath.Join(h.dir, name) }

// openHome makes dir if it is missing ("" means the default, see
// PrivateOptions) and refuses one that belongs to somebody else or that the
// server's user could not reach.
func openHome(dir string) (home, error) {
	cred, err := serverUser()
	if err != nil {
		return home{}, err
	}
	if dir == "" {
		dir, err = defaultDir(cred)
	} else {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return home{}, err
	}
	mode := os.FileMode(0o700)
	if cred != nil {
		mode = 0o711 // the server's user passes through to data/
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return home{}, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return home{}, err
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || stat == nil || int(stat.Uid) != os.Geteuid() {
		return home{}, fmt.Errorf("%s is not a directory of uid %d", dir, os.Geteuid())
	}
	if err := os.Chmod(dir, mode); err != nil { // the umask may have taken some
		return home{}, err
	}
	if cred != nil && !reachable(dir, cred) {
		return home{}, fmt.Errorf("uid %d, which the server runs as, cannot reach %s", cred.Uid, dir)
	}
	return home{dir: dir, cred: cred}, nil
}

// serverUser is who runs the server when we are root, which Postgres refuses:
// postgres, or else nobody. nil means ourselves.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("root may not run Postgres, and there is no user postgres or nobody")
}

func defaultDir(cred *syscall.Credential) (string, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if cwd, err = filepath.EvalSymlinks(cwd); err != nil {
		return "", err
	}
	if cred == nil || reachable(cwd, cred) {
		return filepath.Join(cwd, ".pgmill"), nil
	}
	sum := sha256.Sum256([]byte(cwd))
	return filepath.Join("/var/lib/pgmill", hex.EncodeToString(sum[:8])), nil
}

// reachable reports whether the mode bits let cred pass through dir and all the
// directories above it.
func reachable(dir string, cred *syscall.Credential) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		need := os.FileMode(0o001)
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == cred.Uid {
			need = 0o100
		} else if ok && stat.Gid == cred.Gid {
			need = 0o010
		}
		if info.Mode().Perm()&need == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// dsn is the URL of a database, from the files that the keeper wrote.
func (h home) dsn(database string) (string, error) {
	password, err := os.ReadFile(h.path("password"))
	if err != nil {
		return "", err
	}
	port, err := h.port()
	if err != nil {
		return "", err
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("pgmill", string(password)),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String(), nil
}

// port is the kept port; the error is fs.ErrNotExist before the first start.
func (h home) port() (int, error) {
	text, err := os.ReadFile(h.path("port"))
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", h.path("port"), err)
	}
	return port, nil
}

// newPort keeps a port that is free now. It lies below the range from which
// Linux takes the ports of outgoing connections, or one of those could be in
// the way when the server comes back.
func (h home) newPort() (int, error) {
	for range 100 {
		port := 15000 + rand.IntN(17000)
		if portFree(port) {
			return port, writeFile(h.path("port"), strconv.Itoa(port)+"\n")
		}
	}
	return 0, errors.New("no free port between 15000 and 32000")
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// writeFile replaces a private file in one step: readers see the old or the new.
func writeFile(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
