package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/cluster"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/packages"
)

// Lines of each log that a failed up quotes.
const (
	fewLines  = 8
	manyLines = 80
)

func newUp(f *flags) *cobra.Command {
	var (
		port       int
		cgroup     string
		proxyMode  string
		foreground bool
		ci         bool
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the cluster up and wait until it is ready",
		Long: `Brings the cluster up and waits until it is ready. If it is up already, waits
until it is ready and changes nothing. Interrupted or failing, it leaves nothing
behind but what was there before.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, err := parseCgroup(cgroup)
			if err != nil {
				return err
			}
			c, err := f.cluster(func(o *cluster.Options) {
				o.Port, o.CgroupVersion, o.ProxyMode, o.LogLines = port, version, proxyMode, fewLines
				if ci {
					o.LogLines = manyLines
				}
			})
			if err != nil {
				return err
			}
			s, err := c.Up(cmd.Context())
			if err != nil {
				return err
			}
			if !foreground {
				fmt.Fprintf(cmd.OutOrStdout(), "Kubernetes is up. To use it:\n\n  eval \"$(cluster env --name %s)\"\n", f.name)
				if s == nil {
					return nil
				}
				return s.Detach()
			}
			if s == nil {
				return errors.New("up --foreground: the cluster runs already and isn't this command's to end")
			}
			return hold(cmd.Context(), s, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	p := cmd.Flags()
	p.BoolVar(&f.controlPlane, "control-plane", false, "only etcd, API server, controller manager and scheduler")
	p.IntVar(&port, "port", 0, "port of the API server on 127.0.0.1 (default any free one)")
	p.StringVar(&cgroup, "cgroup", "auto", "version of control groups: auto, v1 or v2")
	p.StringVar(&proxyMode, "proxy-mode", "nftables", "mode of kube-proxy: nftables or iptables")
	p.BoolVar(&ci, "ci", false, "nobody can look at the logs later: quote more of them on a failure")
	p.BoolVar(&foreground, "foreground", false, "stay until standard input ends or a signal comes, then remove the cluster (unless its state was there before)")
	return cmd
}

// ready is the line that "up --foreground" prints when the cluster is ready.
const ready = "ready"

// hold keeps a session until the input ends, the command is interrupted, or
// the cluster ends by itself.
func hold(ctx context.Context, s *cluster.Session, in io.Reader, out io.Writer) error {
	fmt.Fprintln(out, ready)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		// Any end of the input counts, an error included.
		_, _ = io.Copy(io.Discard, in)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	case <-s.Ended():
		return errors.Join(errors.New("the cluster ended by itself"), s.End())
	}
	return s.End()
}

func newDown(f *flags) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything of it",
		Long: `Stops the cluster and removes everything of it. It may be called at any time,
also when there is no cluster, or after a crash.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.cluster(nil)
			if err != nil {
				return err
			}
			return c.Down(cmd.Context(), keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep-state", false, "keep the state folder, so that the next up continues from here")
	return cmd
}

func newBuild(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the programs into the cache, nothing else",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.cluster(nil)
			if err != nil {
				return err
			}
			return c.Build(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&f.controlPlane, "control-plane", false, "only what a control plane runs")
	return cmd
}

func newPackages() *cobra.Command {
	return &cobra.Command{
		Use:   "packages",
		Short: "Install the machine's programs that a full cluster needs, nothing else",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := packages.Find(cmd.Context(), logLine)
			return err
		},
	}
}

func newEnv(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print shell commands that set KUBECONFIG and PATH",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := f.cluster(nil)
			if err != nil {
				return err
			}
			return c.Env(os.Stdout)
		},
	}
}
