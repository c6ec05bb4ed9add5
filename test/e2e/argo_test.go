//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// workflow is a submitted workflow.
type workflow struct {
	d         *demo
	name, uid string
	submitted time.Time
}

// report is what a step says at its end, in its container's termination message.
type report struct {
	Step     string
	ExitCode int
	Message  string
	Reason   string
	Outputs  map[string]string

	pod, container    string
	podStart          time.Time
	started, finished time.Time
	order             time.Time // the pod's creation
	code              int32     // as Kubernetes saw it
}

// outcome is how a run ended.
type outcome struct {
	name, phase, message string
	reports              []report // in the order of pods and containers
	took                 time.Duration
}

// failure is the last report of a step that failed; the exit handler's step
// meets the same bad parameters, and isn't meant.
func (o outcome) failure(t *testing.T) report {
	t.Helper()
	for i := len(o.reports) - 1; i >= 0; i-- {
		if o.reports[i].ExitCode != 0 && o.reports[i].Step != "release-lock" {
			return o.reports[i]
		}
	}
	require.Fail(t, "no step reports a failure", "%s %s: %s; reports: %+v", o.name, o.phase, o.message, o.reports)
	return report{}
}

// step is the last report of a step.
func (o outcome) step(t *testing.T, name string) report {
	t.Helper()
	for i := len(o.reports) - 1; i >= 0; i-- {
		if o.reports[i].Step == name {
			return o.reports[i]
		}
	}
	require.Fail(t, "no report of step "+name, "%s %s: %s; reports: %+v", o.name, o.phase, o.message, o.reports)
	return report{}
}

// submit submits workflows/OPERATION.yaml with argo, as its users do. parameters
// are name=value, besides the number of validators.
func (d *demo) submit(t *testing.T, operation string, validators int, parameters ...string) workflow {
	t.Helper()
	return d.submitText(t, operation, strconv.Itoa(validators), parameters...)
}

func (d *demo) submitText(t *testing.T, operation, validators string, parameters ...string) workflow {
	t.Helper()
	return d.named(t, d.ok(t, "argo", submitArgs(operation, validators, parameters)...))
}

func submitArgs(operation, validators string, parameters []string) []string {
	args := []string{"submit", "-n", namespace, "-o", "name", "workflows/" + operation + ".yaml", "-p", "validators=" + validators, "-p", "user=e2e"}
	for _, p := range parameters {
		args = append(args, "-p", p)
	}
	return args
}

// named finds the workflow whose name argo printed.
func (d *demo) named(t *testing.T, output string) workflow {
	t.Helper()
	name, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
	u, err := d.dynamic.Resource(workflowResource).Namespace(namespace).Get(request(t), name, metav1.GetOptions{})
	require.NoError(t, err, output)
	return workflow{d, name, string(u.GetUID()), time.Now()}
}

// wait waits for the workflow's end.
func (w workflow) wait(t *testing.T) outcome {
	t.Helper()
	o := outcome{name: w.name}
	eventually(t, runLimit, "workflow "+w.name, func(ctx context.Context) (bool, string) {
		u, err := w.d.dynamic.Resource(workflowResource).Namespace(namespace).Get(ctx, w.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		o.phase, _, _ = unstructured.NestedString(u.Object, "status", "phase")
		o.message, _, _ = unstructured.NestedString(u.Object, "status", "message")
		return o.phase == "Succeeded" || o.phase == "Failed" || o.phase == "Error", fmt.Sprintf("phase %q %s", o.phase, o.message)
	})
	o.took = time.Since(w.submitted)
	o.reports = w.d.reports(t, "workflows.argoproj.io/workflow="+w.name)
	return o
}

// run submits and waits.
func (d *demo) run(t *testing.T, operation string, validators int, parameters ...string) outcome {
	t.Helper()
	return d.submit(t, operation, validators, parameters...).wait(t)
}

// reports reads the termination messages of all pods with a label.
func (d *demo) reports(t *testing.T, selector string) (out []report) {
	t.Helper()
	l, err := d.kube.CoreV1().Pods(namespace).List(request(t), metav1.ListOptions{LabelSelector: selector})
	require.NoError(t, err)
	// By creation: a run that was tried again has several pods, and an exit
	// handler's pod comes last.
	sortPods(l.Items)
	for _, p := range l.Items {
		byName := map[string]corev1.ContainerStatus{}
		for _, c := range p.Status.ContainerStatuses {
			byName[c.Name] = c
		}
		for _, c := range p.Spec.Containers { // the order of the steps
			s, ok := byName[c.Name]
			if !ok || s.State.Terminated == nil {
				continue
			}
			r := report{
				pod: p.Name, container: c.Name, order: p.CreationTimestamp.Time, code: s.State.Terminated.ExitCode,
				started: s.State.Terminated.StartedAt.Time, finished: s.State.Terminated.FinishedAt.Time,
			}
			if p.Status.StartTime != nil {
				r.podStart = p.Status.StartTime.Time
			}
			if json.Unmarshal([]byte(s.State.Terminated.Message), &r) == nil && r.Step != "" {
				require.EqualValues(t, r.ExitCode, r.code, "the report of %s in pod %s", r.Step, p.Name)
				require.NotContains(t, r.Message, "\n", "a report is one line")
				out = append(out, r)
			}
		}
	}
	return out
}

// fullMessage is a report's message, from the container's log when Kubernetes'
// limit cut it short.
func (d *demo) fullMessage(t *testing.T, r report) string {
	t.Helper()
	if !strings.HasSuffix(r.Message, " ...") {
		return r.Message
	}
	for line := range strings.Lines(d.kubectl(t, "logs", r.pod, "-c", r.container)) {
		var entry struct {
			Msg      string
			ExitCode int
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.ExitCode != 0 {
			return entry.Msg
		}
	}
	require.Fail(t, "the log has no failure", "%s %s", r.pod, r.container)
	return ""
}
