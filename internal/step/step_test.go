package step_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// fixed is a step that ends as it is told.
type fixed struct {
	res step.Result
	err error
}

func (fixed) Name() string    { return "fixed" }
func (fixed) Summary() string { return "end as told" }
func (fixed) Help(w io.Writer) error {
	_, err := io.WriteString(w, "help\n")
	return err
}
func (f fixed) Run(context.Context, *slog.Logger) (step.Result, error) { return f.res, f.err }

// message is a termination message.
type message struct {
	Step, Message, Reason string
	ExitCode              int
	Outputs               map[string]string
}

// ended runs a step as a process would and returns its exit code, the raw
// termination message and the folder of its outputs.
func ended(t *testing.T, s step.Step, args ...string) (code int, raw []byte, out string) {
	t.Helper()
	unset(t)
	dir := t.TempDir()
	out = filepath.Join(dir, "out")
	log := filepath.Join(dir, "termination-log")
	require.NoError(t, os.WriteFile(log, []byte(strings.Repeat("old", 5000)), 0o600))
	t.Setenv("ROLLCALL_TERMINATION_LOG", log)
	t.Setenv("ROLLCALL_OUT", out)
	code = step.Main(s, args)
	raw, err := os.ReadFile(log)
	require.NoError(t, err)
	return code, raw, out
}

func decode(t *testing.T, raw []byte) (m message) {
	t.Helper()
	require.LessOrEqual(t, len(raw), 1024, "Kubernetes cuts what is longer in a pod of 12 containers")
	require.NoError(t, json.Unmarshal(raw, &m), "%s", raw)
	return m
}

func TestMainReportsSuccess(t *testing.T) {
	code, raw, out := ended(t, fixed{res: step.Result{Message: "done", Outputs: map[string]string{"token": "7", "plan": "{}"}}})
	require.Zero(t, code)
	require.Equal(t, message{Step: "fixed", Message: "done", Outputs: map[string]string{"token": "7", "plan": "{}"}}, decode(t, raw))
	b, err := os.ReadFile(filepath.Join(out, "token"))
	require.NoError(t, err)
	require.Equal(t, "7", string(b), "an Argo output parameter has no newline")
}

func TestMainEndsWithTheErrorsCode(t *testing.T) {
	for _, e := range fault.Codes[1:] {
		code, raw, _ := ended(t, fixed{err: fault.New(e.Code, "scale: %w", errors.New("no"))})
		require.Equal(t, int(e.Code), code)
		require.Equal(t, message{Step: "fixed", Message: "scale: no", Reason: e.Name, ExitCode: int(e.Code)}, decode(t, raw))
	}
	code, raw, _ := ended(t, fixed{err: errors.Join(errors.New("one\n"), errors.New("two"))})
	require.Equal(t, 1, code)
	require.Equal(t, "one; two", decode(t, raw).Message)
}

func TestMainTakesNoArguments(t *testing.T) {
	code, _, _ := ended(t, fixed{}, "--validators=5")
	require.Equal(t, 2, code)
	for _, help := range []string{"--help", "-h", "help"} {
		code, _, _ = ended(t, fixed{err: errors.New("must not run")}, help)
		require.Zero(t, code)
	}
}

func TestTerminationMessageStaysWithinKubernetesLimit(t *testing.T) {
	for name, text := range map[string]string{
		"plain":                     strings.Repeat("x", 100_000),
		"characters of three bytes": "a" + strings.Repeat("€", 10_000),
		"quotes, longer in JSON":    strings.Repeat(`"`, 10_000),
		"markup, longer in JSON":    strings.Repeat("<&>", 10_000),
		"control characters":        strings.Repeat("\x01", 10_000),
		"broken UTF-8":              strings.Repeat("ab\xff", 10_000),
	} {
		t.Run(name, func(t *testing.T) {
			_, raw, _ := ended(t, fixed{err: fault.New(fault.Refused, "%s", text)})
			m := decode(t, raw)
			require.Equal(t, 5, m.ExitCode)
			require.Equal(t, "Refused", m.Reason)
			require.True(t, utf8.ValidString(m.Message))
			require.True(t, strings.HasSuffix(m.Message, " ..."), "it shows that it was cut: %q", m.Message)
			require.Greater(t, len(m.Message), 120, "what fits is kept")
		})
	}
}

func TestLongOutputsLeaveTheTerminationMessageButNotTheFiles(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	_, raw, out := ended(t, fixed{res: step.Result{Message: "done", Outputs: map[string]string{"plan": long}}})
	m := decode(t, raw)
	require.Equal(t, "done", m.Message)
	require.Empty(t, m.Outputs)
	b, err := os.ReadFile(filepath.Join(out, "plan"))
	require.NoError(t, err)
	require.Equal(t, long, string(b))
}

func TestLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a; b; c", step.Line(errors.New("a\n\n  b\r\nc\n")))
	require.Equal(t, "a", step.Line(errors.New("a")))
}

func TestLogsAreJSONAtTheWantedLevel(t *testing.T) {
	for level, debug := range map[string]bool{"": false, "debug": true, "error": false, "nonsense": false} {
		unset(t)
		t.Setenv("ROLLCALL_LOG_LEVEL", level)
		var b bytes.Buffer
		log := step.NewLogger(&b)
		require.Equal(t, debug, log.Enabled(t.Context(), slog.LevelDebug), level)
		log.Error("x", "validator", 4)
		var line map[string]any
		require.NoError(t, json.Unmarshal(b.Bytes(), &line))
		require.EqualValues(t, 4, line["validator"])
	}
}

// terminated is a step whose process gets a SIGTERM while an API request is
// under way.
type terminated struct{ fixed }

func (terminated) Run(ctx context.Context, _ *slog.Logger) (step.Result, error) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return step.Result{}, err
	}
	<-ctx.Done()
	return step.Result{}, fault.New(fault.Transient, "patch network: %w", ctx.Err())
}

func TestMainSaysThatASignalStoppedTheStep(t *testing.T) {
	code, raw, _ := ended(t, terminated{})
	require.Equal(t, 75, code)
	require.Equal(t, "stopped by a signal: patch network: context canceled; run again to resume", decode(t, raw).Message)
}
