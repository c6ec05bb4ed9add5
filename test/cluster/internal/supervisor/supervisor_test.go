package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sethvargo/go-retry"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
)

// table reaps every child of the test binary; there must be one only.
var table = proc.NewTable()

// shell is a component that runs a script.
func shell(t *testing.T, name, script string) Component {
	t.Helper()
	return Component{
		Name: name, Path: "/bin/sh", Args: []string{"sh", "-c", script},
		Env: []string{"PATH=/usr/bin:/bin"}, Log: filepath.Join(t.TempDir(), name+".log"), StopLimit: 5 * time.Second,
	}
}

const forever = "while :; do sleep 0.05; done"

// supervise runs components until the test ends.
func supervise(t *testing.T, components ...Component) *Supervisor {
	t.Helper()
	s := New(table, slog.New(slog.DiscardHandler), components)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s
}

func eventually(t *testing.T, cond func() error) {
	t.Helper()
	var last error
	err := retry.Do(t.Context(), retry.WithMaxDuration(20*time.Second, retry.NewConstant(10*time.Millisecond)), func(context.Context) error {
		last = cond()
		return retry.RetryableError(last)
	})
	if err != nil {
		t.Fatal(last)
	}
}

// inState waits until the only component is in a state, and returns its status.
func inState(t *testing.T, s *Supervisor, state string) Status {
	t.Helper()
	var got Status
	eventually(t, func() error {
		if got = s.Statuses()[0]; got.State != state {
			return errors.New("is " + got.State + ", not " + state)
		}
		return nil
	})
	return got
}

func TestAComponentThatEndsIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := supervise(t, shell(t, "a", "exit 7"))
	eventually(t, func() error {
		if st := s.Statuses()[0]; st.Restarts < 2 || st.LastError != "exit code 7" {
			return errors.New("not started again yet, or for the wrong reason: " + st.LastError)
		}
		return nil
	})
}

func TestActions(t *testing.T) {
	t.Parallel()
	s := supervise(t, shell(t, "a", forever))
	first := inState(t, s, Running)
	do := func(a Action) { t.Helper(); require.NoError(t, s.Do(t.Context(), "a", a)) }

	do(Freeze)
	require.Equal(t, Frozen, s.Statuses()[0].State)
	do(Thaw)
	require.Equal(t, Running, s.Statuses()[0].State)
	do(Stop)
	require.Equal(t, Stopped, s.Statuses()[0].State)
	do(Stop) // again
	do(Start)
	do(Start) // again
	second := s.Statuses()[0]
	require.NotEqual(t, first.PID, second.PID)
	do(Restart)
	third := s.Statuses()[0]
	require.NotEqual(t, second.PID, third.PID)
	require.Zero(t, third.Restarts, "what was asked for doesn't count as a restart")
	do(Kill)
	eventually(t, func() error {
		if st := s.Statuses()[0]; st.PID == third.PID || st.PID == 0 || st.Restarts != 1 {
			return errors.New("not started again yet")
		}
		return nil
	})
	do(Freeze)
	do(Stop) // a frozen component can be stopped

	require.ErrorIs(t, s.Do(t.Context(), "b", Stop), ErrUnknown)
	require.ErrorContains(t, s.Do(t.Context(), "a", "dance"), "unknown action")
	require.ErrorContains(t, s.Do(t.Context(), "a", Freeze), "not running")
}

func TestAComponentThatIgnoresSIGTERMIsKilled(t *testing.T) {
	t.Parallel()
	c := shell(t, "a", "trap '' TERM; echo ignoring; "+forever)
	c.StopLimit = 100 * time.Millisecond
	s := supervise(t, c)
	eventually(t, func() error {
		raw, err := os.ReadFile(c.Log)
		if err == nil && !strings.Contains(string(raw), "ignoring") {
			err = errors.New("not yet")
		}
		return err
	})
	require.NoError(t, s.Do(t.Context(), "a", Stop))
}

func TestAComponentWaitsForWhatItNeeds(t *testing.T) {
	t.Parallel()
	c := shell(t, "a", forever)
	var there atomic.Bool
	c.Wait = func(ctx context.Context) error {
		if !there.Load() {
			return errors.New("the other isn't there")
		}
		return nil
	}
	s := supervise(t, c)
	eventually(t, func() error {
		if st := s.Statuses()[0]; st.State != Waiting || !strings.Contains(st.LastError, "the other isn't there") {
			return errors.New("doesn't wait")
		}
		return nil
	})
	there.Store(true)
	inState(t, s, Running)
}

func TestAWaitingComponentCanBeStopped(t *testing.T) {
	t.Parallel()
	c := shell(t, "a", forever)
	c.Wait = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	s := supervise(t, c)
	inState(t, s, Waiting)
	require.NoError(t, s.Do(t.Context(), "a", Stop))
	require.Equal(t, Stopped, s.Statuses()[0].State)
}

func TestAProgramThatIsNotThereIsReported(t *testing.T) {
	t.Parallel()
	c := shell(t, "a", "")
	c.Path = "/nonexistent"
	s := supervise(t, c)
	eventually(t, func() error {
		if st := s.Statuses()[0]; !strings.Contains(st.LastError, "no such file") {
			return errors.New("not reported yet")
		}
		return nil
	})
}

func TestControlSocket(t *testing.T) {
	t.Parallel()
	s := supervise(t, shell(t, "a", forever))
	inState(t, s, Running)
	// Longer than a socket's path may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	require.NoError(t, os.Mkdir(dir, 0o700))
	socket := filepath.Join(dir, "control.sock")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	orders := map[string]func(string) error{"fetch": func(what string) error {
		if what == "stick" {
			return nil
		}
		return errors.New("no " + what)
	}}
	go func() { served <- s.Serve(ctx, socket, orders) }()
	c := NewClient(socket)
	eventually(t, func() error { _, err := c.Statuses(t.Context()); return err })

	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o077, "the socket is for the owner only")
	require.NoError(t, c.Do(t.Context(), "a", Stop))
	all, err := c.Statuses(t.Context())
	require.NoError(t, err)
	require.Equal(t, Stopped, all[0].State)
	require.ErrorContains(t, c.Do(t.Context(), "b", Stop), "no such component")
	require.ErrorContains(t, c.Do(t.Context(), "a", "dance"), "unknown action")
	require.NoError(t, c.Order(t.Context(), "fetch", "stick"))
	require.EqualError(t, c.Order(t.Context(), "fetch", "moon"), "no moon")
	require.EqualError(t, c.Order(t.Context(), "sing", "x"), "no such order here")
	cancel()
	require.NoError(t, <-served)
}

func TestRunEndsEveryComponent(t *testing.T) {
	t.Parallel()
	s := New(table, slog.New(slog.DiscardHandler), []Component{shell(t, "a", forever), shell(t, "b", forever), shell(t, "c", "exit 1")})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	var pids []int
	eventually(t, func() error {
		pids = nil
		for _, st := range s.Statuses()[:2] {
			if st.State != Running {
				return errors.New("not running yet")
			}
			pids = append(pids, st.PID)
		}
		return nil
	})
	cancel()
	<-ended
	for _, pid := range pids {
		_, err := proc.Identify(pid)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	require.Error(t, s.Do(shortly(t), "a", Start), "nothing starts after the end")
}

// shortly is a context that ends at once.
func shortly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
