package kubetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sethvargo/go-retry"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// requestLimit bounds what this package asks of an API server itself.
	requestLimit = 30 * time.Second
	// actionLimit bounds stopping, starting and so on.
	actionLimit = 2 * time.Minute
	pollEvery   = 50 * time.Millisecond
)

// apiServer is the component's name for the tool. In a control plane it shares
// a process with etcd and the controllers.
const apiServer = "kube-apiserver"

// Config returns a copy of the administrator's client configuration, without
// a limit on the rate of requests.
func (cp *ControlPlane) Config() *rest.Config { return rest.CopyConfig(cp.config) }

// Kubeconfig is the path of the administrator's kubeconfig.
func (cp *ControlPlane) Kubeconfig() string { return filepath.Join(cp.state, "kubeconfig") }

// AuditLog is the path of the audit log; see Requests.
func (cp *ControlPlane) AuditLog() string { return filepath.Join(cp.state, "audit.log") }

// NewNamespace makes a namespace with a name of its own and the labels (nil
// for none), which is deleted when the test ends.
func (cp *ControlPlane) NewNamespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cp.Config())
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	ns, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels},
	}, metav1.CreateOptions{})
	require.NoError(t, err, "create namespace")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			// A test may have stopped the server; its data goes anyway.
			t.Logf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// ApplyCRDs applies every CustomResourceDefinition in the *.yaml files of a
// folder, and returns when their resources are served. Other kinds in there
// are an error.
func (cp *ControlPlane) ApplyCRDs(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	client := dynamic.NewForConfigOrDie(cp.Config()).Resource(crds)
	var names []string
	for _, f := range files {
		objects, err := readObjects(f)
		require.NoError(t, err, "read %s", f)
		for i := range objects {
			o := &objects[i]
			if o.GetKind() == "Kustomization" {
				continue
			}
			require.Equal(t, "CustomResourceDefinition", o.GetKind(), "kind in %s", f)
			_, err := client.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "kubetest", Force: true})
			require.NoError(t, err, "apply %s", f)
			names = append(names, o.GetName())
		}
	}
	require.NotEmpty(t, names, "CustomResourceDefinitions in %s", dir)
	for _, n := range names {
		require.NoError(t, cp.awaitServed(ctx, client, n))
	}
}

// awaitServed waits until a definition is established and its resource can be
// listed; between the two lies a moment in which it is not found.
func (cp *ControlPlane) awaitServed(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	err := poll(ctx, func(ctx context.Context) error {
		o, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		gvr, err := servedResource(o)
		if err != nil {
			return err
		}
		_, err = dynamic.NewForConfigOrDie(cp.Config()).Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for %s to be served: %w", name, err)
	}
	return nil
}

// servedResource is the definition's resource in its first served version.
func servedResource(crd *unstructured.Unstructured) (schema.GroupVersionResource, error) {
	group, _, err := unstructured.NestedString(crd.Object, "spec", "group")
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	plural, _, err := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok && m["served"] == true {
			return schema.GroupVersionResource{Group: group, Version: fmt.Sprint(m["name"]), Resource: plural}, nil
		}
	}
	return schema.GroupVersionResource{}, errors.New("no served version")
}

func readObjects(path string) ([]unstructured.Unstructured, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 { // an empty document
			all = append(all, o)
		}
	}
}

// StopServer stops the API server's process (SIGTERM); connections are refused
// until StartServer. Data stays. Use a Dedicated control plane.
func (cp *ControlPlane) StopServer(t testing.TB) { t.Helper(); cp.act(t, "stop", apiServer) }

// StartServer starts a stopped API server and waits until it is ready, some
// 6 s, at the same address.
func (cp *ControlPlane) StartServer(t testing.TB) {
	t.Helper()
	cp.act(t, "start", apiServer, "--wait")
}

// RestartServer stops the API server and starts it again, and waits until it
// is ready.
func (cp *ControlPlane) RestartServer(t testing.TB) {
	t.Helper()
	cp.act(t, "restart", apiServer, "--wait")
}

// KillServer ends the API server as a crash does (SIGKILL). It is started
// again by itself, which KillServer doesn't wait for.
func (cp *ControlPlane) KillServer(t testing.TB) { t.Helper(); cp.act(t, "kill", apiServer) }

// PauseServer freezes the API server (SIGSTOP): connections are accepted by
// the kernel and hang. It goes on with ResumeServer, or when the test ends.
func (cp *ControlPlane) PauseServer(t testing.TB) {
	t.Helper()
	cp.act(t, "freeze", apiServer)
	t.Cleanup(func() { cp.act(t, "thaw", apiServer) })
	// The signal is sent, but each thread stops in its own time.
	ctx, cancel := context.WithTimeout(t.Context(), actionLimit)
	defer cancel()
	pid := cp.ServerPID(t)
	require.NoError(t, poll(ctx, func(context.Context) error { return stopped(pid) }))
}

// stopped returns an error while a thread of the process still runs.
func stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("find threads of process %d: none (%w)", pid, err)
	}
	for _, f := range threads {
		b, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("look at thread: %w", err)
		}
		// The state follows the command's name, which is in parentheses.
		if _, rest, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(rest, "T") {
			return fmt.Errorf("a thread of process %d isn't stopped yet", pid)
		}
	}
	return nil
}

// ResumeServer lets a frozen API server go on; one that isn't frozen is left
// alone.
func (cp *ControlPlane) ResumeServer(t testing.TB) { t.Helper(); cp.act(t, "thaw", apiServer) }

// ServerPID is the process id of the API server's process now.
func (cp *ControlPlane) ServerPID(t testing.TB) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(cp.act(t, "pid", apiServer)))
	require.NoError(t, err)
	return pid
}

// act runs a command of the tool on this control plane and returns its output.
func (cp *ControlPlane) act(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), actionLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, cp.tool.path, append([]string{"--name=kubetest", "--state=" + cp.state}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "cluster %s: %s", strings.Join(args, " "), &stderr)
	return stdout.String()
}

// poll looks at a condition until it holds or ctx ends, and returns its last
// error.
func poll(ctx context.Context, cond func(context.Context) error) error {
	var last error
	err := retry.Do(ctx, retry.NewConstant(pollEvery), func(ctx context.Context) error {
		if err := cond(ctx); err != nil {
			if last == nil || ctx.Err() == nil {
				last = err
			}
			return retry.RetryableError(err)
		}
		return nil
	})
	if err != nil {
		return last
	}
	return nil
}
