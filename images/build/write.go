package build

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// refNameAnnotation is where an OCI layout keeps an image's tag (OCI image
// specification, annotations).
const refNameAnnotation = "org.opencontainers.image.ref.name"

// WriteArchive writes img as a docker-archive, the form that
// "ctr images import" and "docker load" read. A short tag such as "rollcall:dev"
// is imported by containerd as docker.io/library/rollcall:dev, which is also what
// a pod's "image: rollcall:dev" means. The file appears complete or not at all.
func WriteArchive(file, tag string, img v1.Image) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("parse tag: %w", err)
	}
	return writeWhole(file, func(w io.Writer) error {
		if err := tarball.Write(ref, img, w); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
		return nil
	})
}

// WriteOCI writes img as an OCI image layout: a tar file if target ends in
// ".tar", else a folder, which must not exist yet or be empty.
func WriteOCI(target, tag string, img v1.Image) (err error) {
	if _, err := name.NewTag(tag); err != nil {
		return fmt.Errorf("parse tag: %w", err)
	}
	if !strings.HasSuffix(target, ".tar") {
		return writeLayout(target, tag, img)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(target), ".oci-*")
	if err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := writeLayout(tmp, tag, img); err != nil {
		return err
	}
	return writeWhole(target, func(w io.Writer) error { return tarFolder(w, tmp) })
}

func writeLayout(dir, tag string, img v1.Image) error {
	if old, err := os.ReadDir(dir); err == nil && len(old) > 0 {
		return fmt.Errorf("write OCI layout: folder %s is not empty; remove it or name another", dir)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add:        img,
		Descriptor: v1.Descriptor{Annotations: map[string]string{refNameAnnotation: tag}},
	})
	if _, err := layout.Write(dir, index); err != nil {
		return fmt.Errorf("write OCI layout: %w", err)
	}
	return nil
}

// WriteRoot writes the image's file system into dir, which must not exist yet or
// be empty: for a Dockerfile that copies it, so that both ways of building give
// the same files. Owners are not set: the files belong to whoever runs this,
// root in a Dockerfile.
func WriteRoot(dir string, s Spec) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("check image spec: %w", err)
	}
	if old, err := os.ReadDir(dir); err == nil && len(old) > 0 {
		return fmt.Errorf("write root file system: folder %s is not empty; remove it or name another", dir)
	}
	entries, err := s.entries()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make root folder: %w", err)
	}
	for _, e := range entries {
		if err := e.place(filepath.Join(dir, filepath.FromSlash(e.header.Name))); err != nil {
			return fmt.Errorf("write %s: %w", e.header.Name, err)
		}
	}
	return nil
}

// place makes the entry at p, whose parent exists.
func (e entry) place(p string) (err error) {
	switch e.header.Typeflag {
	case tar.TypeDir:
		if err := os.Mkdir(p, 0o755); err != nil {
			return err
		}
		return os.Chmod(p, e.header.FileInfo().Mode())
	case tar.TypeSymlink:
		return os.Symlink(e.header.Linkname, p)
	default:
		f, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return errors.Join(copyContent(f, e), f.Chmod(e.header.FileInfo().Mode()), f.Close())
	}
}

// tarFolder writes the files below dir in lexical order, without owner and time.
func tarFolder(w io.Writer, dir string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(rel), Mode: 0o644, Size: info.Size(), Format: tar.FormatUSTAR}
		if err := tw.WriteHeader(&h); err != nil {
			return err
		}
		return copyContent(tw, entry{header: h, source: p})
	})
	if err != nil {
		return fmt.Errorf("archive OCI layout: %w", err)
	}
	return tw.Close()
}

// writeWhole writes to a temporary file beside the target and renames it, so
// that a reader never finds half an image and a failed build leaves the old one.
func writeWhole(file string, write func(io.Writer) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".image-*")
	if err != nil {
		return fmt.Errorf("make temporary file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if err = errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), file); err != nil {
		return fmt.Errorf("put file in place: %w", err)
	}
	return nil
}

// Summary is what a caller wants to know of a finished image.
type Summary struct {
	// Digest is the manifest's digest, "sha256:...".
	Digest string
	// ConfigDigest is the image ID that container runtimes list.
	ConfigDigest string
	// CompressedBytes is what a first pull transfers: layers and configuration.
	CompressedBytes int64
}

// Summarize computes the digests and the compressed size of img.
func Summarize(img v1.Image) (Summary, error) {
	digest, err := img.Digest()
	if err != nil {
		return Summary{}, fmt.Errorf("compute digest: %w", err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return Summary{}, fmt.Errorf("read manifest: %w", err)
	}
	size := manifest.Config.Size
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return Summary{Digest: digest.String(), ConfigDigest: manifest.Config.Digest.String(), CompressedBytes: size}, nil
}
