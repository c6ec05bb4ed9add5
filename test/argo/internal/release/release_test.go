package release

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func builder(t *testing.T) Builder {
	t.Helper()
	return Builder{Cache: t.TempDir(), Log: t.Logf}
}

func TestPinnedModuleIsWhatTheProxyServes(t *testing.T) {
	t.Parallel()
	dir, err := Download(t.Context())
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "manifests/base/workflow-controller/workflow-controller-deployment.yaml"))
}

func TestSourceCopyHasWhatTheModuleArchiveLacks(t *testing.T) {
	t.Parallel()
	module, err := Download(t.Context())
	require.NoError(t, err)
	for _, a := range additions {
		require.NoFileExists(t, filepath.Join(module, a.Path), "no longer needed")
	}
	src := t.TempDir()
	require.NoError(t, copySource(module, src))
	for _, a := range additions {
		require.FileExists(t, filepath.Join(src, a.Path))
	}
	for _, p := range Programs() {
		require.DirExists(t, filepath.Join(src, "cmd", p))
	}
	require.FileExists(t, filepath.Join(src, "go.sum"))
	require.NoDirExists(t, filepath.Join(src, "docs"))
	require.ErrorContains(t, copySource(src, t.TempDir()), "the module has this file by now")
}

func TestKeyDependsOnTheReleaseAndNotOnTheCache(t *testing.T) {
	t.Parallel()
	one, err := builder(t).Locate(t.Context())
	require.NoError(t, err)
	two, err := builder(t).Locate(t.Context())
	require.NoError(t, err)
	require.Equal(t, one.Key, two.Key)
	require.NotEqual(t, one.Dir, two.Dir)
	require.False(t, one.Complete())
}

func TestBuildOfThePinnedVersionIsStampedAsARelease(t *testing.T) {
	t.Parallel()
	flags := strings.Join(arguments("out"), " ")
	for _, want := range []string{
		"-X github.com/argoproj/argo-workflows/v3.version=v3.7.18", "v3.gitTag=v3.7.18", "v3.gitTreeState=clean", "-trimpath",
		"./cmd/workflow-controller ./cmd/argoexec ./cmd/argo",
	} {
		require.Contains(t, flags, want)
	}
}

func TestFinishedBuildIsFoundAgain(t *testing.T) {
	t.Parallel()
	b := builder(t)
	bins := complete(t, b)
	got, err := b.Build(t.Context())
	require.NoError(t, err)
	require.Equal(t, bins, got)
}

// complete fakes a finished build.
func complete(t *testing.T, b Builder) Binaries {
	t.Helper()
	bins, err := b.Locate(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(bins.Dir, 0o755))
	for _, p := range Programs() {
		require.NoError(t, os.WriteFile(bins.Path(p), nil, 0o755))
	}
	return bins
}

func TestWaitForAnotherBuildEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	b := builder(t)
	file := filepath.Join(b.Cache, "x.lock")
	unlock, err := b.lock(t.Context(), file)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = b.lock(ctx, file)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	unlock()
	unlock, err = b.lock(t.Context(), file)
	require.NoError(t, err)
	unlock()
}

func TestUnusedBuildsGoAndUsedOnesStay(t *testing.T) {
	t.Parallel()
	b := builder(t)
	bin := filepath.Join(b.Cache, "bin")
	old := time.Now().Add(-keepUnused - time.Hour)
	for _, name := range []string{"argo-v3.0.0-aaaa", "argo-v3.0.0-bbbb", "kube-aaaa"} {
		require.NoError(t, os.MkdirAll(filepath.Join(bin, name), 0o755))
		require.NoError(t, os.Chtimes(filepath.Join(bin, name), old, old))
	}
	now := time.Now()
	require.NoError(t, os.Chtimes(filepath.Join(bin, "argo-v3.0.0-bbbb"), now, now))
	b.prune()
	require.NoDirExists(t, filepath.Join(bin, "argo-v3.0.0-aaaa"))
	require.DirExists(t, filepath.Join(bin, "argo-v3.0.0-bbbb"))
	require.DirExists(t, filepath.Join(bin, "kube-aaaa"), "other programs' folders are not ours")
}

func TestProgressCountsPackagesAndKeepsMessages(t *testing.T) {
	t.Parallel()
	p := &progress{}
	for _, chunk := range []string{"k8s.io/api/co", "re/v1\ngithub.com/x/y\n# github.com/x/z\n", "z.go:1:2: undefined: q\n", "dial tcp 192.0.2.1:443: i/o time", "out"} {
		n, err := p.Write([]byte(chunk))
		require.NoError(t, err)
		require.Len(t, chunk, n)
	}
	n, last := p.state()
	require.Equal(t, 2, n)
	require.Equal(t, "github.com/x/y", last)
	require.Equal(t, "# github.com/x/z\nz.go:1:2: undefined: q\ndial tcp 192.0.2.1:443: i/o timeout", p.tail())
	require.True(t, p.network())
}

func TestCancelledBuildLeavesNothing(t *testing.T) {
	t.Parallel()
	b := builder(t)
	bins, err := b.Locate(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	b.Log = func(format string, args ...any) {
		t.Logf(format, args...)
		cancel(syscall.EINTR)
	}
	_, err = b.Build(ctx)
	require.Error(t, err)
	require.NoDirExists(t, bins.Dir)
	require.NoDirExists(t, bins.Dir+".work")
}
