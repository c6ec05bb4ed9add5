package release

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sethvargo/go-retry"
)

const (
	// dirPrefix begins the name of each build's folder in the cache.
	dirPrefix = "argo-"
	// buildLimit bounds one build; cold it takes about ten minutes on two cores.
	buildLimit = 60 * time.Minute
	// lockLimit bounds the wait for another process that builds.
	lockLimit = buildLimit + 5*time.Minute
	// progressEvery is the time between two lines while compiling.
	progressEvery = 15 * time.Second
	// downloadTries bounds how often a build that failed over the network runs.
	downloadTries = 3
	// keepUnused is how long an unused older build stays in the cache.
	keepUnused = 14 * 24 * time.Hour
)

// Build returns the programs, building them if the cache has none.
func (b Builder) Build(ctx context.Context) (Binaries, error) {
	bins, err := b.Locate(ctx)
	if err != nil {
		return Binaries{}, err
	}
	if used(bins) {
		return bins, nil
	}
	if err := os.MkdirAll(filepath.Dir(bins.Dir), 0o755); err != nil {
		return Binaries{}, fmt.Errorf("make binary cache: %w", err)
	}
	unlock, err := b.lock(ctx, bins.Dir+".lock")
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	if used(bins) { // by whoever held the lock
		return bins, nil
	}
	b.prune()
	if err := b.compile(ctx, bins); err != nil {
		return Binaries{}, fmt.Errorf("build Argo Workflows %s: %w", Version, err)
	}
	return bins, nil
}

// used reports whether the build is complete, and marks it as used now.
func used(bins Binaries) bool {
	if !bins.Complete() {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(bins.Dir, now, now) // a read-only cache only costs a rebuild some day
	return true
}

// prune removes older builds that nobody used for a while. Failing to is
// harmless: the next build tries again.
func (b Builder) prune() {
	old, _ := filepath.Glob(filepath.Join(b.Cache, "bin", dirPrefix+"v*"))
	for _, dir := range old {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && time.Since(info.ModTime()) > keepUnused {
			_ = os.RemoveAll(dir)
		}
	}
}

func (b Builder) compile(ctx context.Context, bins Binaries) (err error) {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	began := time.Now()
	b.Log("building Argo Workflows %s: some 2,000 packages, about 10 minutes on two idle cores the first time, later it comes from %s", Version, bins.Dir)
	module, err := Download(ctx)
	if err != nil {
		return err
	}
	work := bins.Dir + ".work" // a fixed name under the lock: leftovers of a killed build are replaced
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("remove leftovers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	src, out := filepath.Join(work, "src"), filepath.Join(work, "out")
	if err := errors.Join(os.MkdirAll(src, 0o755), os.MkdirAll(out, 0o755)); err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	if err := copySource(module, src); err != nil {
		return err
	}
	backoff := retry.WithMaxRetries(downloadTries-1, retry.NewExponential(2*time.Second))
	err = retry.Do(ctx, backoff, func(ctx context.Context) error { return b.goBuild(ctx, src, out, began) })
	if err != nil {
		return err
	}
	if err := os.RemoveAll(bins.Dir); err != nil {
		return fmt.Errorf("remove incomplete build: %w", err)
	}
	if err := os.Rename(out, bins.Dir); err != nil {
		return fmt.Errorf("put programs into the cache: %w", err)
	}
	if !bins.Complete() {
		return fmt.Errorf("%s lacks one of %s", bins.Dir, strings.Join(Programs(), ", "))
	}
	b.Log("built Argo Workflows %s in %s", Version, time.Since(began).Round(time.Second))
	return nil
}

// goBuild runs the Go tool once. A failure that comes from the network is marked
// as worth another try.
func (b Builder) goBuild(ctx context.Context, src, out string, began time.Time) error {
	cmd := exec.CommandContext(ctx, "go", arguments(out)...)
	cmd.Dir, cmd.Env = src, environment()
	// The Go tool and its compilers are one process group and end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	p := &progress{}
	cmd.Stderr = p
	stop := b.report(p, began)
	err := cmd.Run()
	stop()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	err = fmt.Errorf("run go build: %w\n%s", err, p.tail())
	if p.network() && ctx.Err() == nil {
		b.Log("a download failed, trying again: %v", err)
		return retry.RetryableError(err)
	}
	return err
}

// report logs the progress until the returned function is called.
func (b Builder) report(p *progress, began time.Time) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				n, last := p.state()
				b.Log("building Argo Workflows: %d packages after %s, now %s", n, time.Since(began).Round(time.Second), last)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// lock takes an exclusive file lock, or says that it waits and then waits for it.
func (b Builder) lock(ctx context.Context, file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open build lock: %w", err)
	}
	told := false
	backoff := retry.WithMaxDuration(lockLimit, retry.NewConstant(500*time.Millisecond))
	err = retry.Do(ctx, backoff, func(context.Context) error {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			if !told {
				b.Log("waiting for another process that builds Argo Workflows")
				told = true
			}
			return retry.RetryableError(err)
		}
		return err
	})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock build %s: %w", file, err)
	}
	return func() { _ = f.Close() }, nil // closing releases the lock
}

// progress reads what "go build -v" says: a package path per line as each is
// compiled, and messages.
type progress struct {
	mu      sync.Mutex
	partial string
	count   int
	last    string
	lines   []string
}

var _ io.Writer = (*progress)(nil)

// tailLines is how much of the Go tool's output a failure shows.
const tailLines = 30

// Write takes output of the Go tool.
func (p *progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.partial + string(data)
	end := strings.LastIndexByte(text, '\n') + 1
	p.partial = text[end:]
	for sc := bufio.NewScanner(strings.NewReader(text[:end])); sc.Scan(); {
		line := sc.Text()
		if strings.ContainsAny(line, " :#") { // a message, not a package
			if p.lines = append(p.lines, line); len(p.lines) > tailLines {
				p.lines = p.lines[1:]
			}
			if strings.HasPrefix(line, "go: downloading ") {
				p.last = line
			}
			continue
		}
		p.count++
		p.last = line
	}
	return len(data), nil
}

func (p *progress) state() (packages int, last string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.last
}

func (p *progress) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(append(p.lines, p.partial), "\n")
}

// network reports whether the failure looks like one of the module proxy's or
// the network's, which another try may cure.
func (p *progress) network() bool {
	out := p.tail()
	for _, sign := range []string{"dial tcp", "i/o timeout", "connection reset", "TLS handshake", "502 Bad Gateway", "503 Service", "504 Gateway", "unexpected EOF"} {
		if strings.Contains(out, sign) {
			return true
		}
	}
	return false
}
