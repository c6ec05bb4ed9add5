//go:build integration

package workload_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
	"github.com/rollcall-dev/rollcall/internal/workload"
	"github.com/rollcall-dev/rollcall/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// site is a namespace with a StatefulSet named validator of two replicas.
type site struct {
	cp *kubetest.ControlPlane
	ns string
}

func newSite(t *testing.T) site {
	t.Helper()
	cp := kubetest.Start(t)
	s := site{cp, cp.NewNamespace(t, nil)}
	s.createStatefulSet(t, "validator")
	return s
}

func (s site) admin() kubernetes.Interface { return kubernetes.NewForConfigOrDie(s.cp.Config()) }

func (s site) createStatefulSet(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{"app": "validator"}
	two := int32(2)
	_, err := s.admin().AppsV1().StatefulSets(s.ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (s site) workload(t *testing.T, agent string, edit ...func(*rest.Config)) *workload.Workload {
	t.Helper()
	config := s.cp.Config()
	config.UserAgent = agent
	for _, e := range edit {
		e(config)
	}
	c, err := kube.New(config, s.ns)
	require.NoError(t, err)
	n := &v1alpha1.ValidatorNetwork{}
	n.Spec.Workload.StatefulSet = "validator"
	return workload.New(c, n)
}

func (s site) get(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	set, err := s.admin().AppsV1().StatefulSets(s.ns).Get(t.Context(), "validator", metav1.GetOptions{})
	require.NoError(t, err)
	return set
}

func allowed(context.Context) error { return nil }

// onPatch runs something right before a client's first write.
type onPatch struct {
	next http.RoundTripper
	do   func()
	once sync.Once
}

func (o *onPatch) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		o.once.Do(o.do)
	}
	return o.next.RoundTrip(r)
}

func (o *onPatch) wrap(c *rest.Config) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { o.next = next; return o })
}

func TestScaleCarriesTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := "scaler-" + s.ns
	w := s.workload(t, agent)
	since := time.Now()
	changed, err := w.Scale(t.Context(), 3, 7, allowed)
	require.NoError(t, err)
	require.True(t, changed)
	set := s.get(t)
	require.Equal(t, 3, workload.Replicas(set))
	require.Equal(t, "7", set.Annotations[workload.TokenAnnotation])

	changed, err = w.Scale(t.Context(), 3, 8, func(context.Context) error { return errors.New("must not be asked") })
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, set.ResourceVersion, s.get(t).ResourceVersion, "nothing to change, nothing written")
	var verbs []string
	for _, r := range s.cp.Requests(t, since, func(e kubetest.AuditEvent) bool { return e.UserAgent == agent }) {
		verbs = append(verbs, r.Verb)
	}
	require.Equal(t, []string{"get", "patch", "get"}, verbs)
}

func TestScaleByAnOlderTokenIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.workload(t, "x")
	_, err := w.Scale(t.Context(), 3, 8, allowed)
	require.NoError(t, err)
	for _, replicas := range []int{3, 4} {
		_, err = w.Scale(t.Context(), replicas, 7, allowed)
		require.Equal(t, fault.LockLost, fault.CodeOf(err), "%v", err)
		require.ErrorContains(t, err, "a run with token 8 has scaled it since, this run has 7")
	}
	require.Equal(t, 3, workload.Replicas(s.get(t)))
}

func TestScaleAsksForTheLockRightBeforeTheWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	lost := fault.New(fault.LockLost, "taken over")
	var order []string
	w := s.workload(t, "x", (&onPatch{do: func() { order = append(order, "write") }}).wrap)
	changed, err := w.Scale(t.Context(), 3, 7, func(context.Context) error { return lost })
	require.ErrorIs(t, err, lost)
	require.False(t, changed)
	require.Empty(t, order, "nothing is written without the lock")
	require.Equal(t, 2, workload.Replicas(s.get(t)))

	changed, err = w.Scale(t.Context(), 3, 7, func(context.Context) error { order = append(order, "check"); return nil })
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, []string{"check", "write"}, order)
}

func TestScaleRetriesAfterAConflict(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	checks := 0
	w := s.workload(t, "x", (&onPatch{do: func() {
		_, err := s.admin().AppsV1().StatefulSets(s.ns).Patch(context.WithoutCancel(t.Context()), "validator", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"someone":"else"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}}).wrap)
	changed, err := w.Scale(t.Context(), 3, 7, func(context.Context) error { checks++; return nil })
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, 2, checks, "the lock is proven for every try")
	set := s.get(t)
	require.Equal(t, "else", set.Annotations["someone"])
	require.Equal(t, "7", set.Annotations[workload.TokenAnnotation])
}

func TestScaleIsFencedByANewerRunBetweenReadAndWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	newer := s.workload(t, "newer")
	w := s.workload(t, "x", (&onPatch{do: func() {
		_, err := newer.Scale(context.WithoutCancel(t.Context()), 5, 8, allowed)
		require.NoError(t, err)
	}}).wrap)
	_, err := w.Scale(t.Context(), 3, 7, allowed)
	require.Equal(t, fault.LockLost, fault.CodeOf(err), "%v", err)
	require.Equal(t, 5, workload.Replicas(s.get(t)))
}

func TestPodsAreTheStatefulSetsOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.admin().CoreV1().Pods(s.ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "validator-9", Labels: map[string]string{"app": "validator"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err, "a pod that only looks like one of them")
	w := s.workload(t, "x")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		set, err := w.Get(t.Context())
		require.NoError(c, err)
		pods, err := w.Pods(t.Context(), set)
		require.NoError(c, err)
		require.Len(c, pods, 2)
		require.Equal(c, "validator-0", pods[0].Name)
		require.Equal(c, "validator-1", pods[1].Name)
	}, time.Minute, 100*time.Millisecond)
}

func TestAMissingStatefulSetIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, err := kube.New(s.cp.Config(), s.ns)
	require.NoError(t, err)
	n := &v1alpha1.ValidatorNetwork{}
	n.Spec.Workload.StatefulSet = "elsewhere"
	_, err = workload.New(c, n).Get(t.Context())
	require.Equal(t, fault.Config, fault.CodeOf(err))
	require.ErrorContains(t, err, "StatefulSet "+s.ns+"/elsewhere doesn't exist; set spec.workload.statefulSet")
}
