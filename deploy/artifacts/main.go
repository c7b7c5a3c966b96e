package main

import (
	"archive/tar"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	b := build{}
	flag.StringVar(&b.dir, "dir", "../..", "the folder of the module to build")
	flag.StringVar(&b.pkg, "main", "./cmd/host", "the package of the host, in that module")
	flag.StringVar(&b.arch, "arch", runtime.GOARCH, "amd64 or arm64")
	flag.StringVar(&b.version, "version", "", "the version that the image is labelled with (none: no label)")
	tag := flag.String("tag", "pgmill/host:latest", "what docker load calls it")
	out := flag.String("out", "../../.bin", "the folder to write image/ and image.tar to")
	flag.Parse()
	if err := write(b, *tag, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write builds the image and leaves it in out, as a layout and as a tarball.
func write(b build, tag, out string) error {
	image, err := b.image()
	if err != nil {
		return err
	}
	ref, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	dir, file := filepath.Join(out, "image"), filepath.Join(out, "image.tar")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: b.arch}}})
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	if err := tarball.WriteToFile(file, ref, image); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%s, %s as %s\n", digest, dir, file, tag)
	return nil
}

// unpack writes the image's files to root, as an engine would.
func unpack(image v1.Image, root string) error {
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(root, filepath.Clean("/"+h.Name))
		mode := fs.FileMode(h.Mode & 0o777)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, mode)
		} else {
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, text, mode)
			}
		}
		if err == nil {
			err = os.Chmod(path, mode) // the umask may have taken some
		}
		if err != nil {
			return err
		}
	}
}
