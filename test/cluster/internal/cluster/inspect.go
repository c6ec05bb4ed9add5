package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/api"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/supervisor"
)

var (
	// ErrNotUp is returned for a question about a cluster that doesn't run.
	ErrNotUp = errors.New("cluster isn't up: run \"cluster up\"")
	// ErrUnhealthy is returned by Status for a cluster that runs but isn't
	// well.
	ErrUnhealthy = errors.New("cluster is not healthy")
)

// running returns the description of a running cluster.
func (c *Cluster) running() (state.Spec, state.Run, error) {
	spec, err := c.dir.Spec()
	if errors.Is(err, fs.ErrNotExist) {
		return spec, state.Run{}, fmt.Errorf("%s: %w", c.opts.Name, ErrNotUp)
	}
	if err != nil {
		return spec, state.Run{}, err
	}
	run, err := c.dir.Run()
	if err != nil {
		return spec, run, err
	}
	if !run.Daemon.Alive() {
		return spec, run, fmt.Errorf("%s: %w", c.opts.Name, ErrNotUp)
	}
	return spec, run, nil
}

// Status prints a table of the components and the health of API server and
// node. The error is ErrNotUp or ErrUnhealthy if all isn't well.
func (c *Cluster) Status(ctx context.Context, w io.Writer) error {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	spec, run, err := c.running()
	if err != nil {
		return err
	}
	all, err := supervisor.NewClient(c.dir.ControlSocket()).Statuses(ctx)
	if err != nil {
		return err
	}
	healthy := true
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COMPONENT\tSTATE\tPID\tUPTIME\tRESTARTS\tLAST ERROR")
	for _, s := range all {
		pid, uptime := "-", "-"
		if s.PID != 0 {
			uptime = time.Since(s.Since).Round(time.Second).String()
			if p, err := outerPID(spec, run, s.PID); err == nil {
				pid = fmt.Sprint(p)
			}
		}
		healthy = healthy && s.State == supervisor.Running
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", s.Name, s.State, pid, uptime, s.Restarts, s.LastError)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	client, err := api.New(c.dir.PKI(), spec.Port)
	if err != nil {
		return err
	}
	checks := []struct {
		name string
		ask  func(context.Context) error
	}{{fmt.Sprintf("API server https://127.0.0.1:%d", spec.Port), client.Ready}}
	if spec.Mode == state.Full {
		checks = append(checks, struct {
			name string
			ask  func(context.Context) error
		}{"node " + spec.Name, client.Condition(nodePath(spec), "Ready")})
	}
	fmt.Fprintln(w)
	for _, check := range checks {
		result := "ready"
		if err := check.ask(ctx); err != nil {
			healthy, result = false, err.Error()
		}
		fmt.Fprintf(w, "%s: %s\n", check.name, result)
	}
	if !healthy {
		return ErrUnhealthy
	}
	return nil
}

func nodePath(spec state.Spec) string { return "/api/v1/nodes/" + spec.Name }

// outerPID translates a supervisor's pid into one of this process's namespace.
func outerPID(spec state.Spec, run state.Run, pid int) (int, error) {
	if spec.Mode == state.ControlPlane {
		return pid, nil
	}
	return proc.FromNamespace(run.Init.PID, pid)
}

// component maps the names of parts to that of the process they run in.
func component(spec state.Spec, name string) string {
	if spec.Mode == state.ControlPlane {
		switch name {
		case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler":
			return "controlplane"
		}
	}
	return name
}

// Do carries out an action on a component of a running cluster. On a control
// plane, whose parts share a process, any part's name means that process. When
// it returns from a start or restart, the program runs, but it may not be
// ready yet.
func (c *Cluster) Do(ctx context.Context, name string, a supervisor.Action) error {
	spec, _, err := c.running()
	if err != nil {
		return err
	}
	if err := supervisor.NewClient(c.dir.ControlSocket()).Do(ctx, component(spec, name), a); err != nil {
		return fmt.Errorf("%s %s: %w", a, name, err)
	}
	return nil
}

// PID of a component's process, as seen from the machine.
func (c *Cluster) PID(ctx context.Context, name string) (int, error) {
	spec, run, err := c.running()
	if err != nil {
		return 0, err
	}
	all, err := supervisor.NewClient(c.dir.ControlSocket()).Statuses(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if s.Name != component(spec, name) {
			continue
		}
		if s.PID == 0 {
			return 0, fmt.Errorf("find process of %s: it is %s", name, s.State)
		}
		return outerPID(spec, run, s.PID)
	}
	return 0, fmt.Errorf("find process of %s: %w", name, supervisor.ErrUnknown)
}

// WaitReady waits until a running cluster's API server, and node, are ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	spec, _, err := c.running()
	if err != nil {
		return err
	}
	client, err := api.New(c.dir.PKI(), spec.Port)
	if err != nil {
		return err
	}
	if err := api.WaitFor(ctx, "the API server", apiLimit, client.Ready); err != nil {
		return err
	}
	if spec.Mode == state.ControlPlane {
		return nil
	}
	// The node's condition is a few seconds old at times; containerd's answer
	// is not.
	if _, err := c.images(ctx, spec); err != nil {
		return err
	}
	return c.awaitNode(ctx, spec)
}

// Env prints shell commands that set KUBECONFIG and PATH.
func (c *Cluster) Env(w io.Writer) error {
	if _, err := c.dir.Spec(); err != nil {
		return fmt.Errorf("%s: %w", c.opts.Name, ErrNotUp)
	}
	_, err := fmt.Fprintf(w, "export KUBECONFIG=%s\nexport PATH=%s%c\"$PATH\"\n",
		quote(c.dir.Kubeconfig()), quote(c.dir.Bin()), filepath.ListSeparator)
	return err
}

// quote makes a word of a POSIX shell.
func quote(s string) string {
	out := []rune{'\''}
	for _, r := range s {
		if r == '\'' {
			out = append(out, []rune(`'\''`)...)
			continue
		}
		out = append(out, r)
	}
	return string(append(out, '\''))
}
