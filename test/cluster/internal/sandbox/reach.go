package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Reach lets the sandbox's pods reach ports of the machine: a listener on the
// node's address for each port, whose connections go on to the same port of
// the machine's 127.0.0.1. Nothing is open that wasn't asked for.
type Reach struct {
	// Address is the node's.
	Address string
	// Machine is a descriptor of the machine's network namespace.
	Machine *os.File
	Log     *slog.Logger

	mu   sync.Mutex
	open map[int]bool
}

// Open opens a port until ctx ends. A port that is open already is no error.
func (r *Reach) Open(ctx context.Context, port int) error {
	if port < 1 || port > 65535 {
		return fmt.Errorf("open port %d: not a port", port)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[port] {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(r.Address, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("open port %d of the node: %w", port, err)
	}
	if r.open == nil {
		r.open = map[int]bool{}
	}
	r.open[port] = true
	target := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	go forward(ctx, l, func(ctx context.Context) (net.Conn, error) { return r.dial(ctx, target) }, r.Log)
	return nil
}

// dial connects from the machine's network namespace. A socket stays in the
// namespace in which it was made, so only the thread that makes it has to be
// there.
func (r *Reach) dial(ctx context.Context, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	out := make(chan result, 1)
	go func() {
		// Never unlocked: the thread must not run anything else, and ends with
		// this goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(r.Machine.Fd()), unix.CLONE_NEWNET); err != nil {
			out <- result{err: fmt.Errorf("enter the machine's network namespace: %w", err)}
			return
		}
		// An address without a name is dialled on this very thread.
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp4", address)
		out <- result{conn, err}
	}()
	got := <-out
	return got.conn, got.err
}
