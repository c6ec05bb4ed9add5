package build_test

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/images/build"
)

const tag = "rollcall:dev"

// program writes a stand-in for a binary into a folder of its own, so that two
// calls give equal content at different paths and times.
func program(t *testing.T, content string, modified time.Time) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(p, []byte(content), 0o700))
	require.NoError(t, os.Chtimes(p, modified, modified))
	return p
}

func spec(source string) build.Spec {
	return build.Spec{
		Architecture: "amd64",
		Files:        []build.File{{Source: source, Target: "/usr/bin/rollcall", Executable: true}},
		Links:        []build.Link{{Path: "/usr/bin/stake", Target: "rollcall"}, {Path: "/usr/bin/plan", Target: "/usr/bin/rollcall"}},
		Dirs:         []build.Dir{{Path: "/tmp", Mode: 0o1777}},
		Entrypoint:   []string{"/usr/bin/rollcall"},
		Env:          []string{"PATH=/usr/bin"},
		Labels:       map[string]string{"org.opencontainers.image.title": "rollcall"},
	}
}

func image(t *testing.T, s build.Spec) v1.Image {
	t.Helper()
	img, err := build.Image(s)
	require.NoError(t, err)
	return img
}

func digest(t *testing.T, s build.Spec) string {
	t.Helper()
	sum, err := build.Summarize(image(t, s))
	require.NoError(t, err)
	require.Positive(t, sum.CompressedBytes)
	return sum.Digest
}

func TestDigestDependsOnlyOnContent(t *testing.T) {
	t.Parallel()
	now := time.Now()
	first := digest(t, spec(program(t, "same", now)))

	t.Run("the same content at another path, time and order gives the same digest", func(t *testing.T) {
		t.Parallel()
		s := spec(program(t, "same", now.Add(-time.Hour)))
		s.Links[0], s.Links[1] = s.Links[1], s.Links[0]
		require.Equal(t, first, digest(t, s))
	})

	changes := map[string]func(*build.Spec){
		"other file content":    func(s *build.Spec) { s.Files[0].Source = program(t, "different", now) },
		"a link more":           func(s *build.Spec) { s.Links = append(s.Links, build.Link{Path: "/usr/bin/scale", Target: "rollcall"}) },
		"another user":          func(s *build.Spec) { s.User = "8737:8737" },
		"another entrypoint":    func(s *build.Spec) { s.Entrypoint = []string{"/usr/bin/stake"} },
		"another creation time": func(s *build.Spec) { s.Created = now },
		"a label more":          func(s *build.Spec) { s.Labels["org.opencontainers.image.revision"] = "1" },
	}
	for change, apply := range changes {
		t.Run(change+" gives another digest", func(t *testing.T) {
			t.Parallel()
			s := spec(program(t, "same", now))
			apply(&s)
			require.NotEqual(t, first, digest(t, s))
		})
	}
}

func TestImageIsReadOnlyForItsUser(t *testing.T) {
	t.Parallel()
	img := image(t, spec(program(t, "#!", time.Now())))
	cfg, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "65532:65532", cfg.Config.User)
	require.Equal(t, "linux", cfg.OS)
	require.Equal(t, "/", cfg.Config.WorkingDir)

	headers, contents := layer(t, img)
	for p, h := range headers {
		require.Zero(t, h.Uid, p)
		require.Zero(t, h.Gid, p)
		require.Equal(t, int64(0), h.ModTime.Unix(), p)
		if p != "tmp/" && h.Typeflag != tar.TypeSymlink {
			require.Zero(t, h.Mode&0o022, "%s is writable for others than root", p)
		}
	}
	require.Equal(t, int64(0o1777), headers["tmp/"].Mode)
	require.Equal(t, int64(0o755), headers["usr/bin/rollcall"].Mode)
	require.Equal(t, "rollcall", headers["usr/bin/stake"].Linkname)
	require.Contains(t, contents["etc/passwd"], "nonroot:x:65532:65532:")
	require.Contains(t, contents["etc/group"], "nonroot:x:65532:")
}

func layer(t *testing.T, img v1.Image) (map[string]*tar.Header, map[string]string) {
	t.Helper()
	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	r, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	headers, contents := map[string]*tar.Header{}, map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return headers, contents
		}
		require.NoError(t, err)
		data, err := io.ReadAll(tr)
		require.NoError(t, err)
		headers[h.Name], contents[h.Name] = h, string(data)
	}
}

func TestBadSpecReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, err := build.Image(build.Spec{
		User:  "0:0",
		Files: []build.File{{Source: "/does/not/exist", Target: "usr/bin/x"}},
		Links: []build.Link{{Path: "/usr/bin/stake", Target: "nothing"}},
		Dirs:  []build.Dir{{Path: "/etc/passwd"}},
		Env:   []string{"PATH"},
	})
	for _, part := range []string{
		"architecture: missing", "entrypoint: missing", "must not be root", "clean absolute path", "no such file",
		"/usr/bin/nothing is not a file of the image", "has this path already", "want NAME=value",
	} {
		require.ErrorContains(t, err, part)
	}
}

func TestFileBelowAFileIsRefused(t *testing.T) {
	t.Parallel()
	s := spec(program(t, "x", time.Now()))
	s.Dirs = []build.Dir{{Path: "/usr/bin/rollcall/inside", Mode: 0o755}}
	_, err := build.Image(s)
	require.ErrorContains(t, err, "/usr/bin/rollcall is a file or link")
}

func TestImageNeedsItsSourcesNoLongerOnceBuilt(t *testing.T) {
	t.Parallel()
	p := program(t, strings.Repeat("x", 1<<20), time.Now())
	img := image(t, spec(p))
	require.NoError(t, os.Remove(p))
	require.NoError(t, build.WriteArchive(filepath.Join(t.TempDir(), "a.tar"), tag, img))
}

func TestArchiveAndLayoutHoldTheSameImage(t *testing.T) {
	t.Parallel()
	img := image(t, spec(program(t, "binary", time.Now())))
	want, err := img.ConfigName()
	require.NoError(t, err)
	wantDigest, err := img.Digest()
	require.NoError(t, err)
	dir := t.TempDir()

	archive := filepath.Join(dir, "rollcall.tar")
	require.NoError(t, build.WriteArchive(archive, tag, img))
	ref, err := name.NewTag(tag)
	require.NoError(t, err)
	read, err := tarball.ImageFromPath(archive, &ref)
	require.NoError(t, err)
	got, err := read.ConfigName()
	require.NoError(t, err)
	require.Equal(t, want, got)

	folder := filepath.Join(dir, "oci")
	require.NoError(t, build.WriteOCI(folder, tag, img))
	index, err := layout.ImageIndexFromPath(folder)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	require.Equal(t, wantDigest, manifest.Manifests[0].Digest)
	require.Equal(t, tag, manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	inLayout, err := index.Image(wantDigest)
	require.NoError(t, err)
	require.NoError(t, validate.Image(inLayout))
	require.ErrorContains(t, build.WriteOCI(folder, tag, img), "not empty")

	a, b := filepath.Join(dir, "a.tar"), filepath.Join(dir, "b.tar")
	require.NoError(t, build.WriteOCI(a, tag, img))
	require.NoError(t, build.WriteOCI(b, tag, img))
	require.Equal(t, content(t, a), content(t, b), "two OCI archives of one image differ")
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Empty(t, left, "temporary files are left behind")
}

func TestRootFolderHoldsWhatTheLayerHolds(t *testing.T) {
	t.Parallel()
	s := spec(program(t, "binary", time.Now()))
	headers, contents := layer(t, image(t, s))
	dir := filepath.Join(t.TempDir(), "root")
	require.NoError(t, build.WriteRoot(dir, s))
	found := 0
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name := strings.TrimPrefix(p, dir+"/")
		if d.IsDir() {
			name += "/"
		}
		h, ok := headers[name]
		require.True(t, ok, "%s is not in the layer", name)
		found++
		info, err := d.Info()
		require.NoError(t, err)
		require.Equal(t, h.FileInfo().Mode().String(), info.Mode().String(), name)
		switch h.Typeflag {
		case tar.TypeReg:
			require.Equal(t, contents[name], string(content(t, p)), name)
		case tar.TypeSymlink:
			target, err := os.Readlink(p)
			require.NoError(t, err)
			require.Equal(t, h.Linkname, target)
		}
		return nil
	}))
	require.Len(t, headers, found)
	require.ErrorContains(t, build.WriteRoot(dir, s), "not empty")
}

func content(t *testing.T, p string) []byte {
	t.Helper()
	b, err := os.ReadFile(p)
	require.NoError(t, err)
	return b
}

func TestFlagSyntax(t *testing.T) {
	t.Parallel()
	exe := program(t, "x", time.Now())

	f, err := build.ParseFile(exe + ":/usr/bin/x")
	require.NoError(t, err)
	require.Equal(t, build.File{Source: exe, Target: "/usr/bin/x", Executable: true}, f)
	l, err := build.ParseLink("/usr/bin/stake=rollcall")
	require.NoError(t, err)
	require.Equal(t, build.Link{Path: "/usr/bin/stake", Target: "rollcall"}, l)
	d, err := build.ParseDir("/tmp:1777")
	require.NoError(t, err)
	require.Equal(t, build.Dir{Path: "/tmp", Mode: 0o1777}, d)
	d, err = build.ParseDir("/data")
	require.NoError(t, err)
	require.Equal(t, build.Dir{Path: "/data", Mode: 0o755}, d)

	for _, bad := range []string{"x", ":x", "x:", "/does/not/exist:/x"} {
		_, err := build.ParseFile(bad)
		require.Error(t, err, bad)
	}
	for _, bad := range []string{"x", "=x", "x="} {
		_, err := build.ParseLink(bad)
		require.Error(t, err, bad)
	}
	for _, bad := range []string{"/tmp:9", "/tmp:", "/tmp:4755"} {
		_, err := build.ParseDir(bad)
		require.Error(t, err, bad)
	}
}
