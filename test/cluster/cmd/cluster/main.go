// Command cluster brings embedded Kubernetes clusters up and down on one
// Linux machine, without a container engine. See its --help and ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/cluster"
)

// Exit codes.
const (
	exitFailed    = 1 // what was asked for didn't work
	exitUsage     = 2 // it couldn't be understood
	exitUnhealthy = 3 // status: the cluster isn't up, or not healthy
)

// commandError is the end of a command that "cluster exec" ran.
type commandError struct{ code int }

func (e *commandError) Error() string { return fmt.Sprintf("command ended with exit code %d", e.code) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitCode prints the error, if there is one, and says how to exit.
func exitCode(err error) int {
	var ran *commandError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ran): // it has said why itself
		return ran.code
	}
	fmt.Fprintln(os.Stderr, "cluster:", err)
	switch {
	case errors.Is(err, cluster.ErrBadOption), errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, cluster.ErrNotUp), errors.Is(err, cluster.ErrUnhealthy):
		return exitUnhealthy
	default:
		return exitFailed
	}
}
