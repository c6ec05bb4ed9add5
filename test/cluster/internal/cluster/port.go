package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The API servers' ports lie below Linux's usual range of outgoing ports
// (32768 and up), so no connection can take one by accident.
const (
	firstPort = 16443
	lastPort  = 26443
)

// openPort binds a port of 127.0.0.1 and returns the socket, which is how a
// port is held: two commands that choose at the same time can't choose the
// same. want 0 means any. With listening, connections are accepted by whoever
// holds the socket; without, they are refused, and an API server may bind the
// same port when it sets SO_REUSEPORT.
func openPort(want int, listening bool) (*os.File, int, error) {
	if want != 0 {
		f, err := bind(want, listening, true)
		if err != nil {
			return nil, 0, fmt.Errorf("bind 127.0.0.1:%d (choose another with --port): %w", want, err)
		}
		return f, want, nil
	}
	var last error
	const tries = 200
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort)
		f, err := bind(port, listening, false)
		if err == nil {
			return f, port, nil
		}
		last = err
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, 0, fmt.Errorf("find a free port between %d and %d: %w", firstPort, lastPort, last)
}

func bind(port int, listening, reuse bool) (*os.File, error) {
	if listening {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, err
		}
		defer l.Close()
		return l.(*net.TCPListener).File()
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "port "+strconv.Itoa(port))
	// SO_REUSEADDR lets a restarted cluster have its old port in spite of old
	// connections (TIME_WAIT), but also lets two sockets that don't listen have
	// the same port: for a newly chosen port it stays off.
	if reuse {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			f.Close()
			return nil, err
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		f.Close()
		return nil, err
	}
	// Only after binding: the bind itself must be refused if anybody else has
	// the port, another cluster included.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
