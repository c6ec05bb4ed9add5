//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// locks lets several people work on the network at once.
func locks(t *testing.T, d *demo) {
	var first, second, third workflow
	var before int64

	d.scene(t, "a second submit with lockWait=0s is refused with the full text", func(t *testing.T) string {
		d.at(t, 5)
		before = d.chain().heightNow(t)
		first = d.submit(t, "scale-up", 6, "lockWait=0s", "user=ada", "reason=more validators for the load test")
		held := d.untilHeld(t, first, nil)
		second = d.submit(t, "scale-up", 6, "lockWait=0s", "user=bob")
		third = d.submit(t, "scale-up", 6, "lockWait=10m", "user=cleo")
		o := second.wait(t)
		require.Equal(t, "Failed", o.phase, o.message)
		f := o.failure(t)
		require.Equal(t, 3, f.ExitCode, f.Message)
		require.Equal(t, "acquire-lock", f.Step)
		text := d.fullMessage(t, f)
		for name, want := range map[string]string{
			"ID": regexp.QuoteMeta(fmt.Sprintf("%s-%d", networkName, held.Spec.Token)), "Token": fmt.Sprint(held.Spec.Token),
			"Holder": "^ada$", "Host": ".+", "Pod": regexp.QuoteMeta(first.name), "Run": regexp.QuoteMeta("Workflow " + first.name + " (uid " + first.uid + ")"),
			"Operation": "^scale-up$", "Step": "^[a-z-]+$", "Reason": "^more validators for the load test$",
			"Since": `^\d{4}-\d\d-\d\dT`, "Renewed": `^\d{4}-\d\d-\d\dT`, "Expires in": `^(\d+m)?[\d.]+s unless renewed \(TTL 3m0s`,
			"To look": "kubectl -n rollcall-demo get deploymentlock " + networkName, "To wait": "lockWait=10m", "To break": "force-unlock .*--reason",
		} {
			require.Regexp(t, want, row(t, text, name), name)
		}
		return fmt.Sprintf("exit 3 %s after its submit, %d rows about the holder", o.took.Round(time.Second), strings.Count(text, "; "))
	})

	d.scene(t, "a third with lockWait=10m waits, then finds the work done", func(t *testing.T) string {
		require.NotEmpty(t, third.name)
		one, three := first.wait(t), third.wait(t)
		require.Equal(t, "Succeeded", one.phase, one.message)
		require.Equal(t, "Succeeded", three.phase, three.message)
		d.requireApart(t, one.name, three.name)
		return d.requireSigning(t, 6) + "; " + d.sent(t, before, 1) + "; " + three.step(t, "plan").Message
	})

	for _, c := range []struct {
		steps     []string
		operation string
		from, to  int
	}{
		{[]string{"stake"}, "scale-up", 6, 7},
		{[]string{"unstake", "verify-consensus"}, "scale-down", 7, 6},
	} {
		if c.operation == "scale-down" && !*whole {
			continue
		}
		d.scene(t, "argo terminate in the middle of "+c.steps[0]+": the next run goes on at once", func(t *testing.T) string {
			d.at(t, c.from)
			height := d.chain().heightNow(t)
			dead := d.submit(t, c.operation, c.to, "lockWait=0s")
			held := d.untilHeld(t, dead, c.steps)
			d.ok(t, "argo", "terminate", "-n", namespace, dead.name)
			next := d.submit(t, c.operation, c.to, "lockWait=2m")
			o := next.wait(t)
			require.Equal(t, "Succeeded", o.phase, o.message)
			got := o.step(t, "acquire-lock")
			delay := got.finished.Sub(got.started)
			killed := dead.wait(t)
			require.Equal(t, "Failed", killed.phase)
			// A busy machine starts programs slowly: what counts is what the dead
			// run's lock adds to the time that a free lock takes here.
			free := killed.step(t, "acquire-lock")
			require.LessOrEqual(t, delay, free.finished.Sub(free.started)+5*time.Second, "acquire-lock took this long")
			seen := d.requireSigning(t, c.to)
			return fmt.Sprintf("terminated in %s with token %d; lock taken %.0f s after the container's start (a free one: %.0f s), %.0f s after the pod's; %s; %s",
				held.Spec.Holder.Step, held.Spec.Token, delay.Seconds(), free.finished.Sub(free.started).Seconds(), got.finished.Sub(got.podStart).Seconds(), seen, d.sent(t, height, 1))
		})
	}
}

// untilHeld waits until a workflow holds the network's lock, in one of the steps
// if any are given.
func (d *demo) untilHeld(t *testing.T, w workflow, steps []string) (l *v1alpha1.DeploymentLock) {
	t.Helper()
	eventually(t, runLimit, fmt.Sprintf("lock held by %s %v", w.name, steps), func(ctx context.Context) (bool, string) {
		var err error
		if l, err = d.lock(ctx, networkName); err != nil {
			return false, err.Error()
		}
		h := l.Spec.Holder
		if h == nil {
			return false, "the lock is free"
		}
		return h.Run.UID == w.uid && (len(steps) == 0 || slices.Contains(steps, h.Step)), fmt.Sprintf("held by %s in %s", h.Run.Name, h.Step)
	})
	return l
}

// requireApart checks in the lock's own record that two runs held it one after
// the other.
func (d *demo) requireApart(t *testing.T, a, b string) {
	t.Helper()
	l, err := d.lock(request(t), networkName)
	require.NoError(t, err)
	var held []v1alpha1.PreviousHolder
	for _, p := range l.Status.Previous {
		if p.Run.Name == a || p.Run.Name == b {
			held = append(held, p)
		}
	}
	require.Len(t, held, 2, "%+v", l.Status.Previous)
	require.False(t, held[0].AcquiredAt.Before(held[1].EndedAt), "newest first: %+v", held)
	require.Greater(t, held[0].Token, held[1].Token)
}

// row finds a row such as "Holder: ada" of a refusal that was made one line.
func row(t *testing.T, line, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?:^|; )` + regexp.QuoteMeta(name) + `:\s*([^;]*)`).FindStringSubmatch(line)
	require.NotNil(t, m, "no %q in: %s", name, line)
	return strings.TrimSpace(m[1])
}
