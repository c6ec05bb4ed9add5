// Package step is the harness that every step shares: it turns environment
// variables into a configuration, a configuration into clients, a Run function
// into a process with logs, exit code, outputs and termination message.
//
// It guarantees that a configuration error lists every problem at once and
// nothing is touched before the configuration is sound; that SIGTERM and SIGINT
// cancel the step's context; that the exit code is fault.CodeOf of the step's
// error; and that one JSON object goes to the termination message. It doesn't
// guarantee that a step runs to its end: a step must survive SIGKILL anywhere.
package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

// Prefix of every environment variable.
const Prefix = "ROLLCALL"

// Result is what a step tells: each entry of Outputs becomes a file in
// ROLLCALL_OUT and, with Message, the JSON object of the termination message.
// Nothing secret may enter it.
type Result struct {
	Message string
	Outputs map[string]string
}

// Step is one step of an operation.
type Step interface {
	Name() string
	Summary() string
	// Help writes the table of the step's variables.
	Help(w io.Writer) error
	// Run reads the configuration from the environment and does the step's work.
	Run(ctx context.Context, log *slog.Logger) (Result, error)
}

// Main runs s as a process and returns its exit code. args are the command
// line's arguments after the step's name.
func Main(s Step, args []string) int {
	for _, a := range args {
		switch a {
		case "-h", "--help", "help":
			if err := s.Help(os.Stdout); err != nil {
				return int(fault.Unexpected)
			}
			return int(fault.OK)
		}
	}
	if len(args) > 0 {
		fmt.Fprintf(os.Stderr, "%s: unexpected argument %q: a step takes its parameters from the environment; see %s --help\n", s.Name(), args[0], s.Name())
		return int(fault.Config)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := NewLogger(os.Stderr)
	klog.SetSlogLogger(log) // client-go's own messages, in the same form
	res, err := s.Run(ctx, log)
	log = log.With("step", s.Name())
	if stopped(ctx, err) {
		err = fault.New(fault.Transient, "stopped by a signal: %w", err).Do("run again to resume")
	}
	if werr := report(s.Name(), res, err); werr != nil {
		log.Warn("the step's report could not be written", "error", werr)
	}
	if err != nil {
		code := fault.CodeOf(err)
		if text := err.Error(); strings.Contains(text, "\n") {
			fmt.Println(text) // for people; the log has it in one line
		}
		log.Error(Line(err), "exitCode", int(code), "reason", code.String())
		return int(code)
	}
	log.Info(res.Message, slices.Collect(pairs(res.Outputs))...)
	return int(fault.OK)
}

// stopped reports whether a step failed because a signal ended its context: the
// error is then that of whatever was under way.
func stopped(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() == nil {
		return false
	}
	c := fault.CodeOf(err)
	return c == fault.Unexpected || c == fault.Transient && errors.Is(err, context.Canceled)
}

// NewLogger returns the JSON logger that steps write to. ROLLCALL_LOG_LEVEL
// (debug, info, warn, error) sets its level; info when unset or unknown.
func NewLogger(w io.Writer) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(os.Getenv(Prefix + "_LOG_LEVEL"))); err != nil {
		l = slog.LevelInfo
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}))
}

// Line flattens an error into one line.
func Line(err error) string {
	var b []string
	for l := range strings.Lines(err.Error()) {
		if l = strings.TrimSpace(l); l != "" {
			b = append(b, l)
		}
	}
	return strings.Join(b, "; ")
}

func pairs(m map[string]string) func(func(any) bool) {
	return func(yield func(any) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(slog.String(k, m[k])) {
				return
			}
		}
	}
}

// maxTermination is the longest termination message, in bytes. The kubelet cuts
// longer ones off, which leaves no JSON: the limit is 4 KiB, but the containers
// of a pod share 12 KiB in equal parts, and a workflow's pod has 9 steps and
// Argo's two.
const maxTermination = 1024

// report writes the outputs and the termination message where they are wanted.
func report(name string, res Result, err error) error {
	text := res.Message
	msg := map[string]any{"step": name, "exitCode": int(fault.CodeOf(err))}
	if err != nil {
		text, msg["reason"] = Line(err), fault.CodeOf(err).String()
	}
	msg["message"] = text
	if len(res.Outputs) > 0 {
		msg["outputs"] = res.Outputs
	}
	b, jerr := json.Marshal(msg)
	if jerr != nil {
		return jerr
	}
	if len(b) > maxTermination {
		delete(msg, "outputs")
		if b, jerr = json.Marshal(msg); jerr != nil {
			return jerr
		}
	}
	// JSON makes some characters up to six times as long.
	for keep := maxTermination; len(b) > maxTermination; keep -= maxTermination / 16 {
		msg["message"] = strings.ToValidUTF8(text[:min(keep, len(text))], "") + " ..."
		if b, jerr = json.Marshal(msg); jerr != nil {
			return jerr
		}
	}
	var errs []error
	if p := terminationPath(); p != "" {
		errs = append(errs, os.WriteFile(p, b, 0o644))
	}
	if dir := os.Getenv(Prefix + "_OUT"); dir != "" {
		errs = append(errs, os.MkdirAll(dir, 0o755))
		for k, v := range res.Outputs {
			errs = append(errs, os.WriteFile(filepath.Join(dir, k), []byte(v), 0o644))
		}
	}
	return errors.Join(errs...)
}

// terminationPath is the pod's termination log, if this is a pod.
func terminationPath() string {
	p := os.Getenv(Prefix + "_TERMINATION_LOG")
	if p == "" {
		p = "/dev/termination-log"
	}
	if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
		_ = f.Close()
		return p
	}
	return ""
}
