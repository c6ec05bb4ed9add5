package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/render"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/supervisor"
)

// DaemonCommand is the hidden command by which the tool starts itself as a
// cluster's daemon.
const DaemonCommand = "daemon"

// Descriptors that "up" hands to the daemon.
const (
	lifelineFD = 3
	socketFD   = 4
)

// Daemon holds a cluster until ctx ends, or until "up" dies before it has
// detached; in the latter case a fresh cluster's state is removed too.
func Daemon(ctx context.Context, dir state.Dir, fresh bool, log *slog.Logger) error {
	lifeline := os.NewFile(lifelineFD, "lifeline")
	socket := os.NewFile(socketFD, "port")
	defer socket.Close()
	spec, err := dir.Spec()
	if err != nil {
		return err
	}
	self, err := proc.Identify(os.Getpid())
	if err != nil {
		return err
	}
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	go watchLifeline(lifeline, abandon)

	log.Info("holding cluster", "name", spec.Name, "mode", spec.Mode, "pid", self.PID)
	if spec.Mode == state.Full {
		err = guard(ctx, dir, spec, self, socket, log)
	} else {
		err = holdControlPlane(ctx, dir, spec, self, log)
	}
	err = errors.Join(err, dir.RemoveRun())
	if fresh && errors.Is(context.Cause(ctx), errAbandoned) {
		log.Info("removing state of an up that didn't finish")
		err = errors.Join(err, dir.Remove())
		releaseAbandoned(dir)
	}
	return err
}

var errAbandoned = errors.New("up ended before the cluster was ready")

// watchLifeline abandons the cluster if the pipe ends before detach was read.
func watchLifeline(pipe io.ReadCloser, abandon context.CancelCauseFunc) {
	defer pipe.Close()
	var b [1]byte
	if n, err := io.ReadFull(pipe, b[:]); n == 1 && err == nil && b[0] == detach {
		return
	}
	abandon(errAbandoned)
}

// controlPlaneStopLimit: an orderly stop takes one to two seconds; the API
// server waits for its watches.
const controlPlaneStopLimit = 8 * time.Second

func holdControlPlane(ctx context.Context, dir state.Dir, spec state.Spec, self proc.Identity, log *slog.Logger) error {
	if err := dir.WriteRun(state.Run{Daemon: self}); err != nil {
		return err
	}
	s := supervisor.New(proc.NewTable(), log, []supervisor.Component{{
		Name:      "controlplane",
		Path:      spec.Kube,
		Args:      render.ControlPlaneArgs(dir, spec),
		Env:       os.Environ(),
		Log:       dir.Log("controlplane"),
		StopLimit: controlPlaneStopLimit,
	}})
	return serve(ctx, s, dir, nil)
}

// serve runs a supervisor and its control socket until ctx ends.
func serve(ctx context.Context, s *supervisor.Supervisor, dir state.Dir, orders map[string]func(string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- s.Serve(ctx, dir.ControlSocket(), orders)
	}()
	s.Run(ctx)
	if err := <-served; err != nil {
		return fmt.Errorf("supervise: %w", err)
	}
	return nil
}
