package lock

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// resources are the kinds of object a run may belong to.
var resources = map[string]string{"Workflow": "workflows", "Job": "jobs", "Pod": "pods"}

// over reports whether the run that holds the lock in v is verifiably gone or
// finished, and says how. False means alive or not known; then only the TTL tells.
func (l *Lock) over(ctx context.Context, v view) (bool, string) {
	run := v.lock.Spec.Holder.Run
	home := l.home(v.m, run)
	resource, known := resources[run.Kind]
	gv, err := schema.ParseGroupVersion(run.APIVersion)
	if home == nil || !known || err != nil || run.Name == "" {
		return false, ""
	}
	ns := run.Namespace
	if ns == "" {
		ns = home.clients.Namespace
	}
	ctx, cancel := context.WithTimeout(ctx, l.requestTimeout())
	defer cancel()
	o, err := home.clients.Dynamic.Resource(gv.WithResource(resource)).Namespace(ns).Get(ctx, run.Name, metav1.GetOptions{})
	switch {
	case noSuchObject(err):
		return true, fmt.Sprintf("%s %s is gone", run.Kind, run.Name)
	case err != nil:
		// A missing right or a missing API is the same for every look; say it once.
		if (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) && l.once(l.unreadable, run.Kind+"/"+ns) {
			l.log.Warn("can't look up the run that holds the lock, so a dead one is only noticed after its TTL",
				"kind", run.Kind, "namespace", ns, "run", run.Name, "error", err.Error(),
				"do", fmt.Sprintf("grant the right to get %s in namespace %s to this service account", resource, ns))
		}
		return false, ""
	case string(o.GetUID()) != run.UID:
		return true, fmt.Sprintf("%s %s is gone, another one has its name", run.Kind, run.Name)
	}
	if how := finished(o); how != "" {
		return true, fmt.Sprintf("%s %s is %s", run.Kind, run.Name, how)
	}
	return false, ""
}

// home is the cluster that a run's object lives in, nil when that isn't known.
// In a lock over several clusters a run without a cluster must not be looked up
// anywhere: it would be missing in all clusters but one.
func (l *Lock) home(m *member, run v1alpha1.RunReference) *member {
	if run.Cluster == m.name {
		return m
	}
	for _, list := range [][]*member{l.members, l.retired} {
		for _, o := range list {
			if o.name == run.Cluster && run.Cluster != "" {
				return o
			}
		}
	}
	return nil
}

// finished returns how a Workflow, Job or Pod ended, or nothing while it may
// still act.
func finished(o *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	switch o.GetKind() {
	case "Workflow":
		// The phase may be final while the exit handler still works on the network.
		at, _, _ := unstructured.NestedString(o.Object, "status", "finishedAt")
		if at != "" && (phase == "Succeeded" || phase == "Failed" || phase == "Error") {
			return phase
		}
	case "Job":
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			// FailureTarget and SuccessCriteriaMet don't count: pods still run then.
			if t := c["type"]; c["status"] == "True" && (t == "Complete" || t == "Failed") {
				return fmt.Sprint(t)
			}
		}
	case "Pod":
		if phase == "Succeeded" || phase == "Failed" {
			return phase
		}
	}
	return ""
}
