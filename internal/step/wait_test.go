package step_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// inFakeTime runs a test with a clock that jumps whenever everybody waits.
func inFakeTime(t *testing.T, f func(t *testing.T, d *step.Deps, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f(t, &step.Deps{Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))}, &log)
	})
}

func TestWaitEndsWhenDone(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(t *testing.T, d *step.Deps, log *bytes.Buffer) {
		start, asked := time.Now(), 0
		err := d.Wait(t.Context(), "pods ready", time.Minute, time.Second, func(context.Context) (bool, string, error) {
			asked++
			return asked == 5, fmt.Sprintf("%d pods", 5-asked), nil
		})
		require.NoError(t, err)
		require.InDelta(t, 4*time.Second, time.Since(start), float64(time.Second))
		for _, word := range []string{"4 pods", "3 pods", "2 pods", "1 pods"} {
			require.Contains(t, log.String(), word, "a change is said")
		}
	})
}

func TestWaitIsBoundedAndKeepsTheLastWord(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(t *testing.T, d *step.Deps, log *bytes.Buffer) {
		start := time.Now()
		err := d.Wait(t.Context(), "pods ready", time.Minute, time.Second, func(context.Context) (bool, string, error) {
			return false, "pod validator-4", nil
		})
		require.Equal(t, fault.TimedOut, fault.CodeOf(err))
		require.ErrorContains(t, err, "pods ready: not after 1m0s: pod validator-4")
		require.ErrorContains(t, err, "run again")
		require.InDelta(t, time.Minute, time.Since(start), float64(2*time.Second))
		lines := strings.Count(log.String(), "\n")
		require.InDelta(t, 6, lines, 2, "an unchanged wait is said every ten seconds, not every second:\n%s", log)
	})
}

func TestWaitOutlastsTransientErrors(t *testing.T) {
	t.Parallel()
	for name, passing := range map[string]error{
		"an outside part that failed":   fault.New(fault.Transient, "no answer"),
		"a question that took too long": fault.New(fault.TimedOut, "no answer"),
		"a request's own deadline":      fmt.Errorf("no answer: %w", context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, func(t *testing.T, d *step.Deps, log *bytes.Buffer) {
				asked := 0
				err := d.Wait(t.Context(), "x", time.Minute, time.Second, func(context.Context) (bool, string, error) {
					if asked++; asked < 3 {
						return false, "", passing
					}
					return true, "", nil
				})
				require.NoError(t, err)
				require.Contains(t, log.String(), "no answer")
			})
		})
	}
	inFakeTime(t, func(t *testing.T, d *step.Deps, _ *bytes.Buffer) {
		err := d.Wait(t.Context(), "x", time.Minute, time.Second, func(context.Context) (bool, string, error) {
			return false, "", fault.New(fault.Transient, "connection refused")
		})
		require.Equal(t, fault.TimedOut, fault.CodeOf(err))
		require.ErrorContains(t, err, "connection refused", "the last error is kept")
	})
}

func TestWaitEndsAtOnceWithOtherErrors(t *testing.T) {
	t.Parallel()
	for _, final := range []error{
		fault.New(fault.Refused, "unsafe"), fault.New(fault.LockLost, "taken"), fault.New(fault.Config, "another chain"), io.EOF,
	} {
		inFakeTime(t, func(t *testing.T, d *step.Deps, _ *bytes.Buffer) {
			asked, start := 0, time.Now()
			err := d.Wait(t.Context(), "x", time.Minute, time.Second, func(context.Context) (bool, string, error) {
				asked++
				return false, "", final
			})
			require.ErrorIs(t, err, final)
			require.Equal(t, 1, asked)
			require.Zero(t, time.Since(start))
		})
	}
}

func TestWaitSaysWhyItWasStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause error
		code  fault.Code
		text  string
	}{
		"the lock was lost": {fault.New(fault.LockLost, "lock demo-7: taken over"), fault.LockLost, "taken over"},
		"a signal":          {nil, fault.Transient, "x: stopped while waiting for: pod validator-4; run again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, func(t *testing.T, d *step.Deps, _ *bytes.Buffer) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Second, func() { cancel(c.cause) })
				start := time.Now()
				err := d.Wait(ctx, "x", time.Hour, time.Minute, func(context.Context) (bool, string, error) {
					return false, "pod validator-4", nil
				})
				require.Equal(t, c.code, fault.CodeOf(err), "%v", err)
				require.ErrorContains(t, err, c.text)
				require.Equal(t, 10*time.Second, time.Since(start), "it doesn't sleep on")
			})
		})
	}
}

func TestWaitBlamesTheLostLockNotTheRequestItBroke(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(t *testing.T, d *step.Deps, _ *bytes.Buffer) {
		ctx, cancel := context.WithCancelCause(t.Context())
		lost := fault.New(fault.LockLost, "taken over")
		err := d.Wait(ctx, "x", time.Hour, time.Second, func(ctx context.Context) (bool, string, error) {
			cancel(lost)
			return false, "", errors.New("request cancelled")
		})
		require.ErrorIs(t, err, lost)
	})
}
