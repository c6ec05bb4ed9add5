package sandbox

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func get(t *testing.T, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(raw)
}

func TestInherit(t *testing.T) {
	t.Parallel()
	parent, child := t.TempDir(), t.TempDir()
	put(t, parent, "cpuset.cpus", "0-1\n")
	put(t, child, "cpuset.cpus", "\n")
	require.NoError(t, inherit(parent, child, "cpuset.cpus"))
	require.Equal(t, "0-1\n", get(t, child, "cpuset.cpus"))
	require.NoError(t, inherit(parent, child, "cpuset.mems"), "a hierarchy that doesn't have it")
}

func TestDelegate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ available, enabled, want string }{
		"what is missing is enabled":      {"cpu memory", "cpu", "+memory"},
		"nothing is enabled twice":        {"cpu memory", "memory cpu", "memory cpu"},
		"what nobody needs is left alone": {"cpu rdma", "cpu", "cpu"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, "cgroup.controllers", c.available)
			put(t, dir, "cgroup.subtree_control", c.enabled)
			require.NoError(t, delegate(dir))
			require.Equal(t, c.want, get(t, dir, "cgroup.subtree_control"))
		})
	}
}

func TestCgroupVersionOfThisMachine(t *testing.T) {
	t.Parallel()
	v, err := CgroupVersion()
	require.NoError(t, err)
	all, err := hierarchies(v)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	require.NoError(t, RemoveCgroups(t.Context(), v, "rollcall-that-does-not-exist"), "nothing to remove is no error")
}

func TestForward(t *testing.T) {
	t.Parallel()
	listen := func() net.Listener {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		return l
	}
	server := listen()
	defer server.Close()
	go func() { // answers once it has read everything: the half close must arrive
		c, err := server.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		raw, err := io.ReadAll(c)
		if err == nil {
			_, _ = c.Write(append(raw, '!'))
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	front := listen()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Forward(ctx, front, server.Addr().String(), slog.New(slog.DiscardHandler))
	}()

	c, err := net.Dial("tcp4", front.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "hello!", string(got))

	cancel()
	<-ended
	_, err = net.Dial("tcp4", front.Addr().String())
	require.Error(t, err, "nothing listens after the end")
}

func TestReachRefusesWhatIsNoPort(t *testing.T) {
	t.Parallel()
	for _, port := range []int{0, -1, 65536} {
		require.ErrorContains(t, (&Reach{Address: "127.0.0.1"}).Open(t.Context(), port), "not a port")
	}
}

func TestOpenVolumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "old"), 0o700))
	require.NoError(t, OpenVolumes(t.Context(), dir, slog.New(slog.DiscardHandler)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "new"), 0o700))
	for _, v := range []string{"old", "new"} {
		require.Eventually(t, func() bool {
			info, err := os.Stat(filepath.Join(dir, v))
			return err == nil && info.Mode().Perm() == volumeMode
		}, limit, poll, v)
	}
}

const (
	limit = 10 * time.Second
	poll  = 10 * time.Millisecond
)
