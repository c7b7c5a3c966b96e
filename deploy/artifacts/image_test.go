package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// images are two builds of the same sources, made once for all tests.
var images = sync.OnceValues(func() (built [2]v1.Image, err error) {
	for i := range built {
		if built[i], err = (build{dir: "../..", pkg: "./cmd/host", arch: runtime.GOARCH}).image(); err != nil {
			return built, err
		}
	}
	return built, nil
})

func theImage(t *testing.T) v1.Image {
	t.Helper()
	built, err := images()
	if err != nil {
		t.Fatal(err)
	}
	return built[0]
}

// stored is the image as it is read back from a layout.
func stored(t *testing.T, image v1.Image) v1.Image {
	t.Helper()
	at, err := layout.Write(t.TempDir(), mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image}))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	read, err := at.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestImageIsReproducibleAndWhole(t *testing.T) {
	t.Parallel()
	built, err := images()
	if err != nil {
		t.Fatal(err)
	}
	var digests [2]v1.Hash
	for i, image := range built {
		if err := validate.Image(stored(t, image)); err != nil {
			t.Error(err)
		}
		if digests[i], err = image.Digest(); err != nil {
			t.Error(err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds of the same sources are %s and %s", digests[0], digests[1])
	}
	config, err := built[0].ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/usr/local/bin/host" || c.StopSignal != "SIGTERM" {
		t.Errorf("config %+v", c)
	}
}

// What is written can be read back, as a layout and as docker load reads it.
func TestImageIsWritten(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	b := build{dir: "../..", pkg: "./cmd/host", arch: runtime.GOARCH, version: "v1.2.3"}
	if err := write(b, "pgmill/host:v1.2.3", out); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "image"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	loaded, err := tarball.ImageFromPath(filepath.Join(out, "image.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := loaded.ConfigFile()
	if err != nil || config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("%v, labels %v", err, config.Config.Labels)
	}
}

// One program, and nothing that it would need from elsewhere.
func TestImageHoldsAStaticProgramAndRoots(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := unpack(theImage(t), root); err != nil {
		t.Fatal(err)
	}
	var programs []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if info, ierr := d.Info(); err == nil && ierr == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			programs = append(programs, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil || len(programs) != 1 || programs[0] != "/usr/local/bin/host" {
		t.Errorf("programs %q, %v", programs, err)
	}
	roots, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if n := strings.Count(string(roots), "BEGIN CERTIFICATE"); err != nil || n < 100 {
		t.Errorf("%d roots, %v", n, err)
	}
	said, err := exec.Command("go", "version", "-m", filepath.Join(root, "usr/local/bin/host")).CombinedOutput()
	if err != nil || !strings.Contains(string(said), "CGO_ENABLED=0") {
		t.Errorf("%v: %s", err, said)
	}
}
