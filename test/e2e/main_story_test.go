//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// maxPause is the longest time that the chain may be without a new block while
// validators leave.
const maxPause = 10 * time.Second

// mainStory takes the network from the demo's 5 to 7, to 4 and to 7 again.
func mainStory(t *testing.T, d *demo) {
	addresses := map[int]string{} // consensus addresses by ordinal, the first time

	d.scene(t, "argo submit --wait takes 5 validators to 7", func(t *testing.T) string {
		d.at(t, 5)
		before := d.chain().heightNow(t)
		start := time.Now()
		w := d.named(t, d.ok(t, "argo", append(submitArgs("scale-up", "7", nil), "--wait")...))
		o := w.wait(t)
		require.Equal(t, "Succeeded", o.phase, o.message)
		for _, e := range d.network(t, networkName).Status.Roster {
			addresses[int(e.Ordinal)] = e.Address
		}
		return fmt.Sprintf("%s; %s; %s", d.requireSigning(t, 7), d.sent(t, before, 2), time.Since(start).Round(time.Second))
	})

	d.scene(t, "7 again succeeds, sends nothing, changes nothing", func(t *testing.T) string {
		d.at(t, 7)
		before, height := d.facts(t), d.chain().heightNow(t)
		o := d.run(t, "scale-up", 7)
		require.Equal(t, "Succeeded", o.phase, o.message)
		d.requireUnchanged(t, before)
		d.requireFree(t, networkName)
		return fmt.Sprintf("%s; StatefulSet, spec, roster, pods and account sequences as before", d.sent(t, height, 0))
	})

	if *whole {
		d.scene(t, "a dry run prints the plan, changes nothing and takes no lock", func(t *testing.T) string {
			d.at(t, 7)
			before, height := d.facts(t), d.chain().heightNow(t)
			lock, err := d.lock(request(t), networkName)
			require.NoError(t, err)
			o := d.run(t, "scale-down", 4, "dryRun=true")
			require.Equal(t, "Succeeded", o.phase, o.message)
			d.requireUnchanged(t, before)
			after, err := d.lock(request(t), networkName)
			require.NoError(t, err)
			require.Equal(t, lock, after, "the lock was touched")
			plan := o.step(t, "plan")
			require.Contains(t, plan.Message, "from 7 to 4")
			return plan.Message + "; " + d.sent(t, height, 0)
		})
	}

	d.scene(t, "scale-down to 4: the chain goes on, validators leave before their pods", func(t *testing.T) string {
		d.at(t, 7)
		return scaleDownSafely(t, d)
	})

	d.scene(t, "argo submit --from workflowtemplate, up to 7 again: the same keys sign again", func(t *testing.T) string {
		d.at(t, 4)
		before := d.chain().heightNow(t)
		w := d.named(t, d.ok(t, "argo", "submit", "-n", namespace, "--wait", "-o", "name",
			"--from", "workflowtemplate/scale-up", "-p", "validators=7"))
		o := w.wait(t)
		require.Equal(t, "Succeeded", o.phase, o.message)
		seen := d.requireSigning(t, 7)
		for _, e := range d.network(t, networkName).Status.Roster {
			if a := addresses[int(e.Ordinal)]; a != "" {
				require.Equal(t, a, e.Address, "consensus address of validator %d", e.Ordinal)
			}
		}
		return seen + " with the addresses of before; " + d.sent(t, before, 3)
	})
}

// sent checks how many transactions the chain took in since a height.
func (d *demo) sent(t *testing.T, since int64, want int64) string {
	t.Helper()
	n := d.chain().txs(t, since)
	require.Equal(t, want, n, "transactions in blocks after %d", since)
	if n == 1 {
		return "1 transaction"
	}
	return fmt.Sprintf("%d transactions", n)
}

// requireSigning checks, on the chain and in the record, that exactly the first
// n validators of the deployment are in consensus and sign.
func (d *demo) requireSigning(t *testing.T, n int) string {
	t.Helper()
	d.requireFree(t, networkName)
	record := d.network(t, networkName)
	require.EqualValues(t, n, record.Spec.Validators)
	require.EqualValues(t, n, record.Status.Bonded)
	require.Equal(t, v1alpha1.OperationSucceeded, record.Status.LastOperation.Phase)
	require.EqualValues(t, n, *d.set(t).Spec.Replicas)

	head := d.chain().heightNow(t)
	set := d.chain().validators(t, head)
	require.Len(t, set, n, "consensus set at height %d", head)
	signed := map[string]int{}
	const window = 5
	for h := head - window; h < head; h++ {
		for _, a := range d.chain().signers(t, h) {
			signed[a]++
		}
	}
	for _, e := range record.Status.Roster {
		if int(e.Ordinal) < n {
			require.Contains(t, set, e.Address, "validator %d at height %d", e.Ordinal, head)
			require.NotZero(t, signed[e.Address], "validator %d signed none of %d blocks up to %d", e.Ordinal, window, head)
		} else {
			require.NotContains(t, set, e.Address, "validator %d at height %d", e.Ordinal, head)
		}
	}
	return fmt.Sprintf("%d validators in the set at height %d, all sign", n, head)
}

// scaleDownSafely goes from 7 to 4 and checks the order of things on the chain's
// own clock.
func scaleDownSafely(t *testing.T, d *demo) string {
	leaving := map[string]string{} // pod: consensus address
	for _, e := range d.network(t, networkName).Status.Roster {
		if e.Ordinal >= 4 && e.Ordinal < 7 {
			leaving[fmt.Sprintf("%s-%d", statefulSet, e.Ordinal)] = e.Address
		}
	}
	require.Len(t, leaving, 3)
	heights := d.watchHeights(t)
	begin := time.Now()
	o := d.run(t, "scale-down", 4)
	heights.stop()
	require.Equal(t, "Succeeded", o.phase, o.message)

	require.Zero(t, heights.fails, "the chain didn't answer: %v", heights.err)
	require.Less(t, heights.gap, maxPause, "time without a new block, seen from outside")
	blocks := d.chain().blocks(t, heights.from, heights.last)
	pause := longestPause(blocks)
	require.Less(t, pause, maxPause, "time between two blocks, by their headers")

	var order []string
	for pod, address := range leaving {
		stopped := d.logs.stoppedAt(t, pod)
		require.True(t, stopped.After(begin.Add(-time.Second)), "pod %s was stopped at %s, before the run", pod, stopped)
		at, err := heightAt(blocks, stopped)
		require.NoError(t, err)
		left := d.chain().firstOut(t, address, heights.from, heights.last)
		require.Less(t, left, at, "%s left the set at height %d, its pod was stopped at %d", pod, left, at)
		order = append(order, fmt.Sprintf("%s left at %d, stopped at %d", pod, left, at))
	}
	slices.Sort(order)
	requireOrder(t, d, o.name)
	return fmt.Sprintf("longest pause %.1f s (from outside %.1f s) in %d blocks; %s; %s",
		pause.Seconds(), heights.gap.Seconds(), len(blocks), strings.Join(order, ", "), d.requireSigning(t, 4))
}

// requireOrder checks the story that the events of a scale-down tell: unstaked,
// then proven out of consensus, then scaled.
func requireOrder(t *testing.T, d *demo, run string) {
	t.Helper()
	at := map[string]time.Time{}
	for _, reason := range []string{"Unstaked", "Verified", "Scaled"} {
		l, err := d.kube.CoreV1().Events(namespace).List(request(t), metav1.ListOptions{FieldSelector: "involvedObject.kind=ValidatorNetwork,reason=" + reason})
		require.NoError(t, err)
		for _, e := range l.Items {
			if e.ReportingInstance == run && e.EventTime.After(at[reason]) {
				at[reason] = e.EventTime.Time
			}
		}
		require.False(t, at[reason].IsZero(), "no event %s of %s", reason, run)
	}
	require.True(t, at["Unstaked"].Before(at["Verified"]), "%v", at)
	require.True(t, at["Verified"].Before(at["Scaled"]), "%v", at)
}
