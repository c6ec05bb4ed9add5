// Command kube is Kubernetes and etcd in one file: the program that runs is
// chosen by the name it is called by (a link named kubelet runs kubelet), or,
// called as "kube", by its first argument.
//
//	kube kubelet --config ...      the same as a link "kubelet --config ..."
//	kube controlplane ...          etcd, API server, controller manager and
//	                               scheduler as goroutines of one process
//
// Every component is the upstream one, unpatched; flags are theirs. The cloud
// parts of a distribution (CNI, container runtime, DNS) are not in here.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// exitUsage is the exit code for a component name that isn't in this binary.
const exitUsage = 2

// errUnknown is returned for a name that is no component of this binary.
var errUnknown = errors.New("unknown component: use etcd, kube-apiserver, kube-controller-manager, " +
	"kube-scheduler, kubelet, kube-proxy, kubectl or controlplane")

// command returns the cobra command of a Kubernetes component.
//
// Commands are built on demand only: each of them registers process-wide
// flags, feature gates and signal handlers when it is constructed.
func command(name string) (*cobra.Command, error) {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand(), nil
	case "kube-controller-manager":
		return controllermanager.NewControllerManagerCommand(), nil
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand(), nil
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background()), nil
	case "kube-proxy":
		return proxy.NewProxyCommand(), nil
	case "controlplane":
		return newControlPlaneCommand(), nil
	default:
		return nil, fmt.Errorf("run %q: %w", name, errUnknown)
	}
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "kube" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err) // prints as kubectl does, and exits
		}
		return
	}
	cmd, err := command(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(exitUsage)
	}
	os.Exit(cli.Run(cmd))
}
