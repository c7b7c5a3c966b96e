package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user that the image runs as, by number: that is what Kubernetes'
// runAsNonRoot can check.
const nobody = "65532:65532"

// build says what goes into an image.
type build struct {
	dir, pkg      string // a module's folder, and the main package in it
	arch, version string
}

// image is the whole image: one layer, nothing below it. Times are zero, so that the
// digest says what is in it and not when it was made.
func (b build) image() (v1.Image, error) {
	host, err := b.compile()
	if err != nil {
		return nil, err
	}
	files, err := layer(host)
	if err != nil {
		return nil, err
	}
	packed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{Layer: packed, MediaType: types.OCILayer, History: v1.History{CreatedBy: "deploy/artifacts"}}); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", b.arch
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{
		User:       nobody,
		WorkingDir: "/",
		Entrypoint: []string{"/usr/local/bin/host"},
		Cmd:        []string{"serve"},
		// No Postgres is in here, hence the profile; probes are asked from outside.
		Env:          []string{"PATH=/usr/local/bin", "PGMILL_PROFILE=single-db-pilot", "PGMILL_ADDR=:8081"},
		ExposedPorts: map[string]struct{}{"8081/tcp": {}},
		StopSignal:   "SIGTERM",
		Labels:       b.labels(),
	}
	return mutate.ConfigFile(image, config)
}

func (b build) labels() map[string]string {
	l := map[string]string{
		"org.opencontainers.image.title":    "pgmill host",
		"org.opencontainers.image.source":   "https://github.com/pgmill/pgmill",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	if b.version != "" {
		l["org.opencontainers.image.version"] = b.version
	}
	return l
}

// compile builds the static binary. Time zones are in it, by package platform.
func (b build) compile() ([]byte, error) {
	dir, err := os.MkdirTemp("", "pgmill-image-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "host")
	c := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o", path, b.pkg)
	c.Dir = b.dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+b.arch, "PWD=")
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build %s in %s: %w\n%s", b.pkg, b.dir, err, out)
	}
	return os.ReadFile(path)
}

// layer is the tar of all files.
func layer(host []byte) ([]byte, error) {
	var roots bytes.Buffer
	for c := range bundle.Roots() {
		if c.Constraint != nil {
			continue // a file cannot say that a root is trusted for some certificates only
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate}); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		mode fs.FileMode
		text []byte // nil: a folder
	}{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnobody:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/none\nnobody:x:65532:65532:nobody:/:/none\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{"usr/local/bin/", 0o755, nil},
		{"usr/local/bin/host", 0o755, host},
	} {
		h := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.text)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.text == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
