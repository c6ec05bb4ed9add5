package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
)

// nodeDevice carries the node's address. It is a bridge without ports because
// every kernel that runs containers has bridges, but not every one has dummy
// devices.
const nodeDevice = "node0"

// Network sets up the network namespace: the node's address, and a default
// route, without which addresses of Services couldn't be used on the node.
func Network(table *proc.Table, ip, address string) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", nodeDevice, "type", "bridge"},
		{"addr", "add", address + "/24", "dev", nodeDevice},
		{"link", "set", nodeDevice, "up"},
		{"route", "add", "default", "dev", nodeDevice},
	} {
		if err := run(table, ip, args...); err != nil {
			return err
		}
	}
	// These belong to the network namespace. The second isn't there in every
	// kernel, and isn't needed with routed pods.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("enable forwarding: %w", err)
	}
	err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("enable filtering of bridged packets: %w", err)
	}
	return nil
}

// run runs a short command to its end.
func run(table *proc.Table, path string, args ...string) error {
	const limit = 10 * time.Second
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer read.Close()
	p, err := table.Start(proc.Spec{Path: path, Args: append([]string{path}, args...), Env: os.Environ(), Stdout: write, Stderr: write})
	write.Close()
	if err != nil {
		return err
	}
	timer := time.AfterFunc(limit, func() { _ = p.Signal(unix.SIGKILL) })
	defer timer.Stop()
	out, err := io.ReadAll(read)
	if err != nil {
		return fmt.Errorf("read output of %s: %w", path, err)
	}
	<-p.Done()
	if err := p.Err(); err != nil {
		return fmt.Errorf("run %s %s: %w: %s", path, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Forward passes each connection that comes in at the listener on to an
// address, until ctx ends. The listener may belong to another network
// namespace than the one this process is in: that is the way into a sandbox.
func Forward(ctx context.Context, l net.Listener, address string, log *slog.Logger) {
	forward(ctx, l, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	}, log)
}

func forward(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error), log *slog.Logger) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		in, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				log.Error("accept connections", "error", err)
			}
			return
		}
		go func() {
			defer in.Close()
			out, err := dial(ctx)
			if err != nil {
				return // the client sees the connection end
			}
			defer out.Close()
			stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
			defer stop()
			var both sync.WaitGroup
			both.Add(2)
			go pipe(&both, out, in)
			go pipe(&both, in, out)
			both.Wait()
		}()
	}
}

// pipe copies one direction and passes its end on.
func pipe(done *sync.WaitGroup, to, from net.Conn) {
	defer done.Done()
	// An error ends this direction; the other side learns by the half close.
	_, _ = io.Copy(to, from)
	if c, ok := to.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
}
