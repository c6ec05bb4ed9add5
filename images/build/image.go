package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image builds the image that s describes. It has read all files when it returns
// and keeps the compressed layer in memory. A file that changes while it is read
// is an error.
func Image(s Spec) (v1.Image, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("check image spec: %w", err)
	}
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(writeLayer(w, entries, s.created())) }()
		return r, nil
	}
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	base := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	base = mutate.ConfigMediaType(base, types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: s.created()}, CreatedBy: "image build"},
	})
	if err != nil {
		return nil, fmt.Errorf("append layer: %w", err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image configuration: %w", err)
	}
	img, err = mutate.ConfigFile(img, s.configure(cfg.DeepCopy()))
	if err != nil {
		return nil, fmt.Errorf("set image configuration: %w", err)
	}
	return img, nil
}

func (s Spec) created() time.Time {
	if s.Created.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return s.Created.UTC().Truncate(time.Second)
}

func (s Spec) configure(cfg *v1.ConfigFile) *v1.ConfigFile {
	uid, gid, _ := s.uidGID() // checked by Validate
	cfg.OS = "linux"
	cfg.Architecture = s.Architecture
	cfg.Created = v1.Time{Time: s.created()}
	cfg.Config.User = fmt.Sprintf("%d:%d", uid, gid)
	cfg.Config.Entrypoint = slices.Clone(s.Entrypoint)
	cfg.Config.Cmd = slices.Clone(s.Cmd)
	cfg.Config.Env = slices.Clone(s.Env)
	cfg.Config.Labels = maps.Clone(s.Labels)
	cfg.Config.WorkingDir = s.WorkingDir
	if cfg.Config.WorkingDir == "" {
		cfg.Config.WorkingDir = "/"
	}
	return cfg
}

// entry is one line of the layer: a tar header and where its bytes come from.
type entry struct {
	header tar.Header
	source string // path on the host, or
	data   []byte // the content itself
}

// entries lists the layer's content sorted by path, parents before children.
func (s Spec) entries() ([]entry, error) {
	uid, gid, err := s.uidGID()
	if err != nil {
		return nil, err
	}
	byPath := map[string]entry{}
	// Unknown owners confuse programs that ask for their home or name; these
	// two files are all that the C and Go libraries look at.
	passwd := "root:x:0:0:root:/:/sbin/nologin\n"
	group := "root:x:0:\n"
	passwd += fmt.Sprintf("nonroot:x:%d:%d:nonroot:/:/sbin/nologin\n", uid, gid)
	if gid != 0 {
		group += fmt.Sprintf("nonroot:x:%d:\n", gid)
	}
	byPath["/etc/passwd"] = dataEntry([]byte(passwd))
	byPath["/etc/group"] = dataEntry([]byte(group))
	for _, f := range s.Files {
		info, err := os.Stat(f.Source)
		if err != nil {
			return nil, fmt.Errorf("read file for %s: %w", f.Target, err)
		}
		byPath[f.Target] = entry{
			header: tar.Header{Typeflag: tar.TypeReg, Mode: int64(f.mode()), Size: info.Size()},
			source: f.Source,
		}
	}
	for _, l := range s.Links {
		byPath[l.Path] = entry{header: tar.Header{Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: l.Target}}
	}
	for _, d := range s.Dirs {
		byPath[d.Path] = dirEntry(int64(d.Mode))
	}
	for _, p := range slices.Collect(maps.Keys(byPath)) {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if e, ok := byPath[dir]; !ok {
				byPath[dir] = dirEntry(0o755)
			} else if e.header.Typeflag != tar.TypeDir {
				return nil, fmt.Errorf("place %s: %s is a file or link, not a directory", p, dir)
			}
		}
	}
	out := make([]entry, 0, len(byPath))
	for _, p := range slices.Sorted(maps.Keys(byPath)) {
		e := byPath[p]
		e.header.Name = p[1:]
		if e.header.Typeflag == tar.TypeDir {
			e.header.Name += "/"
		}
		out = append(out, e)
	}
	return out, nil
}

func dataEntry(data []byte) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}, data: data}
}

func dirEntry(mode int64) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeDir, Mode: mode}}
}

func writeLayer(w io.Writer, entries []entry, created time.Time) error {
	tw := tar.NewWriter(w)
	for _, e := range entries {
		h := e.header
		h.ModTime = created
		h.Format = tar.FormatUSTAR // the smallest format: no access times, no host's user names
		if err := tw.WriteHeader(&h); err != nil {
			return fmt.Errorf("write header of %s: %w", h.Name, err)
		}
		if err := copyContent(tw, e); err != nil {
			return fmt.Errorf("write %s: %w", h.Name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("end layer: %w", err)
	}
	return nil
}

func copyContent(w io.Writer, e entry) (err error) {
	if e.source == "" {
		_, err = io.Copy(w, bytes.NewReader(e.data))
		return err
	}
	f, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := io.Copy(w, f)
	if err != nil {
		return err
	}
	if n != e.header.Size {
		return fmt.Errorf("source %s changed while it was read: %d bytes, expected %d", e.source, n, e.header.Size)
	}
	return nil
}
