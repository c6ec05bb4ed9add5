package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/test/argo/internal/release"
)

func binaries(t *testing.T, key string) release.Binaries {
	t.Helper()
	bins := release.Binaries{Key: key, Dir: t.TempDir()}
	for _, p := range release.Programs() {
		require.NoError(t, os.WriteFile(bins.Path(p), []byte(p), 0o755))
	}
	return bins
}

func TestTagFollowsTheProgramsAndNotTheMachine(t *testing.T) {
	t.Parallel()
	one, other := Locate("/a", binaries(t, "one")), Locate("/b", binaries(t, "one"))
	require.Equal(t, one.Controller.Ref, other.Controller.Ref)
	require.NotEqual(t, one.Controller.Ref, Locate("/a", binaries(t, "two")).Controller.Ref)
	require.NotEqual(t, one.Controller.Ref, one.Executor.Ref)
	require.True(t, strings.HasPrefix(one.Executor.Ref, "rollcall.test/argo/argoexec:v3.7.18-"), one.Executor.Ref)
}

func TestArchivesAreMadeOnce(t *testing.T) {
	t.Parallel()
	cache, bins := t.TempDir(), binaries(t, "one")
	set, err := Make(cache, bins)
	require.NoError(t, err)
	require.Equal(t, Locate(cache, bins), set)
	before := stamps(t, set)
	again, err := Make(cache, bins)
	require.NoError(t, err)
	require.Equal(t, before, stamps(t, again))
}

func stamps(t *testing.T, s Set) []os.FileInfo {
	t.Helper()
	var out []os.FileInfo
	for _, i := range []Image{s.Controller, s.Executor} {
		info, err := os.Stat(i.File)
		require.NoError(t, err)
		out = append(out, info)
	}
	return out
}

func TestMissingProgramIsNamedAndLeavesNoArchive(t *testing.T) {
	t.Parallel()
	cache, bins := t.TempDir(), binaries(t, "one")
	require.NoError(t, os.Remove(bins.Path(release.Controller)))
	_, err := Make(cache, bins)
	require.ErrorContains(t, err, "/bin/workflow-controller")
	found, err := filepath.Glob(filepath.Join(cache, "images", "*", "*"))
	require.NoError(t, err)
	require.Empty(t, found)
}
