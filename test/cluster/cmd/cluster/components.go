package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/cluster"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/supervisor"
)

func newStatus(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Print the components and the cluster's health (exit code 3 unless all is well)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.cluster(nil)
			if err != nil {
				return err
			}
			return c.Status(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

func newPID(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "pid COMPONENT",
		Short: "Print the process id of a component",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.cluster(nil)
			if err != nil {
				return err
			}
			pid, err := c.PID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), pid)
			return err
		},
	}
}

// newActions are the commands that act on one component.
func newActions(f *flags) []*cobra.Command {
	var all []*cobra.Command
	for _, a := range []struct {
		action supervisor.Action
		short  string
	}{
		{supervisor.Start, "Start a component that was stopped"},
		{supervisor.Stop, "Stop a component until it is started again"},
		{supervisor.Restart, "Stop and start a component"},
		{supervisor.Freeze, "Freeze a component's process (SIGSTOP)"},
		{supervisor.Thaw, "Let a frozen component go on (SIGCONT)"},
		{supervisor.Kill, "Kill a component (SIGKILL); it is started again as after a crash"},
	} {
		var wait bool
		cmd := &cobra.Command{
			Use:   string(a.action) + " COMPONENT",
			Short: a.short,
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := f.cluster(nil)
				if err != nil {
					return err
				}
				if err := c.Do(cmd.Context(), args[0], a.action); err != nil || !wait {
					return err
				}
				return c.WaitReady(cmd.Context())
			},
		}
		cmd.Flags().BoolVar(&wait, "wait", false, "wait until API server and node are ready afterwards")
		all = append(all, cmd)
	}
	return all
}

func newLoad(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "load FILE.tar...",
		Short: "Import image archives into the cluster",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.cluster(nil)
			if err != nil {
				return err
			}
			return c.Load(cmd.Context(), args)
		},
	}
}

func newReach(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "reach PORT",
		Short: "Let pods connect to a port of this machine's 127.0.0.1",
		Long: `Lets the cluster's pods connect to a port of this machine's 127.0.0.1, at the
same port of the node's address, until the cluster goes down. Prints that
address. It is how pods of one cluster reach the API server of another, whose
certificate is good for that address too.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.Atoi(args[0])
			if err != nil {
				return fmt.Errorf("%w: %q is not a port", errUsage, args[0])
			}
			c, err := f.cluster(nil)
			if err != nil {
				return err
			}
			address, err := c.Reach(cmd.Context(), port)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), address)
			return err
		},
	}
}

func newExec(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "exec -- COMMAND [ARGUMENT...]",
		Short: "Run a command in the cluster's namespaces",
		Long: `Runs a command in the mount, network, pid and host name namespaces of a full
cluster, with KUBECONFIG set. There, /run, /tmp, /var/lib and /var/log are the
cluster's own. The exit code is the command's.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.cluster(nil)
			if err != nil {
				return err
			}
			run, err := c.Exec(cmd.Context(), args)
			if err != nil {
				return err
			}
			run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
			err = run.Run()
			var ended *exec.ExitError
			if errors.As(err, &ended) {
				return &commandError{code: max(ended.ExitCode(), exitFailed)}
			}
			return err
		},
	}
}

// newInternal are the commands by which the tool starts itself: the process
// that holds a cluster, and the first process of a sandbox. Nobody else should.
func newInternal() []*cobra.Command {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return []*cobra.Command{{
		Use:    cluster.DaemonCommand + " STATE FRESH",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			fresh, err := strconv.ParseBool(args[1])
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			return cluster.Daemon(cmd.Context(), state.Dir(args[0]), fresh, log)
		},
	}, {
		Use:    cluster.InitCommand + " STATE",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cluster.Init(cmd.Context(), state.Dir(args[0]), log)
		},
	}}
}
