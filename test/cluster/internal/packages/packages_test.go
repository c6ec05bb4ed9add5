package packages

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	t.Run("is placed and removed", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "policy-rc.d")
		require.NoError(t, placeGuard(path))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&0o111, "must be executable")
		require.NoError(t, placeGuard(path), "again, after an installation that was killed")
		require.NoError(t, removeGuard(path))
		require.NoFileExists(t, path)
		require.NoError(t, removeGuard(path), "again")
	})
	t.Run("leaves the machine's own policy alone", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "policy-rc.d")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), 0o755))
		require.NoError(t, placeGuard(path))
		require.NoError(t, removeGuard(path))
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "#!/bin/sh\nexit 0\n", string(raw))
	})
}

func TestLookNamesEveryProgramOrItsPackage(t *testing.T) {
	t.Parallel()
	found, missing := look()
	packages := map[string]bool{}
	for _, p := range missing {
		packages[p] = true
	}
	for program, pkg := range need {
		require.True(t, found[program] != "" || packages[pkg], program)
	}
	require.True(t, found[cniKey] != "" || packages[cniPackage], "network plugins")
}
