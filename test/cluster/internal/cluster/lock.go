package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sethvargo/go-retry"
	"golang.org/x/sys/unix"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

// lockLimit bounds the wait for another command on the same cluster; an up
// that builds everything is the longest.
const lockLimit = 70 * time.Minute

var errLocked = errors.New("another command is working on this cluster")

// lock serializes commands on one state folder. The returned function releases
// the lock and removes its file.
func lock(ctx context.Context, path string, busy func()) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of cluster states: %w", err)
	}
	var held *os.File
	told := false
	backoff := retry.WithMaxDuration(lockLimit, retry.NewConstant(200*time.Millisecond))
	err := retry.Do(ctx, backoff, func(context.Context) error {
		f, err := tryLock(path)
		if errors.Is(err, errLocked) {
			if !told {
				told = true
				busy()
			}
			return retry.RetryableError(err)
		}
		held = f
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() {
		// Removed while it is held: see tryLock for who might wait for it.
		_ = os.Remove(path)
		held.Close()
	}, nil
}

// tryLock takes the lock if it is free. A lock on a file that was removed
// meanwhile is none.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	mine, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(mine, there) {
		f.Close()
		return nil, errLocked
	}
	return f, nil
}

// releaseAbandoned removes the lock's file after the command that held it was
// killed. It is only a file of no bytes: failing is no error.
func releaseAbandoned(dir state.Dir) {
	if f, err := tryLock(dir.LockFile()); err == nil {
		_ = os.Remove(dir.LockFile())
		f.Close()
	}
}
