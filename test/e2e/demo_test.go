//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sethvargo/go-retry"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// The demo's names, from manifests/overlays/demo.
const (
	namespace   = "rollcall-demo"
	networkName = "demo"
	statefulSet = "validator"
)

const (
	requestLimit = 30 * time.Second // of one API request, on a busy machine
	commandLimit = 6 * time.Minute  // of one command that waits for a run
	runLimit     = 6 * time.Minute  // of one run, from submit to end
)

var workflowResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "workflows"}

// demo is the running demo and what was seen of it.
type demo struct {
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	root    string // of the checkout
	results results
	logs    *logKeeper
}

func connect(t *testing.T) *demo {
	t.Helper()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	require.NoError(t, err, `no cluster: run test/demo/demo.sh up and eval "$(make -s env)"`)
	config.QPS, config.Burst = 100, 200
	config.UserAgent = "rollcall/e2e"
	d := &demo{}
	d.kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	d.dynamic, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	d.root, err = filepath.Abs("../..")
	require.NoError(t, err)
	for _, command := range []string{"argo", "kubectl"} {
		_, err := exec.LookPath(command)
		require.NoError(t, err, `eval "$(make -s env)" sets the PATH`)
	}
	d.network(t, networkName) // the demo is up
	d.logs = keepLogs(t, d)
	return d
}

// command runs a command in the top folder of the checkout and returns its
// output and exit code.
func (d *demo) command(t *testing.T, name string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), commandLimit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = d.root
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err, "%s %s", name, strings.Join(args, " "))
	}
	require.NoError(t, ctx.Err(), "%s %s:\n%s", name, strings.Join(args, " "), out.String())
	return out.String(), c.ProcessState.ExitCode()
}

// ok runs a command that must succeed.
func (d *demo) ok(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, code := d.command(t, name, args...)
	require.Zero(t, code, "%s %s:\n%s", name, strings.Join(args, " "), out)
	return out
}

func (d *demo) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return d.ok(t, "kubectl", append([]string{"-n", namespace}, args...)...)
}

// eventually waits until cond is true, for at most limit, in a cleanup too. cond says what is
// missing; the last word is in the failure.
func eventually(t *testing.T, limit time.Duration, what string, cond func(ctx context.Context) (done bool, missing string)) {
	t.Helper()
	var last string
	b := retry.WithMaxDuration(limit, retry.NewConstant(200*time.Millisecond))
	err := retry.Do(context.WithoutCancel(t.Context()), b, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		defer cancel()
		done, missing := cond(ctx)
		if done {
			return nil
		}
		last = missing
		return retry.RetryableError(errors.New(missing))
	})
	require.NoError(t, err, "%s: not within %s: %s", what, limit, last)
}

func request(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), requestLimit)
	t.Cleanup(cancel)
	return ctx
}

func (d *demo) network(t *testing.T, name string) *v1alpha1.ValidatorNetwork {
	t.Helper()
	u, err := d.dynamic.Resource(v1alpha1.NetworkResource).Namespace(namespace).Get(request(t), name, metav1.GetOptions{})
	require.NoError(t, err)
	n := &v1alpha1.ValidatorNetwork{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n))
	return n
}

// lock reads a network's lock; nil when it was never taken.
func (d *demo) lock(ctx context.Context, name string) (*v1alpha1.DeploymentLock, error) {
	u, err := d.dynamic.Resource(v1alpha1.LockResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	l := &v1alpha1.DeploymentLock{}
	return l, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, l)
}

// requireFree checks that nobody holds a network's lock.
func (d *demo) requireFree(t *testing.T, name string) {
	t.Helper()
	l, err := d.lock(request(t), name)
	if statusOf(err).Code == 404 {
		return
	}
	require.NoError(t, err)
	require.Nil(t, l.Spec.Holder, "the lock %s is still held", name)
}

func statusOf(err error) metav1.Status {
	var s interface{ Status() metav1.Status }
	if errors.As(err, &s) {
		return s.Status()
	}
	return metav1.Status{}
}

func (d *demo) set(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	s, err := d.kube.AppsV1().StatefulSets(namespace).Get(request(t), statefulSet, metav1.GetOptions{})
	require.NoError(t, err)
	return s
}

// at brings the network to n validators, as a scene's starting point.
func (d *demo) at(t *testing.T, n int) {
	t.Helper()
	now, s := d.network(t, networkName), d.set(t)
	var operation string
	switch from := int(*s.Spec.Replicas); {
	case from > n:
		operation = "scale-down"
	case from < n, int(now.Spec.Validators) != n, int(now.Status.Bonded) != n && now.Status.LastOperation != nil:
		operation = "scale-up"
	default:
		return
	}
	// By name: a scene may have described other networks.
	o := d.run(t, operation, n, "network="+networkName)
	require.Equal(t, "Succeeded", o.phase, "bring the network to %d validators: %s; reports: %+v", n, o.message, o.reports)
}

// facts are what a run that changes nothing must leave as it was.
type facts struct {
	Replicas      int32
	Generation    int64 // of the StatefulSet
	Network       v1alpha1.ValidatorNetworkSpec
	NetGeneration int64
	Roster        []v1alpha1.RosterEntry
	Sequences     map[string]string // of the operators' accounts
	Pods          map[string]string // UIDs of the validators' pods by name
}

func (d *demo) facts(t *testing.T) facts {
	t.Helper()
	n, s := d.network(t, networkName), d.set(t)
	f := facts{
		Replicas: *s.Spec.Replicas, Generation: s.Generation, Network: n.Spec, NetGeneration: n.Generation,
		Roster: n.Status.Roster, Sequences: map[string]string{}, Pods: map[string]string{},
	}
	for i := range f.Roster {
		f.Roster[i].Signing = false // a busy machine misses a signature now and then
		f.Sequences[f.Roster[i].Operator] = d.chain().sequence(t, f.Roster[i].Operator)
	}
	l, err := d.kube.CoreV1().Pods(namespace).List(request(t), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(s.Spec.Selector)})
	require.NoError(t, err)
	for _, p := range l.Items {
		f.Pods[p.Name] = string(p.UID)
	}
	return f
}

func (d *demo) requireUnchanged(t *testing.T, before facts) {
	t.Helper()
	after := d.facts(t)
	if len(before.Roster) == 0 {
		after.Roster, after.Sequences, before.Sequences = nil, nil, nil
	}
	require.Equal(t, before, after)
}

func object(t *testing.T, v any) *unstructured.Unstructured {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: m}
}
