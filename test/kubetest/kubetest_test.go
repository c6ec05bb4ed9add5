//go:build integration

package kubetest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestSharedControlPlane(t *testing.T) {
	t.Parallel()
	cp := Start(t)
	require.Same(t, cp, Start(t), "the second start must give the same control plane")

	ns := cp.NewNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	ctx, cancel := context.WithTimeout(t.Context(), requestLimit)
	defer cancel()
	config := cp.Config()
	config.UserAgent = "kubetest-" + ns
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	since := time.Now()
	_, err = client.CoreV1().ConfigMaps(ns).Create(ctx, configMap("one"), metav1.CreateOptions{})
	require.NoError(t, err)
	w, err := client.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	w.Stop()
	_, err = client.CoreV1().ConfigMaps(ns).Get(ctx, "two", metav1.GetOptions{})
	require.Error(t, err)
	mine := cp.Requests(t, since, func(e AuditEvent) bool { return e.UserAgent == config.UserAgent })
	var verbs []string
	for _, e := range mine {
		require.Equal(t, ns, e.ObjectRef.Namespace)
		require.Equal(t, "configmaps", e.ObjectRef.Resource)
		verbs = append(verbs, e.Verb)
	}
	require.Equal(t, []string{"create", "watch", "get"}, verbs)
	require.Equal(t, 404, mine[2].ResponseStatus.Code)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "root"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	_, err = client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
	require.ErrorContains(t, err, "violates PodSecurity", "pod security admission must be on")
}

func TestApplyCRDsServesThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "crd.yaml"), []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bells.kubetest.example}
spec:
  group: kubetest.example
  names: {kind: Bell, plural: bells}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`), 0o600))
	Start(t).ApplyCRDs(t, dir)
	Start(t).ApplyCRDs(t, dir) // again is fine
}

func TestServerOfADedicatedControlPlaneCanBePausedAndRestarted(t *testing.T) {
	t.Parallel()
	cp := Start(t, Dedicated())
	config := cp.Config()
	config.Timeout = 500 * time.Millisecond
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	maps := client.CoreV1().ConfigMaps("default")
	patient, err := kubernetes.NewForConfig(cp.Config())
	require.NoError(t, err)
	_, err = patient.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("kept"), metav1.CreateOptions{})
	require.NoError(t, err)

	cp.PauseServer(t)
	_, err = maps.Get(t.Context(), "kept", metav1.GetOptions{})
	require.Error(t, err, "a frozen server doesn't answer")
	cp.ResumeServer(t)
	require.NoError(t, poll(t.Context(), func(ctx context.Context) error {
		_, err := maps.Get(ctx, "kept", metav1.GetOptions{})
		return err
	}))

	before := cp.ServerPID(t)
	cp.StopServer(t)
	_, err = maps.Get(t.Context(), "kept", metav1.GetOptions{})
	require.ErrorContains(t, err, "connection refused")
	cp.StartServer(t)
	require.NotEqual(t, before, cp.ServerPID(t))
	_, err = patient.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err, "data outlives the server")
}

func TestParseAudit(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		log  string
		want []string
	}{
		"an empty log has no requests":              {"", nil},
		"two stages of one request are one":         {`{"auditID":"a"}` + "\n" + `{"auditID":"a"}` + "\n", []string{"a"}},
		"a line that is being written is left out":  {`{"auditID":"a"}` + "\n" + `{"audi`, []string{"a"}},
		"only a line that is being written is none": {`{"audi`, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, err := parseAudit([]byte(c.log))
			require.NoError(t, err)
			var ids []string
			for _, e := range events {
				ids = append(ids, e.AuditID)
			}
			require.Equal(t, c.want, ids)
		})
	}
	_, err := parseAudit([]byte("nonsense\n"))
	require.Error(t, err)
}
