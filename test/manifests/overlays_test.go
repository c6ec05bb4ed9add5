//go:build integration

package manifests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/rollcall-dev/rollcall/test/kubetest"
)

var root = filepath.Join("..", "..")

// Everything that is applied has only fields that the API server knows, with
// values that it accepts, and every pod that comes of it passes Pod Security
// "restricted". Argo's own objects are checked by argo lint.
func TestEveryOverlayIsAcceptedAndRestricted(t *testing.T) {
	t.Parallel()
	cp := kubetest.Start(t)
	cp.ApplyCRDs(t, filepath.Join(root, "manifests", "crds"))
	ns := cp.NewNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(cp.Config()))
	require.NoError(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)

	dirs, err := filepath.Glob(filepath.Join(root, "manifests", "overlays", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range append(dirs, filepath.Join(root, "manifests", "base")) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			pods := 0
			for _, o := range render(t, dir) {
				what := fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
				for _, template := range podTemplates(t, o) {
					pods++
					requirePod(t, kubernetes.NewForConfigOrDie(cp.Config()), ns, what, template)
				}
				if o.GroupVersionKind().Group == "argoproj.io" {
					continue
				}
				mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
				require.NoError(t, err, what)
				resource := dynamic.ResourceInterface(dynamic.NewForConfigOrDie(cp.Config()).Resource(mapping.Resource))
				if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
					o.SetNamespace(ns)
					resource = dynamic.NewForConfigOrDie(cp.Config()).Resource(mapping.Resource).Namespace(ns)
				}
				_, err = resource.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
				if !apierrors.IsAlreadyExists(err) {
					require.NoError(t, err, what)
				}
			}
			require.Positive(t, pods)
		})
	}
}

func render(t *testing.T, dir string) (out []*unstructured.Unstructured) {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	for _, r := range m.Resources() {
		b, err := r.MarshalJSON()
		require.NoError(t, err)
		o := &unstructured.Unstructured{}
		require.NoError(t, o.UnmarshalJSON(b))
		out = append(out, o)
	}
	return out
}

// podTemplates are the pods that will come of an object, also those that Argo
// makes of a workflow's templates.
func podTemplates(t *testing.T, o *unstructured.Unstructured) (out []corev1.PodSpec) {
	t.Helper()
	spec := func(fields ...string) {
		m, ok, err := unstructured.NestedMap(o.Object, fields...)
		require.NoError(t, err)
		require.True(t, ok, "%s %s has no %v", o.GetKind(), o.GetName(), fields)
		out = append(out, convert[corev1.PodSpec](t, m))
	}
	switch o.GetKind() {
	case "StatefulSet", "Deployment", "Job", "DaemonSet":
		spec("spec", "template", "spec")
	case "CronJob":
		spec("spec", "jobTemplate", "spec", "template", "spec")
	case "WorkflowTemplate":
		type template struct {
			Volumes      []corev1.Volume
			ContainerSet *struct{ Containers []corev1.Container }
		}
		w := convert[struct {
			Spec struct {
				SecurityContext *corev1.PodSecurityContext
				Templates       []template
			}
		}](t, o.Object)
		for _, tm := range w.Spec.Templates {
			if tm.ContainerSet == nil {
				continue
			}
			out = append(out, corev1.PodSpec{SecurityContext: w.Spec.SecurityContext, Volumes: tm.Volumes, Containers: tm.ContainerSet.Containers})
		}
		require.NotEmpty(t, out)
	}
	return out
}

func convert[T any](t *testing.T, v any) (out T) {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

func requirePod(t *testing.T, c kubernetes.Interface, ns, what string, spec corev1.PodSpec) {
	t.Helper()
	spec.ServiceAccountName = "" // it isn't there
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = nil // some volumes are the StatefulSet's or Argo's to add
		}
	}
	_, err := c.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: spec,
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err, "a pod of %s", what)
}
