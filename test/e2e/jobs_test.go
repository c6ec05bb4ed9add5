//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// withoutArgo works with plain Jobs made from the CronJobs, which only serve as
// templates.
func withoutArgo(t *testing.T, d *demo) {
	d.scene(t, "kubectl create job runs one step", func(t *testing.T) string {
		d.at(t, 7)
		before, height := d.facts(t), d.chain().heightNow(t)
		j := d.createJob(t, "verify")
		o := j.wait(t)
		require.Equal(t, "Complete", o.phase, o.message)
		logs := d.kubectl(t, "logs", "job/"+j.name)
		require.Contains(t, logs, "VALIDATOR")
		for i := range 7 {
			require.Contains(t, logs, fmt.Sprintf("%s-%d", statefulSet, i))
		}
		d.requireUnchanged(t, before)
		return o.step(t, "verify-consensus").Message + "; " + d.sent(t, height, 0)
	})

	d.scene(t, "kubectl scale above the limit is refused by the API server", func(t *testing.T) string {
		before := d.facts(t)
		out, code := d.command(t, "kubectl", "-n", namespace, "scale", "vnet/"+networkName, "--replicas=17")
		require.NotZero(t, code)
		require.Contains(t, out, "must not be above safety.maxValidators")
		d.requireUnchanged(t, before)
		return strings.TrimSpace(out)
	})

	d.scene(t, "kubectl scale and a Job take 7 validators to 5", func(t *testing.T) string {
		d.at(t, 7)
		height := d.chain().heightNow(t)
		d.kubectl(t, "scale", "vnet/"+networkName, "--replicas=5")
		o := d.createJob(t, "scale-down").wait(t)
		require.Equal(t, "Complete", o.phase, o.message)
		return d.requireSigning(t, 5) + "; " + d.sent(t, height, 2)
	})

	if !*whole {
		return
	}
	d.scene(t, "two Jobs at once take 5 to 6 with one transaction", func(t *testing.T) string {
		d.at(t, 5)
		height := d.chain().heightNow(t)
		d.kubectl(t, "scale", "vnet/"+networkName, "--replicas=6")
		a, b := d.createJob(t, "scale-up"), d.createJob(t, "scale-up")
		oa, ob := a.wait(t), b.wait(t)
		if oa.phase != "Complete" {
			oa, ob = ob, oa
		}
		require.Equal(t, "Complete", oa.phase, "neither finished: %s; %s", oa.message, ob.message)
		other := "found nothing to do"
		if ob.phase != "Complete" {
			f := ob.failure(t)
			require.Equal(t, 3, f.ExitCode, f.Message)
			other = "was refused with exit code 3"
		}
		return d.requireSigning(t, 6) + "; " + d.sent(t, height, 1) + "; the other " + other
	})
}

// job is a Job made from a CronJob.
type job struct {
	d       *demo
	name    string
	created time.Time
}

func (d *demo) createJob(t *testing.T, cronJob string) job {
	t.Helper()
	name := fmt.Sprintf("%s-%d", cronJob, time.Now().UnixMilli())
	d.kubectl(t, "create", "job", name, "--from=cronjob/"+cronJob)
	return job{d, name, time.Now()}
}

// wait waits for the Job's end; the phase is the type of its last condition.
func (j job) wait(t *testing.T) outcome {
	t.Helper()
	o := outcome{name: j.name}
	eventually(t, runLimit, "job "+j.name, func(ctx context.Context) (bool, string) {
		got, err := j.d.kube.BatchV1().Jobs(namespace).Get(ctx, j.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range got.Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				o.phase, o.message = string(c.Type), c.Message
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d active, %d failed pods", got.Status.Active, got.Status.Failed)
	})
	o.took = time.Since(j.created)
	o.reports = j.d.reports(t, "batch.kubernetes.io/job-name="+j.name)
	return o
}
