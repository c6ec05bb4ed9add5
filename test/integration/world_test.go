//go:build integration

package integration

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosmos/go-bip39"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/keys"
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/steps"
	"github.com/rollcall-dev/rollcall/test/kubetest"
)

// stepVariable makes the test binary the step that it names.
const stepVariable = "INTEGRATION_STEP"

// stepLimit bounds one step's process.
const stepLimit = 4 * time.Minute

func TestMain(m *testing.M) {
	if name := os.Getenv(stepVariable); name != "" {
		s, ok := steps.Find(name)
		if !ok {
			fmt.Fprintln(os.Stderr, "no such step:", name)
			os.Exit(1)
		}
		os.Exit(step.Main(s, os.Args[1:]))
	}
	os.Exit(kubetest.Main(m))
}

var (
	applyOnce sync.Once
	root      = filepath.Join("..", "..")
)

// world is a namespace with a ValidatorNetwork named demo, a StatefulSet, keys,
// and a service account with the rights that Rollcall ships with.
type world struct {
	cp         *kubetest.ControlPlane
	ns         string
	kubeconfig string
	secrets    []string // must never show
}

// setup changes what newWorld makes.
type setup struct {
	chainID, rpc string
	replicas     int32
	keys         []map[string][]byte // by ordinal; made up when nil
	network      func(spec map[string]any)
}

func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	cp := kubetest.Start(t)
	applyOnce.Do(func() { cp.ApplyCRDs(t, filepath.Join(root, "manifests", "crds")) })
	w := &world{cp: cp, ns: cp.NewNamespace(t, nil)}
	w.apply(t, filepath.Join(root, "manifests", "base", "rbac.yaml"))
	w.kubeconfig = w.login(t, "rollcall")
	if s.rpc == "" {
		s.rpc = "http://127.0.0.1:1/{ordinal}" // nobody listens there
	}
	if s.chainID == "" {
		s.chainID = "test-1"
	}
	if s.replicas == 0 {
		s.replicas = 4
	}
	if s.keys == nil {
		for range 6 {
			s.keys = append(s.keys, newKeys(t))
		}
	}
	for o, k := range s.keys {
		w.createSecret(t, fmt.Sprintf("validator-%d-keys", o), k)
	}
	spec := map[string]any{
		"validators": int64(4),
		"chain":      map[string]any{"chainID": s.chainID, "rpc": s.rpc, "options": map[string]any{"bech32Prefix": "cosmos", "denom": "stake"}},
		"stake":      map[string]any{"amount": "100000000stake"},
	}
	if s.network != nil {
		s.network(spec)
	}
	_, err := w.networks().Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rollcall.dev/v1alpha1", "kind": "ValidatorNetwork", "metadata": map[string]any{"name": "demo"}, "spec": spec,
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.createStatefulSet(t, s.replicas)
	return w
}

func (w *world) admin() kubernetes.Interface { return kubernetes.NewForConfigOrDie(w.cp.Config()) }

func (w *world) resource(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(w.cp.Config()).Resource(gvr).Namespace(w.ns)
}

func (w *world) networks() dynamic.ResourceInterface { return w.resource(v1alpha1.NetworkResource) }

// apply creates the objects of a manifest in the namespace.
func (w *world) apply(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	resources := map[string]string{"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings"}
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if len(o.Object) == 0 {
			continue
		}
		require.Contains(t, resources, o.GetKind(), path)
		if o.GetKind() == "RoleBinding" { // kustomize would set it
			subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
			require.NoError(t, err)
			for _, s := range subjects {
				s.(map[string]any)["namespace"] = w.ns
			}
			require.NoError(t, unstructured.SetNestedSlice(o.Object, subjects, "subjects"))
		}
		_, err = w.resource(o.GroupVersionKind().GroupVersion().WithResource(resources[o.GetKind()])).Create(t.Context(), &o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// login returns a kubeconfig of a service account.
func (w *world) login(t *testing.T, account string) string {
	t.Helper()
	token, err := w.admin().CoreV1().ServiceAccounts(w.ns).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	c := w.cp.Config()
	w.secrets = append(w.secrets, token.Status.Token)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData, CertificateAuthority: c.CAFile, TLSServerName: c.ServerName}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: w.ns}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

func (w *world) createSecret(t *testing.T, name string, data map[string][]byte) {
	t.Helper()
	_, err := w.admin().CoreV1().Secrets(w.ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	require.NoError(t, err)
	if m := string(data["operator.mnemonic"]); m != "" {
		words := strings.Fields(m)
		w.secrets = append(w.secrets, strings.Join(words[:min(4, len(words))], " "))
	}
	var file struct {
		Private struct{ Value string } `json:"priv_key"`
	}
	if json.Unmarshal(data["priv_validator_key.json"], &file) == nil && file.Private.Value != "" {
		w.secrets = append(w.secrets, file.Private.Value[:32])
	}
}

// createStatefulSet makes pods that no scheduler and no kubelet cares about.
func (w *world) createStatefulSet(t *testing.T, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": "validator"}
	_, err := w.admin().AppsV1().StatefulSets(w.ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "validator"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "node", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// newKeys makes up a validator's Secret.
func newKeys(t *testing.T) map[string][]byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	entropy, err := bip39.NewEntropy(256)
	require.NoError(t, err)
	mnemonic, err := bip39.NewMnemonic(entropy)
	require.NoError(t, err)
	file, err := json.Marshal(map[string]any{
		"address":  keys.Address(public),
		"pub_key":  map[string]string{"type": "tendermint/PubKeyEd25519", "value": base64.StdEncoding.EncodeToString(public)},
		"priv_key": map[string]string{"type": "tendermint/PrivKeyEd25519", "value": base64.StdEncoding.EncodeToString(private)},
	})
	require.NoError(t, err)
	return map[string][]byte{"priv_validator_key.json": file, "operator.mnemonic": []byte(mnemonic)}
}

// ending is how a step's process ended.
type ending struct {
	code    int
	log     string
	stdout  string
	message struct {
		Step, Message, Reason string
		ExitCode              int
		Outputs               map[string]string
	}
}

// process is a step that runs.
type process struct {
	w    *world
	cmd  *exec.Cmd
	done chan struct{}
	end  error // once done
	dir  string
	out  bytes.Buffer
	err  bytes.Buffer
}

// start starts a step of the run with the UID.
func (w *world) start(t *testing.T, name, uid string, env map[string]string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	p := &process{w: w, cmd: exec.CommandContext(ctx, os.Args[0]), done: make(chan struct{}), dir: t.TempDir()}
	termination := filepath.Join(p.dir, "termination-log")
	require.NoError(t, os.WriteFile(termination, nil, 0o600))
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, step.Prefix+"_") })
	for k, v := range map[string]string{
		stepVariable: name, "KUBECONFIG": w.kubeconfig, "ROLLCALL_TERMINATION_LOG": termination, "ROLLCALL_OUT": filepath.Join(p.dir, "out"),
		"ROLLCALL_RUN_UID": uid, "ROLLCALL_USER": "tester",
	} {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	for k, v := range env {
		p.cmd.Env = append(p.cmd.Env, "ROLLCALL_"+k+"="+v)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	require.NoError(t, p.cmd.Start())
	go func() {
		defer cancel()
		p.end = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(cancel)
	return p
}

// wait waits for the step's end and looks for secrets in what it said.
func (p *process) wait(t *testing.T) ending {
	t.Helper()
	<-p.done
	var exit *exec.ExitError
	if p.end != nil && !errors.As(p.end, &exit) {
		require.NoError(t, p.end)
	}
	e := ending{code: p.cmd.ProcessState.ExitCode(), log: p.err.String(), stdout: p.out.String()}
	raw, err := os.ReadFile(filepath.Join(p.dir, "termination-log"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &e.message), "termination message %q of:\n%s", raw, e.log)
	require.Equal(t, e.code, e.message.ExitCode)
	for _, secret := range p.w.secrets {
		for _, text := range []string{e.log, e.stdout, string(raw)} {
			require.NotContains(t, text, secret)
		}
	}
	return e
}

func (w *world) run(t *testing.T, name, uid string, env map[string]string) ending {
	t.Helper()
	return w.start(t, name, uid, env).wait(t)
}

// must runs a step that has to succeed.
func (w *world) must(t *testing.T, name, uid string, env map[string]string) ending {
	t.Helper()
	e := w.run(t, name, uid, env)
	require.Zero(t, e.code, "%s:\n%s", name, e.log)
	return e
}

func (w *world) network(t *testing.T) *v1alpha1.ValidatorNetwork {
	t.Helper()
	u, err := w.networks().Get(t.Context(), "demo", metav1.GetOptions{})
	require.NoError(t, err)
	n := &v1alpha1.ValidatorNetwork{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n))
	return n
}

// lockHolder is the UID of the run that holds the lock, empty when it is free,
// and whether there ever was a lock.
func (w *world) lockHolder(t *testing.T) (uid string, exists bool) {
	t.Helper()
	l, err := w.resource(v1alpha1.LockResource).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	if len(l.Items) == 0 {
		return "", false
	}
	require.Len(t, l.Items, 1)
	uid, _, err = unstructured.NestedString(l.Items[0].Object, "spec", "holder", "run", "uid")
	require.NoError(t, err)
	return uid, true
}

func (w *world) requireFreeLock(t *testing.T) {
	t.Helper()
	uid, exists := w.lockHolder(t)
	require.True(t, exists)
	require.Empty(t, uid, "the lock is free")
}

func (w *world) replicas(t *testing.T) int {
	t.Helper()
	s, err := w.admin().AppsV1().StatefulSets(w.ns).Get(t.Context(), "validator", metav1.GetOptions{})
	require.NoError(t, err)
	return int(*s.Spec.Replicas)
}

// requests of the steps' processes since a time.
func (w *world) requests(t *testing.T, since time.Time, keep func(kubetest.AuditEvent) bool) []kubetest.AuditEvent {
	t.Helper()
	user := "system:serviceaccount:" + w.ns + ":rollcall"
	return w.cp.Requests(t, since, func(e kubetest.AuditEvent) bool { return e.User.Username == user && (keep == nil || keep(e)) })
}

// declareReady waits for a pod and says what its kubelet would.
func (w *world) declareReady(t *testing.T, ordinal int) {
	t.Helper()
	name := fmt.Sprintf("validator-%d", ordinal)
	patch := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	var last error
	require.Eventually(t, func() bool {
		_, last = w.admin().CoreV1().Pods(w.ns).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return last == nil
	}, time.Minute, 100*time.Millisecond, "pod %s: %v", name, last)
}
