package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

func options(t *testing.T) Options {
	t.Helper()
	return Options{Name: "one", CacheDir: t.TempDir(), Mode: state.ControlPlane, ProxyMode: "nftables", Log: t.Logf}
}

func TestNewChecksOptions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*Options)
		want   string
	}{
		"the defaults are fine":                {func(*Options) {}, ""},
		"a name with a slash is refused":       {func(o *Options) { o.Name = "a/b" }, `name "a/b"`},
		"an empty name is refused":             {func(o *Options) { o.Name = "" }, `name ""`},
		"a name with capitals is refused":      {func(o *Options) { o.Name = "One" }, `name "One"`},
		"a name that is too long is refused":   {func(o *Options) { o.Name = "a123456789012345678901234567890123456789x" }, "up to 40"},
		"a port beyond the last is refused":    {func(o *Options) { o.Port = 65536 }, "port 65536"},
		"a negative port is refused":           {func(o *Options) { o.Port = -1 }, "port -1"},
		"an unknown proxy mode is refused":     {func(o *Options) { o.ProxyMode = "ipvs" }, `"ipvs": use nftables or iptables`},
		"an unknown cgroup version is refused": {func(o *Options) { o.CgroupVersion = 3 }, "version 3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			c.change(&o)
			_, err := New(o)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrBadOption)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestOpenPort(t *testing.T) {
	t.Parallel()
	t.Run("many at once get different ports", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		ports := map[int]bool{}
		var wg sync.WaitGroup
		const many = 50
		for range many {
			wg.Add(1)
			go func() {
				defer wg.Done()
				f, port, err := openPort(0, false)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { f.Close() })
				ports[port] = true
			}()
		}
		wg.Wait()
		require.Len(t, ports, many)
	})
	t.Run("a held port refuses connections", func(t *testing.T) {
		t.Parallel()
		f, port, err := openPort(0, false)
		require.NoError(t, err)
		defer f.Close()
		_, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		require.ErrorContains(t, err, "connection refused")
	})
	t.Run("a port in use is refused", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		for _, listening := range []bool{true, false} {
			_, _, err = openPort(port, listening)
			require.ErrorContains(t, err, "choose another with --port")
		}
	})
}

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := lock(t.Context(), path, func() {})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	busy := make(chan struct{})
	waiting := make(chan error)
	go func() {
		_, err := lock(ctx, path, func() { close(busy) })
		waiting <- err
	}()
	<-busy
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)

	unlock()
	require.NoFileExists(t, path, "a free lock leaves no file")
	unlock, err = lock(t.Context(), path, func() {})
	require.NoError(t, err)
	unlock()
}

func TestLockExcludes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.lock")
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			unlock, err := lock(t.Context(), path, func() {})
			if err != nil {
				t.Error(err)
				return
			}
			if !mu.TryLock() {
				t.Error("two hold the lock")
			} else {
				mu.Unlock()
			}
			unlock()
		}()
	}
	wg.Wait()
}

func TestEnvIsSafeShell(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.State = filepath.Join(t.TempDir(), "it's $HOME `here`")
	c, err := New(o)
	require.NoError(t, err)
	require.ErrorIs(t, c.Env(&bytes.Buffer{}), ErrNotUp)
	require.NoError(t, os.MkdirAll(o.State, 0o700))
	require.NoError(t, c.dir.WriteSpec(state.Spec{Name: "one"}))
	var out bytes.Buffer
	require.NoError(t, c.Env(&out))
	got, err := exec.Command("sh", "-c", out.String()+`printf %s "$KUBECONFIG"`).Output()
	require.NoError(t, err)
	require.Equal(t, c.dir.Kubeconfig(), string(got))
}

func TestDownOfAClusterThatDoesNotExist(t *testing.T) {
	t.Parallel()
	c, err := New(options(t))
	require.NoError(t, err)
	require.NoError(t, c.Down(t.Context(), false))
}

func TestUpRefusesSomebodyElsesFolder(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.State = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(o.State, "thesis.txt"), nil, 0o600))
	c, err := New(o)
	require.NoError(t, err)
	_, err = c.Up(t.Context())
	require.ErrorIs(t, err, state.ErrForeign)
	require.FileExists(t, filepath.Join(o.State, "thesis.txt"))
}

func TestWatchLifeline(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		write string
		want  error
	}{
		"an end before the word abandons": {"", errAbandoned},
		"another word abandons":           {"x", errAbandoned},
		"the word detaches":               {string(detach), nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			read, write := net.Pipe()
			go func() {
				_, err := write.Write([]byte(c.write))
				if err == nil || !errors.Is(err, os.ErrClosed) {
					write.Close()
				}
			}()
			watchLifeline(read, cancel)
			require.Equal(t, c.want, context.Cause(ctx))
		})
	}
}

func TestComponentNamesOfAControlPlane(t *testing.T) {
	t.Parallel()
	require.Equal(t, "controlplane", component(state.Spec{Mode: state.ControlPlane}, "kube-apiserver"))
	require.Equal(t, "kube-apiserver", component(state.Spec{Mode: state.Full}, "kube-apiserver"))
	require.Equal(t, "other", component(state.Spec{Mode: state.ControlPlane}, "other"))
}

func TestFindSource(t *testing.T) {
	t.Parallel()
	got, err := FindSource()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(got, marker))
	o := options(t)
	o.Source = t.TempDir()
	c, err := New(o)
	require.NoError(t, err)
	_, err = c.source()
	require.ErrorIs(t, err, ErrNoSource)
}

func TestGoneReportsUntilTheEnd(t *testing.T) {
	t.Parallel()
	alive := true
	check := gone(func() bool { return alive })
	require.ErrorIs(t, check(t.Context()), errAlive)
	alive = false
	require.NoError(t, check(t.Context()))
}
