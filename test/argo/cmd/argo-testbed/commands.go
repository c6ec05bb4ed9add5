package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/test/argo/internal/archive"
	"github.com/rollcall-dev/rollcall/test/argo/internal/install"
	"github.com/rollcall-dev/rollcall/test/argo/internal/release"
	"github.com/rollcall-dev/rollcall/test/argo/manifests"
)

func (a *app) buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build workflow-controller, argoexec and argo unless the cache has them; prints their folder",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := a.builder()
			if err != nil {
				return err
			}
			bins, err := b.Build(c.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), bins.Dir)
			return err
		},
	}
}

func (a *app) imagesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "images",
		Short: "Build the image archives of controller and executor; prints one path a line, to be loaded on the node",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := a.builder()
			if err != nil {
				return err
			}
			bins, err := b.Build(c.Context())
			if err != nil {
				return err
			}
			set, err := archive.Make(a.cache, bins)
			if err != nil {
				return err
			}
			a.log("images %s and %s", set.Controller.Ref, set.Executor.Ref)
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n%s\n", set.Controller.File, set.Executor.File)
			return err
		},
	}
}

func (a *app) pathsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "paths [NAME]",
		Short: "Print where things are or will be as NAME=VALUE lines, or the value of one; builds nothing",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			bins, set, err := a.locate(c)
			if err != nil {
				return err
			}
			values := [][2]string{
				{"version", release.Version},
				{"bin", bins.Dir},
				{"argo", bins.Path(release.CLI)},
				{"workflow_controller", bins.Path(release.Controller)},
				{"argoexec", bins.Path(release.Executor)},
				{"controller_image", set.Controller.Ref},
				{"controller_archive", set.Controller.File},
				{"executor_image", set.Executor.Ref},
				{"executor_archive", set.Executor.File},
				{"built", fmt.Sprint(bins.Complete())},
			}
			return printPaths(c.OutOrStdout(), values, args)
		},
	}
}

func printPaths(w io.Writer, values [][2]string, names []string) error {
	for _, v := range values {
		switch {
		case len(names) == 0:
			if _, err := fmt.Fprintf(w, "%s=%s\n", v[0], v[1]); err != nil {
				return err
			}
		case names[0] == v[0]:
			_, err := fmt.Fprintln(w, v[1])
			return err
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("find path %q: unknown name; run without a name to list them", names[0])
	}
	return nil
}

func (a *app) locate(c *cobra.Command) (release.Binaries, archive.Set, error) {
	b, err := a.builder()
	if err != nil {
		return release.Binaries{}, archive.Set{}, err
	}
	bins, err := b.Locate(c.Context())
	if err != nil {
		return release.Binaries{}, archive.Set{}, err
	}
	return bins, archive.Locate(a.cache, bins), nil
}

// renderFlags choose the installation's manifests.
type renderFlags struct{ namespace, crds, timing string }

func (r *renderFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&r.namespace, "namespace", "argo", "namespace of the controller")
	c.Flags().StringVar(&r.crds, "crds", string(manifests.Minimal), "custom resource definitions: minimal, as released, or full, checked by the API server")
	c.Flags().StringVar(&r.timing, "timing", string(manifests.Fast), "controller's pace: fast, for tests, or stock, as released")
}

func (a *app) render(c *cobra.Command, r renderFlags) ([]byte, error) {
	_, set, err := a.locate(c)
	if err != nil {
		return nil, err
	}
	module, err := release.Download(c.Context())
	if err != nil {
		return nil, err
	}
	return manifests.Render(manifests.Options{
		Module: module, Namespace: r.namespace,
		ControllerImage: set.Controller.Ref, ExecutorImage: set.Executor.Ref,
		CRDs: manifests.CRDs(r.crds), Timing: manifests.Timing(r.timing),
	})
}

func (a *app) renderCommand() *cobra.Command {
	var r renderFlags
	c := &cobra.Command{
		Use:   "render",
		Short: "Print the manifests that install applies",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := a.render(c, r)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(out)
			return err
		},
	}
	r.add(c)
	return c
}

// clusterFlags say how to reach the cluster.
type clusterFlags struct {
	kubectl install.Kubectl
	timeout time.Duration
}

func (f *clusterFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.kubectl.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	c.Flags().StringVar(&f.kubectl.Program, "kubectl", "kubectl", "kubectl program")
	c.Flags().DurationVar(&f.timeout, "timeout", 2*time.Minute, "limit of the whole command")
	// No default: a test tool must not touch whatever cluster is current.
	cobra.CheckErr(c.MarkFlagRequired("kubeconfig"))
}

func (a *app) installCommand() *cobra.Command {
	var r renderFlags
	var f clusterFlags
	c := &cobra.Command{
		Use:   "install --kubeconfig FILE",
		Short: "Install on a cluster whose node has the images; waits until the controller is ready",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := a.render(c, r)
			if err != nil {
				return err
			}
			i := install.Installer{Kubectl: f.kubectl, Namespace: r.namespace, Timeout: f.timeout, Log: a.log}
			return i.Install(c.Context(), out)
		},
	}
	r.add(c)
	f.add(c)
	return c
}

func (a *app) smokeCommand() *cobra.Command {
	var f clusterFlags
	c := &cobra.Command{
		Use:   "smoke --kubeconfig FILE",
		Short: "Run one small workflow in a new namespace that enforces Pod Security restricted",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			bins, set, err := a.locate(c)
			if err != nil {
				return err
			}
			s := install.Smoke{
				Kubectl: f.kubectl, CLI: bins.Path(release.CLI), ExecutorImage: set.Executor.Ref,
				Timeout: f.timeout, Log: a.log,
			}
			return s.Run(c.Context())
		},
	}
	f.add(c)
	return c
}
