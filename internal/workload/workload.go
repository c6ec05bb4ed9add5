// Package workload reads and scales the StatefulSet that runs the validators.
//
// It guarantees that a change of replicas carries the run's fencing token, is
// made only on the version that was read, and never by a run with an older
// token than the last one. It doesn't decide whether a change is safe.
package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
)

// TokenAnnotation of a StatefulSet holds the fencing token of the run that
// last changed its replicas.
const TokenAnnotation = "rollcall.dev/token"

const conflictRetries = 8

// Workload is the StatefulSet of a network.
type Workload struct {
	clients *kube.Clients
	name    string
}

// New returns the workload of a network.
func New(c *kube.Clients, n *v1alpha1.ValidatorNetwork) *Workload {
	return &Workload{clients: c, name: n.Spec.Workload.StatefulSet}
}

// Pod returns the name of a validator's pod.
func (w *Workload) Pod(ordinal int) string { return PodName(w.name, ordinal) }

// PodName is a StatefulSet's name for a pod.
func PodName(statefulSet string, ordinal int) string {
	return statefulSet + "-" + strconv.Itoa(ordinal)
}

// Ordinal is the inverse of PodName.
func Ordinal(statefulSet, pod string) (int, bool) {
	s, ok := strings.CutPrefix(pod, statefulSet+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == s
}

// Expand replaces {pod}, {ordinal} and {namespace} in a template.
func Expand(template, statefulSet, namespace string, ordinal int) string {
	return strings.NewReplacer("{pod}", PodName(statefulSet, ordinal), "{ordinal}", strconv.Itoa(ordinal), "{namespace}", namespace).Replace(template)
}

// Get reads the StatefulSet.
func (w *Workload) Get(ctx context.Context) (*appsv1.StatefulSet, error) {
	s, err := w.clients.Kube.AppsV1().StatefulSets(w.clients.Namespace).Get(ctx, w.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fault.New(fault.Config, "get validators: StatefulSet %s/%s doesn't exist", w.clients.Namespace, w.name).
			Do("set spec.workload.statefulSet of the ValidatorNetwork")
	}
	if err != nil {
		return nil, kube.Explain(err, "get", "statefulsets.apps", w.clients.Namespace, w.name)
	}
	return s, nil
}

// Replicas returns the replicas asked for; Kubernetes' default is 1.
func Replicas(s *appsv1.StatefulSet) int {
	if s.Spec.Replicas == nil {
		return 1
	}
	return int(*s.Spec.Replicas)
}

// Pods returns the StatefulSet's pods by ordinal, those that are ending included.
func (w *Workload) Pods(ctx context.Context, s *appsv1.StatefulSet) (map[int]*corev1.Pod, error) {
	l, err := w.clients.Kube.CoreV1().Pods(w.clients.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(s.Spec.Selector)})
	if err != nil {
		return nil, kube.Explain(err, "list", "pods", w.clients.Namespace, "")
	}
	pods := map[int]*corev1.Pod{}
	for i := range l.Items {
		p := &l.Items[i]
		if o, ok := Ordinal(w.name, p.Name); ok && metav1.IsControlledBy(p, s) {
			pods[o] = p
		}
	}
	return pods, nil
}

// Ready reports whether a pod is ready and not ending.
func Ready(p *corev1.Pod) bool {
	if p == nil || p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Trouble tells in one line why a pod isn't getting anywhere by itself, such as
// an image that can't be pulled; empty when there is no sign of it.
func Trouble(p *corev1.Pod) string {
	if p == nil {
		return ""
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("pod %s can't be scheduled: %s", p.Name, c.Message)
		}
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			if w := c.State.Waiting; w != nil && (strings.HasPrefix(w.Reason, "Err") || strings.HasSuffix(w.Reason, "BackOff") || strings.HasPrefix(w.Reason, "Invalid") || strings.HasPrefix(w.Reason, "Create")) {
				why := w.Message
				if t := c.LastTerminationState.Terminated; t != nil && t.Message != "" {
					why = strings.TrimSpace(t.Message)
				}
				return fmt.Sprintf("pod %s, container %s: %s: %s", p.Name, c.Name, w.Reason, why)
			}
		}
	}
	return ""
}

// Scale sets the replicas as the run with the token. check is asked right
// before the write and proves that the lock is still the run's. It returns
// false when the replicas are right already.
func (w *Workload) Scale(ctx context.Context, replicas int, token int64, check func(context.Context) error) (changed bool, err error) {
	b := retry.WithMaxRetries(conflictRetries, retry.WithJitter(20*time.Millisecond, retry.NewConstant(50*time.Millisecond)))
	err = retry.Do(ctx, b, func(ctx context.Context) error {
		s, err := w.Get(ctx)
		if err != nil {
			return err
		}
		if last, err := strconv.ParseInt(s.Annotations[TokenAnnotation], 10, 64); err == nil && last > token {
			return fault.New(fault.LockLost, "scale StatefulSet %s: a run with token %d has scaled it since, this run has %d", w.name, last, token)
		}
		if Replicas(s) == replicas {
			changed = false
			return nil
		}
		if err := check(ctx); err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": s.ResourceVersion, "uid": string(s.UID), "annotations": map[string]string{TokenAnnotation: strconv.FormatInt(token, 10)}},
			"spec":     map[string]any{"replicas": replicas},
		})
		if err != nil {
			return err
		}
		_, err = w.clients.Kube.AppsV1().StatefulSets(w.clients.Namespace).Patch(ctx, w.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "rollcall"})
		if apierrors.IsConflict(err) {
			return retry.RetryableError(fault.New(fault.Transient, "scale StatefulSet %s: %w", w.name, err))
		}
		changed = err == nil
		return kube.Explain(err, "patch", "statefulsets.apps", w.clients.Namespace, w.name)
	})
	return changed, err
}

// MayScale asks the API server whether it would let this run set the replicas,
// by its rights and the admission rules. It changes nothing.
func (w *Workload) MayScale(ctx context.Context, replicas int) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": replicas}})
	if err != nil {
		return err
	}
	_, err = w.clients.Kube.AppsV1().StatefulSets(w.clients.Namespace).
		Patch(ctx, w.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "rollcall", DryRun: []string{metav1.DryRunAll}})
	return kube.Explain(err, "patch", "statefulsets.apps", w.clients.Namespace, w.name)
}
