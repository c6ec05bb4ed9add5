//go:build integration

// Package manifests tests what the manifests promise, on a real API server.
package manifests

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// With the admission policy, validators are taken away by Rollcall, or in an
// emergency with a reason; by nobody else, however they try.
func TestOnlyRollcallLowersTheNumberOfValidators(t *testing.T) {
	t.Parallel()
	cp := kubetest.Start(t)
	ns := cp.NewNamespace(t, nil)
	admin, err := kubernetes.NewForConfig(cp.Config())
	require.NoError(t, err)
	applyPolicy(t, admin)
	createStatefulSet(t, admin, ns, "validator", map[string]string{"rollcall.dev/network": "demo"})
	createStatefulSet(t, admin, ns, "other", map[string]string{"app": "other"})
	allowRollcall(t, admin, ns)
	rollcall := as(t, cp.Config(), "system:serviceaccount:"+ns+":rollcall")

	// The policy is in force some moments after it was created; until then the
	// change goes through and is taken back.
	var refusal error
	require.Eventually(t, func() bool {
		if refusal = scale(t, admin, ns, "validator", 4); refusal != nil {
			return true
		}
		require.NoError(t, scale(t, admin, ns, "validator", 5))
		return false
	}, 30*time.Second, 200*time.Millisecond)
	require.ErrorContains(t, refusal, "run instead: argo submit -n "+ns+" --from workflowtemplate/scale-down -p validators=4")

	require.NoError(t, scale(t, admin, ns, "validator", 6), "everybody may start more pods")
	require.ErrorContains(t, patch(t, admin, ns, "validator", `{"spec":{"replicas":5}}`), "from 6 to 5", "an apply is refused like a scale")
	require.NoError(t, scale(t, admin, ns, "other", 1), "other StatefulSets are nobody's business")
	require.NoError(t, patch(t, rollcall, ns, "validator", `{"spec":{"replicas":5}}`), "Rollcall may")
	require.ErrorContains(t, patch(t, admin, ns, "validator", `{"metadata":{"annotations":{"rollcall.dev/break-glass":""}},"spec":{"replicas":4}}`),
		"from 5 to 4", "breaking the glass needs a reason")
	require.NoError(t, patch(t, admin, ns, "validator", `{"metadata":{"annotations":{"rollcall.dev/break-glass":"the data centre burns"}},"spec":{"replicas":4}}`))
}

func applyPolicy(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "manifests", "components", "admission-policy", "policy.yaml"))
	require.NoError(t, err)
	docs := strings.Split(string(raw), "\n---\n")
	require.Len(t, docs, 2)
	var p admissionv1.ValidatingAdmissionPolicy
	require.NoError(t, yaml.UnmarshalStrict([]byte(docs[0]), &p))
	_, err = c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &p, metav1.CreateOptions{})
	require.NoError(t, err)
	var b admissionv1.ValidatingAdmissionPolicyBinding
	require.NoError(t, yaml.UnmarshalStrict([]byte(docs[1]), &b))
	_, err = c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &b, metav1.CreateOptions{})
	require.NoError(t, err)
}

func createStatefulSet(t *testing.T, c kubernetes.Interface, ns, name string, labels map[string]string) {
	t.Helper()
	five := int32(5)
	_, err := c.AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &five, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "none"}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func allowRollcall(t *testing.T, c kubernetes.Interface, ns string) {
	t.Helper()
	_, err := c.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "rollcall"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"patch"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "rollcall"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "rollcall"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "rollcall", Namespace: ns}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func as(t *testing.T, c *rest.Config, user string) kubernetes.Interface {
	t.Helper()
	c.Impersonate = rest.ImpersonationConfig{UserName: user}
	k, err := kubernetes.NewForConfig(c)
	require.NoError(t, err)
	return k
}

func scale(t *testing.T, c kubernetes.Interface, ns, name string, replicas int32) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := c.AppsV1().StatefulSets(ns).GetScale(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		s.Spec.Replicas = replicas
		_, err = c.AppsV1().StatefulSets(ns).UpdateScale(ctx, name, s, metav1.UpdateOptions{})
		return err
	})
}

func patch(t *testing.T, c kubernetes.Interface, ns, name, body string) error {
	t.Helper()
	_, err := c.AppsV1().StatefulSets(ns).Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}
