// Package gobuild builds Go programs once: the result is kept in a cache
// folder under a name that holds the hash of everything the build depends on,
// so a second build of the same sources is a look at the file system.
//
// It guarantees that a file in the cache is complete (it is renamed into
// place) and that two callers at once build once. It does not guarantee that
// dependencies outside the hashed sources are unchanged: it relies on go.sum
// for that.
package gobuild

import (
	"bufio"
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
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/sethvargo/go-retry"
	"golang.org/x/sys/unix"
)

const (
	// progressEvery is the time between two lines of progress.
	progressEvery = 30 * time.Second
	// buildLimit bounds one build; the largest takes nine minutes on two
	// cores with nothing cached.
	buildLimit = 60 * time.Minute
	// downloadTries bounds how often a build is tried again when the module
	// proxy couldn't be reached.
	downloadTries = 3
	// keepUnused is how long an unused older build stays in the cache.
	keepUnused = 14 * 24 * time.Hour
)

// Target is a program to build.
type Target struct {
	// Name of the program, and of its file in the cache before the hash.
	Name string
	// Module is the folder of the module, Package the package to build
	// relative to it ("./cmd/x").
	Module, Package string
	// Sources are the files and folders, relative to Module, whose content
	// decides whether to build again. Tests in them don't count.
	Sources []string
	// Variables are link-time values (-X name=value).
	Variables map[string]string
}

// Builder builds into a cache folder.
type Builder struct {
	// Dir of the results.
	Dir string
	// Log gets a line when a build starts, every 30 s, and when it ends.
	Log func(format string, args ...any)
}

// Build returns the path of the built program, and whether it was there
// already.
func (b Builder) Build(ctx context.Context, t Target) (path string, cached bool, err error) {
	sum, err := t.Hash(ctx)
	if err != nil {
		return "", false, err
	}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return "", false, fmt.Errorf("make binary cache: %w", err)
	}
	path = filepath.Join(b.Dir, t.Name+"-"+sum[:16])
	if use(path) {
		return path, true, nil
	}
	unlock, err := lock(ctx, path+".lock", func() { b.Log("waiting for another build of %s", t.Name) })
	if err != nil {
		return "", false, fmt.Errorf("lock build of %s: %w", t.Name, err)
	}
	defer unlock()
	if use(path) { // built by whoever held the lock
		return path, true, nil
	}
	b.prune(t.Name)
	if err := b.compile(ctx, t, path); err != nil {
		return "", false, err
	}
	return path, false, nil
}

// use reports whether the file is there, and marks it as used now.
func use(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	now := time.Now()
	// Failing to mark it (a read-only cache) costs a rebuild some day.
	_ = os.Chtimes(path, now, now)
	return true
}

// Hash covers the sources, the module files, the Go version, the platform and
// the flags.
func (t Target) Hash(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir, cmd.Env = t.Module, environment()
	version, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask for the Go version (is Go installed and in PATH?): %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s/%s %q\n", bytes.TrimSpace(version), runtime.GOOS, runtime.GOARCH, t.arguments("OUT"))
	files, err := t.files()
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if err := addFile(h, t.Module, f); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func addFile(h io.Writer, module, name string) error {
	f, err := os.Open(filepath.Join(module, name))
	if err != nil {
		return fmt.Errorf("hash sources: %w", err)
	}
	defer f.Close()
	one := sha256.New()
	if _, err := io.Copy(one, f); err != nil {
		return fmt.Errorf("hash %s: %w", name, err)
	}
	fmt.Fprintf(h, "%s %x\n", filepath.ToSlash(name), one.Sum(nil))
	return nil
}

// files lists the source files relative to the module, sorted.
func (t Target) files() ([]string, error) {
	var files []string
	for _, s := range t.Sources {
		root := filepath.Join(t.Module, s)
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if nested(t.Module, root, p) {
					return fs.SkipDir
				}
				return nil
			}
			if strings.HasSuffix(p, "_test.go") || !d.Type().IsRegular() {
				return nil
			}
			rel, err := filepath.Rel(t.Module, p)
			if err != nil {
				return err
			}
			files = append(files, rel)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list sources of %s: %w", t.Name, err)
		}
	}
	sort.Strings(files)
	return files, nil
}

// nested reports whether dir, below root, begins another module.
func nested(module, root, dir string) bool {
	if dir == root || dir == module {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func (t Target) arguments(out string) []string {
	names := make([]string, 0, len(t.Variables))
	for n := range t.Variables {
		names = append(names, n)
	}
	sort.Strings(names)
	ld := "-s -w"
	for _, n := range names {
		ld += " -X " + n + "=" + t.Variables[n]
	}
	return []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", ld, "-o", out, t.Package}
}

// environment is that of a reproducible build: static, without the caller's
// workspace and flags.
func environment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
}

func (b Builder) compile(ctx context.Context, t Target, path string) error {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	began := time.Now()
	b.Log("building %s (the first time takes minutes, later it comes from %s)", t.Name, b.Dir)
	tmp := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	defer os.Remove(tmp)
	backoff := retry.WithMaxRetries(downloadTries-1, retry.NewExponential(2*time.Second))
	err := retry.Do(ctx, backoff, func(ctx context.Context) error {
		return b.goBuild(ctx, t, tmp, began)
	})
	if err != nil {
		return fmt.Errorf("build %s: %w", t.Name, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("put %s into the cache: %w", t.Name, err)
	}
	b.Log("built %s in %s", t.Name, time.Since(began).Round(time.Second))
	return nil
}

// goBuild runs the Go tool once. An error that comes from the network is
// marked as worth another try.
func (b Builder) goBuild(ctx context.Context, t Target, out string, began time.Time) error {
	cmd := exec.CommandContext(ctx, "go", t.arguments(out)...)
	cmd.Dir, cmd.Env = t.Module, environment()
	// The Go tool and its compilers are one process group and end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("open pipe: %w", err)
	}
	runtime.LockOSThread() // the parent-death signal belongs to this thread
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go: %w", err)
	}
	tail := b.follow(pipe, t.Name, began)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped after %s: %w", time.Since(began).Round(time.Second), ctx.Err())
		}
		err = fmt.Errorf("go build: %w\n%s", err, strings.Join(tail, "\n"))
		if fromNetwork(tail) {
			return retry.RetryableError(err)
		}
		return err
	}
	return nil
}

// follow reads the Go tool's output to its end, reports progress, and returns
// the last lines that aren't names of packages.
func (b Builder) follow(r io.Reader, name string, began time.Time) []string {
	const keep = 40
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			lines <- s.Text()
		}
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var tail []string
	packages := 0
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return tail
			}
			if !strings.ContainsAny(line, " :") {
				packages++
				continue
			}
			tail = append(tail, line)
			if len(tail) > keep {
				tail = tail[1:]
			}
		case <-tick.C:
			b.Log("building %s: %s elapsed, %d packages compiled", name, time.Since(began).Round(time.Second), packages)
		}
	}
}

// fromNetwork reports whether a build's output shows trouble in reaching the
// module proxy.
func fromNetwork(lines []string) bool {
	for _, l := range lines {
		for _, sign := range []string{"dial tcp", "i/o timeout", "TLS handshake", "connection reset", "unexpected EOF", "502 Bad Gateway", "503 Service Unavailable"} {
			if strings.Contains(l, sign) {
				return true
			}
		}
	}
	return false
}

// prune removes builds of the same program that weren't used for two weeks.
func (b Builder) prune(name string) {
	old, err := filepath.Glob(filepath.Join(b.Dir, name+"-*"))
	if err != nil {
		return
	}
	for _, p := range old {
		if info, err := os.Stat(p); err == nil && time.Since(info.ModTime()) > keepUnused {
			_ = os.Remove(p) // the cache is only larger if this fails
		}
	}
}

// lock takes an exclusive lock on a file, calling busy once if it has to wait.
func lock(ctx context.Context, path string, busy func()) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	backoff := retry.WithMaxDuration(buildLimit, retry.NewConstant(200*time.Millisecond))
	told := false
	err = retry.Do(ctx, backoff, func(context.Context) error {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			if !told {
				told = true
				busy()
			}
			return retry.RetryableError(errors.New("another build is running"))
		}
		return err
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
