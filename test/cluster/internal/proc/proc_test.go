package proc

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var table = NewTable()

// sh runs a script and returns its output once it has ended.
func sh(t *testing.T, script string) (*Process, string) {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	p, err := table.Start(Spec{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: write, Stderr: write})
	write.Close()
	require.NoError(t, err)
	out, err := io.ReadAll(read)
	require.NoError(t, err)
	<-p.Done()
	return p, string(out)
}

func TestProcessEnd(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ script, want string }{
		"exit code 0 is no error":             {"exit 0", ""},
		"another exit code is one":            {"exit 3", "exit code 3"},
		"so is a signal":                      {"kill -KILL $$", "killed by killed"},
		"a background child doesn't delay it": {"true & exit 4", "exit code 4"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := sh(t, c.script)
			if c.want == "" {
				require.NoError(t, p.Err())
			} else {
				require.EqualError(t, p.Err(), c.want)
			}
			require.NoError(t, p.Signal(syscall.SIGTERM), "signalling an ended process is no error")
		})
	}
}

func TestStartOfAMissingProgram(t *testing.T) {
	t.Parallel()
	_, err := table.Start(Spec{Path: "/nonexistent", Args: []string{"x"}})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestChildrenLeadTheirOwnSession(t *testing.T) {
	t.Parallel()
	// Otherwise a terminal's Ctrl-C would reach them.
	_, out := sh(t, "cut -d' ' -f6 /proc/$$/stat; echo $$")
	lines := strings.Fields(out)
	require.Equal(t, lines[1], lines[0])
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	me, err := Identify(os.Getpid())
	require.NoError(t, err)
	require.True(t, me.Alive())
	require.False(t, Identity{PID: me.PID, Start: me.Start + 1}.Alive(), "the same pid at another time is another process")
	require.False(t, Identity{}.Alive(), "no process is the zero identity")
	require.NoError(t, Identity{PID: me.PID, Start: me.Start + 1}.Signal(syscall.SIGKILL), "another process isn't signalled")
}

func TestFromNamespace(t *testing.T) {
	t.Parallel()
	pid, err := FromNamespace(os.Getpid(), os.Getpid())
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), pid)
	_, err = FromNamespace(os.Getpid(), 1<<30)
	require.ErrorIs(t, err, os.ErrNotExist)
}
