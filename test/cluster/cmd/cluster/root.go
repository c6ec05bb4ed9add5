package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/cluster"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

var errUsage = errors.New("usage")

const longHelp = `Brings embedded Kubernetes clusters up and down: Kubernetes built from its Go
modules, containerd and runc from Debian, everything in namespaces and in a
state folder of its own. No container engine is needed.

There are two kinds. A full cluster has one node that runs pods, with DNS,
Services and a default StorageClass; it needs root. A control plane
(--control-plane) has no node, needs no rights, and is ready in seconds.

The first "up" builds Kubernetes, which takes ten minutes or more; the result
stays in the cache folder. Any number of clusters run side by side under
different names.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 (status) not up or not healthy.`

// flags are those that every command has.
type flags struct {
	name, state, cache, source string
	controlPlane               bool
}

func (f *flags) mode() state.Mode {
	if f.controlPlane {
		return state.ControlPlane
	}
	return state.Full
}

// cluster makes the cluster that the flags name.
func (f *flags) cluster(change func(*cluster.Options)) (*cluster.Cluster, error) {
	if f.cache == "" {
		dir, err := cluster.DefaultCacheDir()
		if err != nil {
			return nil, err
		}
		f.cache = dir
	}
	o := cluster.Options{
		Name: f.name, State: f.state, CacheDir: f.cache, Source: f.source,
		Mode: f.mode(), ProxyMode: "nftables", Log: logLine,
	}
	if change != nil {
		change(&o)
	}
	return cluster.New(o)
}

// logLine prints progress; results go to standard output.
func logLine(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...)
}

func newRoot() *cobra.Command {
	f := &flags{}
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Bring embedded Kubernetes clusters up and down",
		Long:          longHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	p := root.PersistentFlags()
	p.StringVar(&f.name, "name", "rollcall", "name of the cluster, and of its node")
	p.StringVar(&f.state, "state", os.Getenv("ROLLCALL_STATE"), "state folder (default CACHE/clusters/NAME; variable ROLLCALL_STATE)")
	p.StringVar(&f.cache, "cache", "", "folder of built programs and states (default $XDG_CACHE_HOME/rollcall or ~/.cache/rollcall)")
	p.StringVar(&f.source, "source", os.Getenv("ROLLCALL_CLUSTER_SOURCE"), "folder test/cluster of the checkout (default: found upwards from here; variable ROLLCALL_CLUSTER_SOURCE)")
	root.AddCommand(newUp(f), newDown(f), newStatus(f), newBuild(f), newPackages(), newEnv(f), newPID(f), newLoad(f), newExec(f), newReach(f))
	root.AddCommand(newInternal()...)
	root.AddCommand(newActions(f)...)
	return root
}

// parseCgroup reads the value of --cgroup.
func parseCgroup(s string) (int, error) {
	switch s {
	case "auto":
		return 0, nil
	case "v1":
		return 1, nil
	case "v2":
		return 2, nil
	}
	return 0, fmt.Errorf("%w: --cgroup %s: use auto, v1 or v2", errUsage, strconv.Quote(s))
}
