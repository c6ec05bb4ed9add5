package archive

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(program, []byte("ELF"), 0o755))
	a, b := filepath.Join(dir, "x", "a.tar"), filepath.Join(dir, "b.tar")
	require.NoError(t, Write(a, "rollcall.internal/p:1", program))
	require.NoError(t, Write(b, "rollcall.internal/p:1", program))
	rawA, err := os.ReadFile(a)
	require.NoError(t, err)
	rawB, err := os.ReadFile(b)
	require.NoError(t, err)
	require.Equal(t, rawA, rawB, "the same program must give the same bytes")

	tag, err := name.NewTag("rollcall.internal/p:1")
	require.NoError(t, err)
	image, err := tarball.ImageFromPath(a, &tag)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, []string{"/main"}, config.Config.Entrypoint)
	require.Equal(t, "linux", config.OS)
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.tar")
	require.ErrorContains(t, Write(path, "Not A Name", "/dev/null"), "parse image name")
	require.ErrorIs(t, Write(path, "rollcall.internal/p:1", "/nonexistent"), os.ErrNotExist)
	require.NoFileExists(t, path)
}
