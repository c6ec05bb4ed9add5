// Command argo-testbed builds Argo Workflows from its Go module and installs it
// on a test cluster. Results go to standard output, progress to standard error.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/test/argo/internal/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:          "argo-testbed",
		Short:        "Argo Workflows " + release.Version + " for a test cluster, built from its Go module",
		SilenceUsage: true,
	}
	a := &app{began: time.Now()}
	root.PersistentFlags().StringVar(&a.cache, "cache", "", "folder for what is built (default ~/.cache/rollcall)")
	root.AddCommand(a.buildCommand(), a.imagesCommand(), a.pathsCommand(), a.renderCommand(), a.installCommand(), a.smokeCommand())
	return root
}

// app holds what the subcommands share.
type app struct {
	cache string
	began time.Time
}

func (a *app) log(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "argo-testbed %6.1fs  %s\n", time.Since(a.began).Seconds(), fmt.Sprintf(format, args...))
}

func (a *app) builder() (release.Builder, error) {
	if a.cache == "" {
		dir, err := release.CacheDir()
		if err != nil {
			return release.Builder{}, err
		}
		a.cache = dir
	}
	return release.Builder{Cache: a.cache, Log: a.log}, nil
}
