// Package install puts Argo Workflows on a cluster through kubectl, and proves
// with one small workflow that it works there.
//
// It guarantees bounded waits, that applying twice changes nothing, and that a
// failure carries what the cluster says about the controller's pods. It does not
// bring the images to the node, and it does not undo an installation: a test
// cluster goes away as a whole.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// fieldManager owns the fields that are applied; see server-side apply in the
// Kubernetes documentation.
const fieldManager = "argo-testbed"

// Kubectl runs kubectl against one cluster.
type Kubectl struct {
	// Program is the path of kubectl, or its name in PATH.
	Program string
	// Kubeconfig is the path of the cluster's kubeconfig.
	Kubeconfig string
}

// waitDelay is what a killed kubectl gets to end before its pipes are closed.
const waitDelay = 5 * time.Second

// Run runs kubectl with stdin and returns its standard output. The error holds
// what kubectl said.
func (k Kubectl) Run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	return run(ctx, stdin, k.Program, append([]string{"--kubeconfig=" + k.Kubeconfig}, args...)...)
}

func run(ctx context.Context, stdin []byte, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = waitDelay
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// Installer installs rendered manifests.
type Installer struct {
	Kubectl Kubectl
	// Namespace of the controller.
	Namespace string
	// Timeout bounds the whole installation.
	Timeout time.Duration
	Log     func(format string, args ...any)
}

// Install applies the manifests and waits until the definitions are served and
// the controller is ready.
func (i Installer) Install(ctx context.Context, manifests []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, i.Timeout, fmt.Errorf("gave up after %s", i.Timeout))
	defer cancel()
	began := time.Now()
	out, err := i.Kubectl.Run(ctx, manifests, "apply", "--server-side", "--force-conflicts", "--field-manager="+fieldManager, "-f", "-")
	if err != nil {
		return fmt.Errorf("apply manifests: %w", err)
	}
	i.Log("applied %d objects in %s", bytes.Count(out, []byte("\n")), since(began))
	if _, err := i.Kubectl.Run(ctx, nil, append([]string{"wait", "--for=condition=Established", "--timeout=" + i.Timeout.String()}, definitions(out)...)...); err != nil {
		return fmt.Errorf("wait for custom resource definitions: %w", err)
	}
	_, err = i.Kubectl.Run(ctx, nil, "-n", i.Namespace, "rollout", "status", "deployment/workflow-controller", "--timeout="+i.Timeout.String())
	if err != nil {
		return errors.Join(fmt.Errorf("wait for workflow-controller: %w", err), i.diagnose(context.WithoutCancel(ctx)))
	}
	i.Log("workflow-controller is ready after %s", since(began))
	return nil
}

var definition = regexp.MustCompile(`(?m)^(customresourcedefinition\.apiextensions\.k8s\.io/\S+)`)

// definitions picks the names of definitions out of kubectl apply's output.
func definitions(applied []byte) []string {
	var names []string
	for _, m := range definition.FindAllSubmatch(applied, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// diagnoseLimit bounds the look at a cluster that may not answer any more.
const diagnoseLimit = 10 * time.Second

// diagnose returns an error that holds the state of the controller's pods and
// the last events of its namespace.
func (i Installer) diagnose(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, diagnoseLimit)
	defer cancel()
	pods, err := i.Kubectl.Run(ctx, nil, "-n", i.Namespace, "get", "pods", "-o", "wide")
	if err != nil {
		return fmt.Errorf("look at the pods: %w", err)
	}
	events, err := i.Kubectl.Run(ctx, nil, "-n", i.Namespace, "get", "events", "--sort-by=.lastTimestamp")
	if err != nil {
		return fmt.Errorf("look at the events: %w", err)
	}
	return fmt.Errorf("pods of namespace %s (is the image loaded on the node?):\n%slast events:\n%s", i.Namespace, pods, lastLines(events, 10))
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }
