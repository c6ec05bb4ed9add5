package localnet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// BinaryEnv names a demo-chain binary to use instead of building one.
	BinaryEnv = "ROLLCALL_DEMO_CHAIN"

	sourceDir = "images/demo-chain"
	// A cold build compiles some thousand packages.
	buildTimeout = 40 * time.Minute
	// keptBinaries is how many builds stay in the cache, for switching branches.
	keptBinaries = 3
)

// buildFlags are part of the cache key.
var buildFlags = []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w"}

// Binary returns the path of a demo-chain binary built from this checkout's
// sources, statically linked. Builds are kept in the user's cache folder
// (XDG_CACHE_HOME or ~/.cache, below rollcall/bin) under a name made of the
// sources' digest, so only a change builds again: minutes with a cold Go build
// cache, seconds otherwise. Processes that need the same build wait for one.
func Binary(ctx context.Context) (string, error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("find demo-chain binary named by %s: %w", BinaryEnv, err)
		}
		return path, nil
	}
	root, err := checkout()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, filepath.FromSlash(sourceDir))
	digest, err := sourceDigest(source)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	bin := filepath.Join(cache, "rollcall", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	path := filepath.Join(bin, "demo-chain-"+digest)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	unlock, err := lockFile(ctx, filepath.Join(bin, ".demo-chain.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	// Someone else may have built it while this process waited.
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := build(ctx, source, path); err != nil {
		return "", err
	}
	return path, prune(bin, path)
}

// checkout finds the folder of the main module from the working directory,
// which for a test is the folder of its package.
func checkout() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find checkout: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(sourceDir), "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find checkout: no %s above %s; run from the checkout or set %s", sourceDir, start, BinaryEnv)
		}
	}
}

// sourceDigest covers all that decides the binary: module files, sources
// without tests, compiler and flags.
func sourceDigest(source string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, buildFlags)
	err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		isSource := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") || name == "go.mod" || name == "go.sum"
		if d.IsDir() || !isSource {
			return nil
		}
		rel, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, rel, len(content))
		sum.Write(content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read demo-chain sources: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

func build(ctx context.Context, source, path string) error {
	fmt.Fprintln(os.Stderr, "localnet: building demo-chain, which takes minutes the first time")
	tmp := path + ".tmp"
	args := append([]string{"build", "-o", tmp}, buildFlags...)
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build demo-chain: %w: %s", errors.Join(err, context.Cause(ctx)), tail(out.Bytes(), 20))
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("keep demo-chain binary: %w", err)
	}
	return nil
}

// prune removes all but the newest builds. A process that still runs an old
// one keeps it until it ends.
func prune(dir, keep string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "demo-chain-*"))
	if err != nil {
		return fmt.Errorf("prune binaries: %w", err)
	}
	age := make(map[string]time.Time, len(paths))
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil {
			age[p] = info.ModTime()
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return age[b].Compare(age[a]) })
	for i, p := range paths {
		if i < keptBinaries || p == keep {
			continue
		}
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("prune binaries: %w", err)
		}
	}
	return nil
}

// lockFile takes an exclusive lock that the kernel frees with the process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, errors.Join(err, f.Close()))
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, fmt.Errorf("wait for another build: %w", errors.Join(err, f.Close()))
		}
	}
}

// pause waits, less if the context ends first, whose cause it then returns.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// tail returns the last lines of a text.
func tail(text []byte, lines int) string {
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// tailFile returns the last lines of a file that may be long.
func tailFile(path string, lines int) string {
	const window = 32 << 10
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > window {
		if _, err := f.Seek(-window, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return tail(text, lines)
}
