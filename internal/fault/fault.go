// Package fault is the one place where an error gets its meaning: the exit
// code a step ends with, whether a retry can help, and what the reader can do.
//
// It guarantees that wrapping with %w keeps the code, and that an error without
// one counts as Unexpected. It does not decide log levels or print anything.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// Code is a process exit code. The values are part of Rollcall's interface:
// workflows and podFailurePolicy rules are written against them. 64 belongs to
// Argo's executor, and everything from 128 up to signals.
type Code int

// The exit codes of every Rollcall binary.
const (
	OK         Code = 0  // done, or nothing to do
	Unexpected Code = 1  // a bug or an error nobody classified
	Config     Code = 2  // bad configuration or parameter; a retry can't help
	LockBusy   Code = 3  // somebody else is working on the network
	LockLost   Code = 4  // the lock was lost or taken over while working
	Refused    Code = 5  // refused for the safety of the network
	TimedOut   Code = 6  // a bounded wait ended
	Chain      Code = 7  // the chain refused
	Transient  Code = 75 // an outside part failed in a way that may pass
)

// Codes lists every code with its meaning, in the order documentation shows it.
var Codes = []struct {
	Code    Code
	Name    string
	Meaning string
}{
	{OK, "OK", "done, or nothing to do"},
	{Unexpected, "Unexpected", "unexpected error; see the log"},
	{Config, "BadConfiguration", "bad configuration or parameter; nothing was changed"},
	{LockBusy, "LockBusy", "another run holds the lock; nothing was changed"},
	{LockLost, "LockLost", "the lock was lost or taken over; this run stopped working"},
	{Refused, "Refused", "refused for the safety of the network; nothing was changed by this step"},
	{TimedOut, "TimedOut", "a bounded wait ended; run again to resume"},
	{Chain, "ChainRefused", "the chain refused a transaction or a query"},
	{Transient, "Transient", "a temporary failure of an outside part; run again"},
}

// String returns the code's name, as used in event and condition reasons.
func (c Code) String() string {
	for _, e := range Codes {
		if e.Code == c {
			return e.Name
		}
	}
	return fmt.Sprintf("Code%d", int(c))
}

// Error is an error with an exit code and, where it helps, advice.
type Error struct {
	Code Code
	Err  error
	Hint string // what the reader can do, a full sentence or a command; may be empty
}

// Error returns the cause and the advice in one line.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "; " + e.Hint
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New makes an Error; format may use %w.
func New(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Err: fmt.Errorf(format, args...)}
}

// Do adds advice for the reader.
func (e *Error) Do(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// CodeOf returns the exit code for err: the code of the outermost Error in its
// tree, TimedOut for an expired deadline, and Unexpected for anything else. A
// joined error has the code of its first part that carries one.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var f *Error
	if errors.As(err, &f) {
		return f.Code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return TimedOut
	}
	return Unexpected
}

// Is reports whether err carries code c.
func Is(err error, c Code) bool { return err != nil && CodeOf(err) == c }
