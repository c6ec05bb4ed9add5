package manifests_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/argo/internal/release"
	"github.com/rollcall-dev/rollcall/test/argo/manifests"
)

const (
	controllerImage = "registry.test:5000/workflow-controller:v1"
	executorImage   = "registry.test:5000/argoexec:v1"
)

func options(t *testing.T) manifests.Options {
	t.Helper()
	module, err := release.Download(t.Context())
	require.NoError(t, err)
	return manifests.Options{
		Module: module, Namespace: "flows", ControllerImage: controllerImage, ExecutorImage: executorImage,
		CRDs: manifests.Minimal, Timing: manifests.Fast,
	}
}

func render(t *testing.T, o manifests.Options) []unstructured.Unstructured {
	t.Helper()
	out, err := manifests.Render(o)
	require.NoError(t, err)
	var objects []unstructured.Unstructured
	for d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
		var u unstructured.Unstructured
		err := d.Decode(&u)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, u)
	}
}

// one returns the only object of that kind and name, converted to T.
func one[T any](t *testing.T, objects []unstructured.Unstructured, kind, name string) T {
	t.Helper()
	var out T
	found := 0
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			found++
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out))
		}
	}
	require.Equal(t, 1, found, "%s %s", kind, name)
	return out
}

func requireRestricted(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	for _, r := range evaluator.EvaluatePod(psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}, &metav1.ObjectMeta{}, &pod) {
		require.True(t, r.Allowed, "%s: %s", r.ForbiddenReason, r.ForbiddenDetail)
	}
}

func env(c corev1.Container) map[string]string {
	out := map[string]string{}
	for _, e := range c.Env {
		out[e.Name] = e.Value
	}
	return out
}

func TestEveryDefinitionOfTheReleaseIsInstalled(t *testing.T) {
	t.Parallel()
	for _, form := range []manifests.CRDs{manifests.Minimal, manifests.Full} {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.CRDs = form
			want := map[string]bool{}
			dir := os.DirFS(filepath.Join(o.Module, "manifests/base/crds", string(form)))
			files, err := fs.Glob(dir, "argoproj.io_*.yaml")
			require.NoError(t, err)
			for _, f := range files {
				want[strings.TrimSuffix(strings.TrimPrefix(f, "argoproj.io_"), ".yaml")+".argoproj.io"] = true
			}
			require.Len(t, want, 8)
			got := map[string]bool{}
			for _, u := range render(t, o) {
				if u.GetKind() == "CustomResourceDefinition" {
					got[u.GetName()] = true
				}
			}
			require.Equal(t, want, got)
		})
	}
}

func TestControllerSatisfiesRestricted(t *testing.T) {
	t.Parallel()
	objects := render(t, options(t))
	ns := one[corev1.Namespace](t, objects, "Namespace", "flows")
	require.Equal(t, "restricted", ns.Labels["pod-security.kubernetes.io/enforce"])
	d := one[appsv1.Deployment](t, objects, "Deployment", "workflow-controller")
	requireRestricted(t, d.Spec.Template.Spec)
	require.Equal(t, "flows", d.Namespace)
	require.Equal(t, appsv1.RecreateDeploymentStrategyType, d.Spec.Strategy.Type)
	require.Len(t, d.Spec.Template.Spec.Containers, 1)
	c := d.Spec.Template.Spec.Containers[0]
	require.Equal(t, controllerImage, c.Image)
	require.Equal(t, corev1.PullIfNotPresent, c.ImagePullPolicy)
	require.Equal(t, []string{"--executor-image", executorImage}, c.Args)
	require.Equal(t, "true", env(c)["LEADER_ELECTION_DISABLE"])
	require.NotNil(t, c.ReadinessProbe)
	require.NotNil(t, c.LivenessProbe, "the release's own settings survive the patches")
	require.Contains(t, env(c), "LEADER_ELECTION_IDENTITY", "the release's own settings survive the patches")
}

func TestExecutorContainersSatisfyRestrictedWithoutHelpFromThePod(t *testing.T) {
	t.Parallel()
	cm := one[corev1.ConfigMap](t, render(t, options(t)), "ConfigMap", "workflow-controller-configmap")
	var executor corev1.Container
	require.NoError(t, yaml.UnmarshalStrict([]byte(cm.Data["executor"]), &executor))
	executor.Name, executor.Image = "wait", executorImage
	init := executor
	init.Name = "init"
	requireRestricted(t, corev1.PodSpec{InitContainers: []corev1.Container{init}, Containers: []corev1.Container{executor}})
	require.Equal(t, []string{"executor"}, keys(cm.Data), "other settings would give workflows help that their users' clusters do not")
}

func keys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func TestControllerWatchesAllNamespaces(t *testing.T) {
	t.Parallel()
	objects := render(t, options(t))
	b := one[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", "argo-binding")
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "argo", Namespace: "flows"}}, b.Subjects)
	require.Equal(t, "argo-cluster-role", b.RoleRef.Name)
	d := one[appsv1.Deployment](t, objects, "Deployment", "workflow-controller")
	require.NotContains(t, d.Spec.Template.Spec.Containers[0].Args, "--namespaced")
	require.Equal(t, "argo", d.Spec.Template.Spec.ServiceAccountName)
	one[corev1.ServiceAccount](t, objects, "ServiceAccount", "argo")
}

func TestStockTimingDiffersOnlyInTheSpeedSettings(t *testing.T) {
	t.Parallel()
	fast, stock := options(t), options(t)
	stock.Timing = manifests.Stock
	fastController := one[appsv1.Deployment](t, render(t, fast), "Deployment", "workflow-controller")
	stockController := one[appsv1.Deployment](t, render(t, stock), "Deployment", "workflow-controller")
	require.Equal(t, "200ms", env(fastController.Spec.Template.Spec.Containers[0])["DEFAULT_REQUEUE_TIME"])
	c := &fastController.Spec.Template.Spec.Containers[0]
	kept := c.Env[:0]
	for _, e := range c.Env {
		if e.Name != "DEFAULT_REQUEUE_TIME" {
			kept = append(kept, e)
		}
	}
	c.Env = kept
	require.Equal(t, stockController, fastController)
}

func TestDefinitionsAndNamespaceComeFirst(t *testing.T) {
	t.Parallel()
	objects := render(t, options(t))
	for _, o := range objects[:8] {
		require.Equal(t, "CustomResourceDefinition", o.GetKind())
	}
	require.Equal(t, "Namespace", objects[8].GetKind())
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*manifests.Options)
		want   string
	}{
		"no namespace":               {func(o *manifests.Options) { o.Namespace = "" }, "namespace: missing"},
		"unknown definitions":        {func(o *manifests.Options) { o.CRDs = "some" }, "want minimal or full"},
		"unknown timing":             {func(o *manifests.Options) { o.Timing = "slow" }, "want fast or stock"},
		"controller without a tag":   {func(o *manifests.Options) { o.ControllerImage = "registry.test:5000/x" }, "want NAME:TAG"},
		"module folder is elsewhere": {func(o *manifests.Options) { o.Module = t.TempDir() }, "none in "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			tt.change(&o)
			_, err := manifests.Render(o)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
