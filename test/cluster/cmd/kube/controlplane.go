package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllermanageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

const (
	// etcdStartLimit bounds the wait for the embedded etcd's single member to
	// elect itself; half a second is usual.
	etcdStartLimit = 60 * time.Second
	// stopLimit bounds the orderly stop of the API server (open watches).
	stopLimit = 10 * time.Second
)

// anyLoopbackPort lets the kernel choose: nobody outside the process needs
// to know etcd's port.
const anyLoopbackPort = "http://127.0.0.1:0"

// controlPlane holds what the flags of "kube controlplane" say.
type controlPlane struct {
	dataDir           string
	apiServer         []string
	controllerManager []string
	scheduler         []string
}

// newControlPlaneCommand returns the command that runs etcd, API server,
// controller manager and scheduler in this one process. It is a third of the
// memory of four processes and ready in seconds, which is what a test wants.
// If one of them ends, the process ends with exit code 1: restarting is the
// caller's job.
func newControlPlaneCommand() *cobra.Command {
	cp := controlPlane{}
	cmd := &cobra.Command{
		Use:          "controlplane",
		Short:        "Run etcd, API server, controller manager and scheduler in one process",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return cp.run(ctx)
		},
	}
	cmd.SetContext(context.Background())
	f := cmd.Flags()
	f.StringVar(&cp.dataDir, "data-dir", "", "folder of etcd's data (required)")
	f.StringArrayVar(&cp.apiServer, "apiserver", nil, "a flag for kube-apiserver; repeatable")
	f.StringArrayVar(&cp.controllerManager, "controller-manager", nil, "a flag for kube-controller-manager; repeatable")
	f.StringArrayVar(&cp.scheduler, "scheduler", nil, "a flag for kube-scheduler; repeatable")
	if err := cmd.MarkFlagRequired("data-dir"); err != nil {
		cmd.RunE = func(*cobra.Command, []string) error { return err }
	}
	return cmd
}

// run returns when ctx ends (nil) or when a component ends (its error).
func (cp controlPlane) run(ctx context.Context) error {
	// Each component applies the logging configuration; only the first counts.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	etcd, endpoint, err := startEtcd(ctx, cp.dataDir)
	if err != nil {
		return err
	}
	defer etcd.Close()

	// The API server outlives the others' context, so that they can still
	// write what they have to while they stop.
	apiCtx, stopAPI := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAPI()
	apiEnd := make(chan error, 1)
	go func() { apiEnd <- runAPIServer(apiCtx, endpoint, cp.apiServer) }()

	ended := make(chan error, 2)
	go func() { ended <- runControllerManager(ctx, cp.controllerManager) }()
	go func() { ended <- runScheduler(ctx, cp.scheduler) }()

	var cause error
	select {
	case <-ctx.Done():
	case err := <-etcd.Err():
		cause = fmt.Errorf("run etcd: %w", err)
	case err := <-apiEnd:
		return fmt.Errorf("run kube-apiserver: %w", orEnded(err))
	case err := <-ended:
		// At the end of ctx both arms may be ready: that is no failure.
		if ctx.Err() == nil {
			cause = orEnded(err)
		}
	}
	stopAPI()
	select {
	case <-apiEnd:
	case <-time.After(stopLimit):
	}
	return cause
}

// errEnded stands for a component that ended without saying why.
var errEnded = errors.New("ended unexpectedly")

func orEnded(err error) error {
	if err == nil {
		return errEnded
	}
	return err
}

// startEtcd runs a single-member etcd with its data in dir and returns its
// client URL. It trades durability for speed (no fsync): data survives the
// death of the process, not the death of the machine.
func startEtcd(ctx context.Context, dir string) (*embed.Etcd, string, error) {
	u, err := url.Parse(anyLoopbackPort)
	if err != nil {
		return nil, "", fmt.Errorf("parse etcd address: %w", err)
	}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*u}, []url.URL{*u}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*u}, []url.URL{*u}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.LogLevel = "warn"
	cfg.UnsafeNoFsync = true
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("start etcd: %w", err)
	}
	limit := time.NewTimer(etcdStartLimit)
	defer limit.Stop()
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, "http://" + etcd.Clients[0].Addr().String(), nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-limit.C:
		err = fmt.Errorf("not ready after %s", etcdStartLimit)
	}
	etcd.Close()
	return nil, "", fmt.Errorf("start etcd: %w", err)
}

func runAPIServer(ctx context.Context, etcd string, args []string) error {
	o := apiserveroptions.NewServerRunOptions()
	if err := parse("kube-apiserver", o.Flags(), append([]string{"--etcd-servers=" + etcd}, args...)); err != nil {
		return err
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	if err := logsapi.ValidateAndApply(o.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return fmt.Errorf("complete options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("validate options: %w", utilerrors.NewAggregate(errs))
	}
	return apiserver.Run(ctx, completed)
}

func runControllerManager(ctx context.Context, args []string) error {
	o, err := controllermanageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("make kube-controller-manager options: %w", err)
	}
	known, disabled, aliases := controllermanager.KnownControllers(),
		controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases()
	if err := parse("kube-controller-manager", o.Flags(known, disabled, aliases), args); err != nil {
		return err
	}
	c, err := o.Config(ctx, known, disabled, aliases)
	if err != nil {
		return fmt.Errorf("configure kube-controller-manager: %w", err)
	}
	if err := controllermanager.Run(ctx, c.Complete()); err != nil {
		return fmt.Errorf("run kube-controller-manager: %w", err)
	}
	return nil
}

func runScheduler(ctx context.Context, args []string) error {
	o := scheduleroptions.NewOptions()
	if err := parse("kube-scheduler", *o.Flags, args); err != nil {
		return err
	}
	c, s, err := scheduler.Setup(ctx, o)
	if err != nil {
		return fmt.Errorf("configure kube-scheduler: %w", err)
	}
	if err := scheduler.Run(ctx, c, s); err != nil {
		return fmt.Errorf("run kube-scheduler: %w", err)
	}
	return nil
}

// parse applies args to a component's named flag sets.
func parse(name string, sets cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet(name, pflag.ContinueOnError)
	for _, fs := range sets.FlagSets {
		all.AddFlagSet(fs)
	}
	if err := all.Parse(args); err != nil {
		return fmt.Errorf("parse %s flags: %w", name, err)
	}
	return nil
}
