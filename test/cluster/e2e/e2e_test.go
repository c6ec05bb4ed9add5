//go:build e2e

// Package e2e tests the cluster command as a person uses it. It needs root and
// takes minutes; the programs should have been built ("cluster build").
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sethvargo/go-retry"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/archive"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

const (
	commandLimit = 10 * time.Minute
	probeImage   = "rollcall.internal/probe:1" // as in probe.yaml
)

// tool is the built cluster command.
var tool string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cluster-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	tool = filepath.Join(dir, "cluster")
	if err := build("../cmd/cluster", tool); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func build(pkg, out string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if raw, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, raw)
	}
	return nil
}

// target is one cluster of a test.
type target struct {
	name  string
	state string
}

// newTarget names a cluster that doesn't exist yet; it is taken down when the
// test ends, however it ends.
func newTarget(t *testing.T, name string) *target {
	t.Helper()
	require.Zero(t, os.Geteuid(), "a full cluster needs root")
	// Deep on purpose: no path of the cluster may depend on a short one.
	c := &target{name: "e2e-" + name, state: filepath.Join(t.TempDir(), "a-state-folder-with-a-long-name", "below-another-one", "state")}
	t.Cleanup(func() {
		if out, err := c.command(context.Background(), "down").CombinedOutput(); err != nil {
			t.Errorf("take cluster down: %v\n%s", err, out)
		}
	})
	return c
}

func (c *target) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tool, append([]string{"--name", c.name, "--state", c.state}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// run runs a command of the tool and returns its output.
func (c *target) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	cmd := c.command(ctx, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	require.NoError(t, cmd.Run(), "cluster %v: %s", args, &stderr)
	return out.String()
}

// kubectl runs kubectl from the state folder.
func (c *target) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.state, "bin", "kubectl"), append([]string{"--kubeconfig", filepath.Join(c.state, "kubeconfig")}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// ask sends a request to a pod of the probe.
func (c *target) ask(t *testing.T, pod, path string, args ...string) (string, error) {
	t.Helper()
	return c.kubectl(t, append([]string{"get", "--raw", "/api/v1/namespaces/probe/pods/" + pod + ":8080/proxy/" + path}, args...)...)
}

// eventually looks at a condition for up to two minutes.
func eventually(t *testing.T, what string, cond func() error) {
	t.Helper()
	const limit = 2 * time.Minute
	var last error
	backoff := retry.WithMaxDuration(limit, retry.NewConstant(250*time.Millisecond))
	err := retry.Do(t.Context(), backoff, func(context.Context) error {
		last = cond()
		return retry.RetryableError(last)
	})
	if err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, last)
	}
}

func TestUpDownLeavesNothing(t *testing.T) {
	c := newTarget(t, "whole")
	before := takeSnapshot(t, c)

	c.run(t, "up")
	namespaces := c.namespaces(t)
	c.run(t, "status")
	t.Run("pods have names, services, volumes and logs", func(t *testing.T) { testProbe(t, c) })
	t.Run("a second up changes nothing", func(t *testing.T) {
		pid := c.run(t, "pid", "kube-apiserver")
		c.run(t, "up")
		require.Equal(t, pid, c.run(t, "pid", "kube-apiserver"))
	})
	t.Run("components that end are started again", func(t *testing.T) { testComponents(t, c) })
	t.Run("state outlives a restart", func(t *testing.T) {
		c.run(t, "down", "--keep-state")
		_, err := c.command(t.Context(), "status").Output()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 3, exit.ExitCode(), "exit code of status for a cluster that is down")
		c.run(t, "up")
		namespaces = append(namespaces, c.namespaces(t)...)
		eventually(t, "the volume's content", func() error { return c.expect(t, "probe-0", "file", "kept") })
	})
	t.Run("a second cluster beside it", func(t *testing.T) {
		other := newTarget(t, "other")
		other.run(t, "up", "--proxy-mode=iptables")
		other.run(t, "status")
		// Its API server wants HTTPS, which is answer enough.
		spec, err := state.Dir(other.state).Spec()
		require.NoError(t, err)
		address := strings.TrimSpace(c.run(t, "reach", strconv.Itoa(spec.Port)))
		eventually(t, "pods of one reach the other's API server", func() error {
			got, err := c.ask(t, "probe-0", "fetch?url="+url.QueryEscape("http://"+address+"/"))
			if err == nil && !strings.Contains(got, "HTTPS server") {
				err = errors.New(got)
			}
			return err
		})
		c.run(t, "status")
		other.run(t, "down")
		c.run(t, "status")
	})

	c.run(t, "down")
	c.run(t, "down") // again: nothing to do
	before.requireSame(t, c, namespaces)
}

// expect compares a probe's answer.
func (c *target) expect(t *testing.T, pod, path, want string) error {
	t.Helper()
	got, err := c.ask(t, pod, path)
	if err == nil && got != want {
		return fmt.Errorf("ask %s for %s: got %q, want %q", pod, path, got, want)
	}
	return err
}

func testProbe(t *testing.T, c *target) {
	dir := t.TempDir()
	require.NoError(t, build("./probe", filepath.Join(dir, "probe")))
	image := filepath.Join(dir, "probe.tar")
	require.NoError(t, archive.Write(image, probeImage, filepath.Join(dir, "probe")))
	c.run(t, "load", image)
	_, err := c.kubectl(t, "apply", "--server-side", "-f", "probe.yaml")
	require.NoError(t, err)
	_, err = c.kubectl(t, "-n", "probe", "rollout", "status", "statefulset/probe", "--timeout=90s")
	require.NoError(t, err)

	fetch := func(u string) string { return "fetch?url=" + url.QueryEscape(u) }
	eventually(t, "a pod by its name", func() error { return c.expect(t, "probe-0", fetch("http://probe-1.each:8080/name"), "probe-1") })
	for _, want := range []string{"probe-0", "probe-1"} { // itself too: the hairpin
		eventually(t, "the service leads to "+want, func() error {
			return c.expect(t, "probe-0", fetch("http://probe.probe.svc.cluster.local/name"), want)
		})
	}
	_, err = c.ask(t, "probe-0", "lookup?name=outside.example")
	require.ErrorContains(t, err, "no such host", "a name outside of the cluster doesn't exist")

	_, err = c.kubectl(t, "-n", "probe", "exec", "probe-0", "--", "/main", "write", "kept")
	require.NoError(t, err)
	require.NoError(t, c.expect(t, "probe-0", "file", "kept"))
	logs, err := c.kubectl(t, "-n", "probe", "logs", "probe-0")
	require.NoError(t, err)
	require.Equal(t, "listening\n", logs)
	require.NotEmpty(t, c.run(t, "exec", "--", "ip", "route"))
}

func testComponents(t *testing.T, c *target) {
	for _, name := range []string{"kube-apiserver", "kubelet", "containerd", "etcd"} {
		before := c.run(t, "pid", name)
		c.run(t, "kill", name)
		eventually(t, name+" runs again", func() error {
			out, err := c.command(t.Context(), "pid", name).Output()
			if err != nil {
				return fmt.Errorf("ask for its pid: %w", err)
			}
			if string(out) == before {
				return errors.New("still the killed process")
			}
			return nil
		})
	}
	eventually(t, "all is well again", func() error {
		out, err := c.command(t.Context(), "status").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	require.NoError(t, c.expect(t, "probe-0", "file", "kept"), "pods outlive their supervisors")
	c.run(t, "stop", "kube-apiserver")
	_, err := c.kubectl(t, "version", "--request-timeout=2s")
	require.Error(t, err)
	c.run(t, "start", "kube-apiserver", "--wait")
	c.run(t, "restart", "kube-scheduler")
}

func TestInterruptedUpLeavesNothing(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"by Ctrl-C": syscall.SIGINT, "by SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			c := newTarget(t, "interrupted")
			before := takeSnapshot(t, c)
			up := c.command(t.Context(), "up")
			require.NoError(t, up.Start())
			eventually(t, "the sandbox", func() error {
				_, err := os.Stat(filepath.Join(c.state, "log", "etcd.log"))
				return err
			})
			namespaces := c.namespaces(t)
			require.NoError(t, up.Process.Signal(signal))
			require.Error(t, up.Wait())
			before.requireSame(t, c, namespaces)
		})
	}
}

func TestKilledDaemonTakesEverythingAlong(t *testing.T) {
	c := newTarget(t, "crashed")
	before := takeSnapshot(t, c)
	c.run(t, "up")
	namespaces := c.namespaces(t)
	require.NoError(t, syscall.Kill(c.run0(t).Daemon.PID, syscall.SIGKILL))
	eventually(t, "no process is left", func() error { return noProcesses(c, namespaces) })
	c.run(t, "down")
	before.requireSame(t, c, namespaces)
}

func TestControlPlanesSideBySide(t *testing.T) {
	a, b := newTarget(t, "a"), newTarget(t, "b")
	a.run(t, "up", "--control-plane")
	b.run(t, "up", "--control-plane")
	for _, c := range []*target{a, b} {
		_, err := c.kubectl(t, "create", "namespace", "only-"+c.name)
		require.NoError(t, err)
	}
	_, err := a.kubectl(t, "get", "namespace", "only-"+b.name)
	require.ErrorContains(t, err, "NotFound")
	a.run(t, "down")
	b.run(t, "status")
	out, err := os.ReadFile(filepath.Join(b.state, "audit.log"))
	require.NoError(t, err)
	require.True(t, strings.Contains(string(out), "only-"+b.name), "requests are in the audit log")
}
