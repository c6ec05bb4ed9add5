package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/api"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/pki"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/render"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

// Limits of the waits of an up; the usual times on two idle cores are a tenth.
const (
	apiLimit            = 120 * time.Second
	serviceAccountLimit = 60 * time.Second
	nodeLimit           = 120 * time.Second
	addonLimit          = 120 * time.Second
	daemonStopLimit     = 30 * time.Second
)

// detach is what "up" writes into the pipe between it and the daemon when the
// cluster is ready: from then on the daemon lives on its own.
const detach = 'd'

// Session is a cluster that was brought up. Until Detach is called, the
// cluster ends with this process, or with End.
type Session struct {
	c        *Cluster
	lifeline *os.File
	ended    chan struct{}
	fresh    bool
}

// Up brings the cluster up and waits until it is ready. A cluster that runs
// already is only waited for; then the session is nil and there is nothing to
// detach. On an error nothing of this attempt remains; a state folder that was
// there before stays.
func (c *Cluster) Up(ctx context.Context) (_ *Session, err error) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if running, err := c.alreadyUp(ctx); err != nil || running {
		return nil, err
	}
	spec, socket, err := c.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	fresh := c.isFresh()
	if err := c.configure(spec); err != nil {
		if fresh {
			err = errors.Join(err, c.dir.Remove())
		}
		return nil, err
	}
	s, err := c.launch(socket, fresh)
	if err != nil {
		return nil, err
	}
	if err := c.awaitReady(ctx, s, spec); err != nil {
		err = fmt.Errorf("bring up %s: %w", c.opts.Name, err)
		if ctx.Err() != nil { // interrupted: nothing in the logs to explain it
			return nil, errors.Join(err, s.End())
		}
		return nil, errors.Join(err, c.logTail(spec), s.End())
	}
	return s, nil
}

func (c *Cluster) lock(ctx context.Context) (func(), error) {
	return lock(ctx, c.dir.LockFile(), func() { c.opts.Log("waiting for another command on cluster %s", c.opts.Name) })
}

// isFresh reports whether there is no state of an earlier run.
func (c *Cluster) isFresh() bool {
	_, err := c.dir.Spec()
	return err != nil
}

// alreadyUp waits for a running cluster to be ready; false if none runs. What
// a crashed run left is cleared away.
func (c *Cluster) alreadyUp(ctx context.Context) (bool, error) {
	run, err := c.dir.Run()
	if err != nil {
		return false, err
	}
	spec, err := c.dir.Spec()
	if errors.Is(err, fs.ErrNotExist) {
		return false, c.ensureEmpty()
	}
	if err != nil {
		return false, err
	}
	if spec.Mode != c.opts.Mode {
		return false, fmt.Errorf("%w: cluster %s is of mode %s: choose another --name or take it down first", ErrBadOption, c.opts.Name, spec.Mode)
	}
	if !run.Daemon.Alive() {
		return false, c.clear(ctx, spec, run)
	}
	if err := c.awaitAll(ctx, spec); err != nil {
		return false, fmt.Errorf("%s runs but isn't ready: %w", c.opts.Name, err)
	}
	c.opts.Log("cluster %s is up already", c.opts.Name)
	return true, nil
}

// ensureEmpty refuses a state folder that holds somebody else's files.
func (c *Cluster) ensureEmpty() error {
	entries, err := os.ReadDir(string(c.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into state folder: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("use %s: %w", c.dir, state.ErrForeign)
	}
	return nil
}

// prepare does what may take long and leaves nothing behind in the state
// folder: packages, builds, the port.
func (c *Cluster) prepare(ctx context.Context) (state.Spec, *os.File, error) {
	spec := state.Spec{Name: c.opts.Name, Mode: c.opts.Mode, Port: c.opts.Port}
	old, err := c.dir.Spec()
	if err == nil && spec.Port == 0 {
		spec.Port = old.Port
	}
	source, err := c.source()
	if err != nil {
		return spec, nil, err
	}
	if spec.Mode == state.Full {
		if err := c.prepareNode(ctx, source, &spec); err != nil {
			return spec, nil, err
		}
	}
	if spec.Kube, _, err = c.builder().Build(ctx, kubeTarget(source)); err != nil {
		return spec, nil, err
	}
	socket, port, err := openPort(spec.Port, spec.Mode == state.Full)
	if err != nil && c.opts.Port == 0 && spec.Port != 0 {
		// The port of the last time is taken by now, and wasn't asked for.
		socket, port, err = openPort(0, spec.Mode == state.Full)
	}
	if err != nil {
		return spec, nil, err
	}
	spec.Port = port
	return spec, socket, nil
}

// configure fills the state folder.
func (c *Cluster) configure(spec state.Spec) error {
	for _, d := range []string{string(c.dir), c.dir.Logs(), c.dir.Bin(), c.dir.Data("etcd")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make state folder: %w", err)
		}
	}
	if err := c.dir.WriteSpec(spec); err != nil {
		return err
	}
	if err := pki.Ensure(c.dir.PKI(), render.Certificates(spec)); err != nil {
		return err
	}
	files, err := render.Common(c.dir)
	if err != nil {
		return err
	}
	if files[c.dir.Kubeconfig()], err = render.Kubeconfig(spec.Name, fmt.Sprintf("https://127.0.0.1:%d", spec.Port), c.dir.PKI(), "admin"); err != nil {
		return err
	}
	if spec.Mode == state.Full {
		if err := render.Node(c.dir, spec, files); err != nil {
			return err
		}
	}
	if err := files.WriteAll(); err != nil {
		return err
	}
	return link(spec.Kube, filepath.Join(c.dir.Bin(), "kubectl"))
}

// link makes or replaces a symbolic link.
func link(target, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace link: %w", err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("make link: %w", err)
	}
	return nil
}

// launch starts the daemon, which starts everything else.
func (c *Cluster) launch(socket *os.File, fresh bool) (*Session, error) {
	out, err := os.OpenFile(c.dir.Log("daemon"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open daemon's log: %w", err)
	}
	defer out.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe to daemon: %w", err)
	}
	defer read.Close()
	// This very file, even if a newer build has taken its place meanwhile.
	cmd := exec.Command("/proc/self/exe", DaemonCommand, string(c.dir), fmt.Sprint(fresh))
	cmd.Args[0] = "cluster"
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{read, socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	s := &Session{c: c, lifeline: write, ended: make(chan struct{}), fresh: fresh}
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // its log says why it ended
	}()
	return s, nil
}

// errDaemonEnded is the cause of a wait's end when there is nothing left to
// wait for.
var errDaemonEnded = errors.New("the cluster's daemon ended")

func (c *Cluster) awaitReady(ctx context.Context, s *Session, spec state.Spec) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.ended:
			cancel(errDaemonEnded)
		case <-ctx.Done():
		}
	}()
	err := c.awaitAll(ctx, spec)
	if err != nil && errors.Is(context.Cause(ctx), errDaemonEnded) {
		return errDaemonEnded
	}
	return err
}

// awaitAll waits for everything that makes a cluster of the mode ready.
func (c *Cluster) awaitAll(ctx context.Context, spec state.Spec) error {
	if spec.Mode == state.ControlPlane {
		return c.awaitAPI(ctx, spec)
	}
	// Importing images needs containerd only, and takes about as long as the
	// API server's start.
	imported := make(chan error, 1)
	go func() { imported <- c.importOwn(ctx, spec) }()
	if err := c.awaitAPI(ctx, spec); err != nil {
		return err
	}
	if err := c.applyAddons(ctx, spec); err != nil {
		return err
	}
	if err := <-imported; err != nil {
		return err
	}
	if err := c.awaitNode(ctx, spec); err != nil {
		return err
	}
	return c.awaitAddons(ctx, spec)
}

// awaitAPI waits until the API server is ready and the default namespace can
// have pods.
func (c *Cluster) awaitAPI(ctx context.Context, spec state.Spec) error {
	client, err := api.New(c.dir.PKI(), spec.Port)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := api.WaitFor(ctx, "the API server", apiLimit, client.Ready); err != nil {
		return err
	}
	c.opts.Log("API server ready after %.1f s: https://127.0.0.1:%d", time.Since(began).Seconds(), spec.Port)
	return api.WaitFor(ctx, "the default service account", serviceAccountLimit,
		client.Exists("/api/v1/namespaces/default/serviceaccounts/default"))
}

// logTail is an error that quotes the end of each log that isn't empty, for a
// person who has only the output of "up".
func (c *Cluster) logTail(spec state.Spec) error {
	lines := c.opts.LogLines
	names := []string{"daemon", "controlplane"}
	if spec.Mode == state.Full {
		names = []string{"daemon", "init", "containerd", "etcd", "kube-apiserver", "kube-controller-manager", "kubelet"}
	}
	var b strings.Builder
	for _, n := range names {
		raw, err := os.ReadFile(c.dir.Log(n))
		if err != nil || len(raw) == 0 {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(raw)), "\n")
		fmt.Fprintf(&b, "--- end of %s\n%s\n", c.dir.Log(n), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	if b.Len() == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(b.String()))
}

// Detach lets the cluster live on without this process.
func (s *Session) Detach() error {
	defer s.lifeline.Close()
	if _, err := s.lifeline.Write([]byte{detach}); err != nil {
		return fmt.Errorf("detach from daemon: %w", err)
	}
	return nil
}

// Ended is closed when the cluster's daemon has ended.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// End stops the cluster and, if this session made it, removes its state.
func (s *Session) End() error {
	s.lifeline.Close() // the daemon takes the end of the pipe as its order
	limit := time.NewTimer(daemonStopLimit)
	defer limit.Stop()
	select {
	case <-s.ended:
	case <-limit.C:
		s.c.opts.Log("the daemon doesn't stop: killing it")
	}
	run, err := s.c.dir.Run()
	if err != nil {
		return err
	}
	spec, err := s.c.dir.Spec()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the daemon has removed everything
	}
	if err != nil {
		return err
	}
	if err := s.c.clear(context.Background(), spec, run); err != nil {
		return err
	}
	if s.fresh {
		return s.c.dir.Remove()
	}
	return nil
}
