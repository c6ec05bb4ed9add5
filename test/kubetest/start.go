package kubetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// startLimit bounds one start with Kubernetes built; 7 s is usual on two
	// idle cores.
	startLimit = 3 * time.Minute
	// buildLimit bounds the build of the tool and, the first time, Kubernetes.
	buildLimit = 30 * time.Minute
	// stopLimit bounds the orderly end of a control plane.
	stopLimit = 30 * time.Second
)

// ControlPlane is a running control plane.
type ControlPlane struct {
	state  string
	tool   *tool
	config *rest.Config

	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *lockedBuffer
	exited chan struct{}
}

// options of Start.
type options struct{ dedicated bool }

// Option changes what Start does.
type Option func(*options)

// Dedicated asks for a control plane of the test's own, which ends with the
// test. It costs 360 MB and some 7 s; several run side by side.
func Dedicated() Option { return func(o *options) { o.dedicated = true } }

// shared is the test binary's own control plane, started by the first test
// that asks.
var shared struct {
	mu sync.Mutex
	cp *ControlPlane
}

// Main runs the tests, then ends the shared control plane, and returns the
// exit code. Without it the control plane ends too, but a moment after the
// test binary.
func Main(m *testing.M) int {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cp != nil {
		if err := shared.cp.end(); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Start returns the test binary's shared control plane, or with Dedicated a
// new one, ready to use. It ends the test if that can't be had.
func Start(t testing.TB, opts ...Option) *ControlPlane {
	t.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.dedicated {
		cp, err := start()
		require.NoError(t, err, "start a control plane")
		t.Cleanup(func() {
			if err := cp.end(); err != nil {
				t.Errorf("end control plane: %v", err)
			}
		})
		return cp
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cp == nil {
		cp, err := start()
		require.NoError(t, err, "start the shared control plane")
		shared.cp = cp
	}
	return shared.cp
}

// start runs "cluster up --foreground", which holds a control plane for as
// long as its standard input is open.
func start() (*ControlPlane, error) {
	tool, err := findTool()
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{
		// Not made here: the tool makes and removes it.
		state:  filepath.Join(os.TempDir(), fmt.Sprintf("rollcall-kubetest-%d-%08x", os.Getpid(), rand.Uint32())),
		tool:   tool,
		stderr: &lockedBuffer{},
		exited: make(chan struct{}),
	}
	cp.cmd = tool.command("up", "--control-plane", "--foreground", "--name=kubetest", "--state="+cp.state)
	cp.cmd.Stderr = cp.stderr
	stdin, err := cp.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	cp.stdin = stdin
	stdout, err := cp.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := cp.cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", tool.path, err)
	}
	if err := cp.awaitReady(stdout); err != nil {
		return nil, errors.Join(err, cp.end())
	}
	cp.config, err = clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load kubeconfig: %w", err), cp.end())
	}
	// No throttling by the client: tests measure the server and the code.
	cp.config.QPS = -1
	return cp, nil
}

// awaitReady reads the tool's one line of output. It watches the end of the
// process too.
func (cp *ControlPlane) awaitReady(stdout io.Reader) error {
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err == nil && line != "ready\n" {
			err = fmt.Errorf("unexpected output %q", line)
		}
		ready <- err
		// Wait may only be called once the output was read.
		_, _ = io.Copy(io.Discard, stdout)
		_ = cp.cmd.Wait() // the tool says on standard error what went wrong
		close(cp.exited)
	}()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case err := <-ready:
		if err != nil {
			return fmt.Errorf("bring up control plane: %w\n%s", err, cp.stderr)
		}
		return nil
	case <-limit.C:
		return fmt.Errorf("bring up control plane: not ready within %s\n%s", startLimit, cp.stderr)
	}
}

// end closes the pipe and waits for the tool to have removed everything.
func (cp *ControlPlane) end() error {
	_ = cp.stdin.Close() // already closed if the tool has ended
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-cp.exited:
		return nil
	case <-limit.C:
		if err := cp.cmd.Process.Kill(); err != nil {
			return fmt.Errorf("kill %s: %w", cp.tool.path, err)
		}
		return fmt.Errorf("end control plane: not within %s\n%s", stopLimit, cp.stderr)
	}
}

// tool is the command "cluster" of test/cluster.
type tool struct{ path, source string }

func (t *tool) command(args ...string) *exec.Cmd {
	return exec.Command(t.path, append([]string{"--source=" + t.source}, args...)...) //nolint:noctx // the control plane outlives the test that starts it
}

// ToolVariable names the environment variable with the path of a built
// "cluster" command; without it, the command is built from test/cluster.
const ToolVariable = "ROLLCALL_CLUSTER_TOOL"

var findTool = sync.OnceValues(func() (*tool, error) {
	source, err := findSource()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	t := &tool{path: os.Getenv(ToolVariable), source: source}
	if t.path == "" {
		if t.path, err = buildTool(ctx, source); err != nil {
			return nil, err
		}
	}
	// Kubernetes itself, so that startLimit is about the start only.
	build := exec.CommandContext(ctx, t.path, "--source="+source, "build", "--control-plane")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build Kubernetes: %w", err)
	}
	return t, nil
})

// findSource looks for test/cluster upwards from the working folder, which in
// a test is the package's.
func findSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find working folder: %w", err)
	}
	for {
		candidate := filepath.Join(dir, "test", "cluster")
		if _, err := os.Stat(filepath.Join(candidate, "cmd", "cluster")); err == nil {
			return candidate, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find test/cluster: not in any folder above the test's")
		}
		dir = parent
	}
}

// buildTool builds the command into the cache folder. Two test binaries may do
// so at once: each renames its own result into place.
func buildTool(ctx context.Context, source string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	bin := filepath.Join(cache, "rollcall", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	path := filepath.Join(bin, "cluster-kubetest")
	tmp := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", tmp, "./cmd/cluster")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the cluster command: %w\n%s", err, out)
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", fmt.Errorf("put the cluster command into the cache: %w", err)
	}
	return path, nil
}

// lockedBuffer is a buffer that may be read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
