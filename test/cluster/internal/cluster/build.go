package cluster

import (
	"context"
	"path/filepath"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/gobuild"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

// kubeVersion is stamped into the binary; without it, the API server calls
// itself v0.0.0-master and kubectl warns about version skew.
const (
	kubeVersion = "v1.37.2"
	versionPkg  = "k8s.io/component-base/version."
	// clientVersionPkg is what user agents are made of.
	clientVersionPkg = "k8s.io/client-go/pkg/version."
)

func kubeTarget(source string) gobuild.Target {
	return gobuild.Target{
		Name: "kube", Module: filepath.Join(source, "cmd", "kube"), Package: ".", Sources: []string{"."},
		Variables: map[string]string{
			versionPkg + "gitVersion":       kubeVersion,
			versionPkg + "gitMajor":         "1",
			versionPkg + "gitMinor":         "37",
			versionPkg + "gitTreeState":     "clean",
			clientVersionPkg + "gitVersion": kubeVersion,
		},
	}
}

func corednsTarget(source string) gobuild.Target {
	return gobuild.Target{Name: "coredns", Module: filepath.Join(source, "coredns"), Package: ".", Sources: []string{"."}}
}

func pauseTarget(source string) gobuild.Target {
	return gobuild.Target{Name: "pause", Module: source, Package: "./cmd/pause", Sources: []string{"cmd/pause"}}
}

// Build builds the programs of the cluster's mode.
func (c *Cluster) Build(ctx context.Context) error {
	source, err := c.source()
	if err != nil {
		return err
	}
	targets := []gobuild.Target{kubeTarget(source)}
	if c.opts.Mode == state.Full {
		targets = append(targets, corednsTarget(source), pauseTarget(source))
	}
	for _, t := range targets {
		path, cached, err := c.builder().Build(ctx, t)
		if err != nil {
			return err
		}
		if cached {
			c.opts.Log("%s is built: %s", t.Name, path)
		}
	}
	return nil
}
