package state

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
)

func TestRecords(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	_, err := d.Spec()
	require.ErrorIs(t, err, fs.ErrNotExist)
	run, err := d.Run()
	require.NoError(t, err)
	require.Zero(t, run)

	spec := Spec{Name: "a", Mode: Full, Port: 1, Kube: "/k", Images: map[string]string{"pause": "p:1"}}
	require.NoError(t, d.WriteSpec(spec))
	got, err := d.Spec()
	require.NoError(t, err)
	require.Equal(t, spec, got)

	want := Run{Daemon: proc.Identity{PID: 2, Start: 3}}
	require.NoError(t, d.WriteRun(want))
	run, err = d.Run()
	require.NoError(t, err)
	require.Equal(t, want, run)
	require.NoError(t, d.RemoveRun())
	require.NoError(t, d.RemoveRun(), "again")
}

func TestRemove(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		files []string
		err   error
	}{
		"a state folder goes":                 {[]string{"cluster.json", "log", "kubeconfig"}, nil},
		"an empty folder goes":                {nil, nil},
		"a folder of somebody else's remains": {[]string{"thesis.txt"}, ErrForeign},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Dir(t.TempDir())
			for _, f := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(string(d), f), nil, 0o600))
			}
			err := d.Remove()
			require.ErrorIs(t, err, c.err)
			if c.err != nil {
				for _, f := range c.files {
					require.FileExists(t, filepath.Join(string(d), f))
				}
				return
			}
			require.NoDirExists(t, string(d))
			require.NoError(t, d.Remove(), "again")
		})
	}
}
