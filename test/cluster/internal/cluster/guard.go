package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/api"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/render"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/sandbox"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/supervisor"
)

// InitCommand is the hidden command by which the tool starts itself as the
// first process of a full cluster's sandbox.
const InitCommand = "init"

// Descriptors that the daemon hands to the sandbox's first process: the API
// server's socket on the machine, and the machine's network namespace.
const (
	initSocketFD  = 3
	initNetworkFD = 4
)

// reachOrder opens a port of the machine to pods.
const reachOrder = "reach"

// initStopLimit bounds the orderly stop of a full cluster's components.
const initStopLimit = 20 * time.Second

// guard holds a full cluster: it starts the sandbox's first process, and
// removes the control groups when that has ended, for whatever reason.
func guard(ctx context.Context, dir state.Dir, spec state.Spec, self proc.Identity, socket *os.File, log *slog.Logger) (err error) {
	group := render.CgroupRoot(dir, spec)
	if err := sandbox.MakeCgroups(spec.CgroupVersion, group); err != nil {
		return errors.Join(err, removeCgroups(context.WithoutCancel(ctx), dir, spec))
	}
	defer func() { err = errors.Join(err, removeCgroups(context.WithoutCancel(ctx), dir, spec)) }()

	out, err := os.OpenFile(dir.Log("init"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer out.Close()
	network, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer network.Close()
	init, err := proc.NewTable().Start(proc.Spec{
		Path: "/proc/self/exe", Args: []string{"cluster", InitCommand, string(dir)},
		Env: os.Environ(), Dir: "/", Stdout: out, Stderr: out,
		Extra: []*os.File{socket, network}, Cloneflags: sandbox.Namespaces,
	})
	if err != nil {
		return fmt.Errorf("start sandbox: %w", err)
	}
	id, err := proc.Identify(init.PID)
	if err == nil {
		err = dir.WriteRun(state.Run{Daemon: self, Init: id})
	}
	if err != nil {
		return errors.Join(err, kill(init))
	}
	log.Info("sandbox started", "pid", init.PID)
	select {
	case <-init.Done():
		return fmt.Errorf("run sandbox: it ended by itself: %w", orUnknown(init.Err()))
	case <-ctx.Done():
	}
	if err := init.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	limit := time.NewTimer(initStopLimit)
	defer limit.Stop()
	select {
	case <-init.Done():
		return nil
	case <-limit.C:
		log.Warn("killing the sandbox", "after", initStopLimit)
		return kill(init)
	}
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("without an error")
	}
	return err
}

// kill ends the sandbox's first process; the kernel ends the others with it.
func kill(p *proc.Process) error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done()
	return nil
}

func removeCgroups(ctx context.Context, dir state.Dir, spec state.Spec) error {
	return sandbox.RemoveCgroups(ctx, spec.CgroupVersion, render.CgroupRoot(dir, spec))
}

// Init is the first process of a full cluster's sandbox: it builds the
// sandbox's view of the machine, runs the components, and passes connections
// from the machine on to the API server. When it ends, everything in the
// sandbox does.
func Init(ctx context.Context, dir state.Dir, log *slog.Logger) error {
	if os.Getpid() != 1 {
		return errors.New("run as first process of a pid namespace only: use \"cluster up\"")
	}
	spec, err := dir.Spec()
	if err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(initSocketFD, "port"))
	if err != nil {
		return fmt.Errorf("use the API server's port: %w", err)
	}
	defer listener.Close()
	if err := mounts(dir, spec); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	table := proc.NewTable()
	if err := sandbox.Network(table, spec.Programs["ip"], render.NodeIP); err != nil {
		return err
	}
	if err := sandbox.OpenVolumes(ctx, render.HostpathVolumes, log); err != nil {
		return err
	}
	go sandbox.Forward(ctx, listener, net.JoinHostPort("127.0.0.1", fmt.Sprint(render.InnerPort)), log)
	reach := &sandbox.Reach{Address: render.NodeIP, Machine: os.NewFile(initNetworkFD, "network"), Log: log}
	return serve(ctx, supervisor.New(table, log, nodeComponents(dir, spec)), dir, map[string]func(string) error{
		reachOrder: func(argument string) error {
			port, err := strconv.Atoi(argument)
			if err != nil {
				return fmt.Errorf("open port: %w", err)
			}
			return reach.Open(ctx, port)
		},
	})
}

// mounts maps the folders that have fixed paths to folders of the state.
func mounts(dir state.Dir, spec state.Spec) error {
	binds := map[string]string{
		render.KubeletRoot:     dir.Data("kubelet"),
		render.ContainerdRoot:  dir.Data("containerd"),
		render.HostpathVolumes: dir.Data("volumes"),
		render.PodLogs:         filepath.Join(dir.Logs(), "pods"),
	}
	for _, source := range binds {
		if err := os.MkdirAll(source, 0o755); err != nil {
			return fmt.Errorf("make folder of data: %w", err)
		}
	}
	return sandbox.Mounts([]string{string(dir), filepath.Dir(spec.Kube)}, binds)
}

const (
	componentStopLimit = 4 * time.Second
	// The API server would wait for its watches; it has nothing to lose.
	apiServerStopLimit = time.Second
)

// nodeComponents are the components of a full cluster, each with what it waits
// for.
func nodeComponents(dir state.Dir, spec state.Spec) []supervisor.Component {
	environment := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	waits := map[string]func(context.Context) error{
		"kubelet":                 awaitContainerd,
		"kube-controller-manager": awaitInnerAPI(dir),
		"kube-scheduler":          awaitInnerAPI(dir),
		"kube-proxy":              awaitInnerAPI(dir),
	}
	var all []supervisor.Component
	for _, c := range render.NodeCommands(dir, spec) {
		limit := componentStopLimit
		if c.Name == "kube-apiserver" {
			limit = apiServerStopLimit
		}
		all = append(all, supervisor.Component{
			Name: c.Name, Path: c.Path, Args: c.Args, Env: environment,
			Log: dir.Log(c.Name), Wait: waits[c.Name], StopLimit: limit,
		})
	}
	return all
}

// awaitContainerd waits until containerd accepts connections.
func awaitContainerd(ctx context.Context) error {
	return api.WaitFor(ctx, "containerd", nodeLimit, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", render.ContainerdSocket)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// awaitInnerAPI waits until the API server is ready, built-in roles included:
// before that, these components end with an error.
func awaitInnerAPI(dir state.Dir) func(context.Context) error {
	return func(ctx context.Context) error {
		client, err := api.New(dir.PKI(), render.InnerPort)
		if err != nil {
			return err
		}
		return api.WaitFor(ctx, "the API server", apiLimit, client.Ready)
	}
}
