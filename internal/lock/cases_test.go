//go:build integration

package lock_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
	"github.com/rollcall-dev/rollcall/internal/lock"
	"github.com/rollcall-dev/rollcall/internal/lock/locktest"
	"github.com/rollcall-dev/rollcall/test/kubetest"
)

func TestUncontendedAcquireAndReleaseTakeFourRequestsIncludingTheNetworksToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	since := time.Now()
	h := s.run(t, "first", withFloor(s)).acquire(t)
	require.EqualValues(t, 8, h.Token(), "the network remembers 7")
	require.Equal(t, "demo-8", h.ID())
	require.NoError(t, h.Release(t.Context()))
	second := s.run(t, "second", withFloor(s))
	second.acquire(t)
	// The release step is a process of its own.
	h, err := second.Attach(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, h.Release(t.Context()), "a second release is no error and no request")

	require.Equal(t, []string{"GET demo", "GET kube-root-ca.crt", "PUT demo", "GET demo", "PUT demo"}, second.net.Requests())
	audited := s.cp.Requests(t, since, func(e kubetest.AuditEvent) bool { return e.UserAgent == t.Name() && e.ObjectRef.Namespace == s.ns })
	require.Len(t, audited, 4+5)

	o := s.get(t)
	require.Nil(t, o.Spec.Holder)
	require.EqualValues(t, 9, o.Spec.Token)
	require.Len(t, o.Status.Previous, 2)
	require.Equal(t, "second", o.Status.Previous[0].User)
	require.Equal(t, "Released", o.Status.Previous[0].Ending)
}

// A lock stuck with no job running, "again in 20000 seconds".
func TestALockWhoseRunIsOverIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, s site, name string) (ref v1alpha1.RunReference, over func()){
		"Job deleted":       jobDeleted,
		"Job failed":        jobEnds(func(j *batchv1.JobSpec) { j.ActiveDeadlineSeconds = ptr[int64](1) }),
		"Job complete":      jobEnds(func(j *batchv1.JobSpec) { j.Completions = ptr[int32](0) }),
		"Pod deleted":       podDeleted,
		"Pod failed":        podFailed,
		"Workflow deleted":  workflowDeleted,
		"Workflow replaced": workflowReplaced,
		"Workflow failed":   workflowFailed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			ref, over := start(t, s, "the-run")
			old := s.run(t, ref.UID, func(o *lock.Options) { o.Holder.Run = ref }).acquire(t)
			over()

			began := time.Now()
			h := s.run(t, "next").acquire(t)
			require.Less(t, time.Since(began), 5*time.Second)
			require.Equal(t, old.Token()+1, h.Token())
			p := s.get(t).Status.Previous[0]
			require.Equal(t, "RunGone", p.Ending)
			require.Contains(t, p.By, ref.Kind+" the-run is ")
			requireCode(t, fault.LockLost, old.Check(t.Context()), "demo-1", "next@host-of-next", "the-run is ", "demo-2")
		})
	}
}

func TestALockWhoseRunIsAliveIsNotTaken(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, s site, name string) v1alpha1.RunReference{
		"Job with pods": func(t *testing.T, s site, name string) v1alpha1.RunReference {
			return s.job(t, name, func(*batchv1.JobSpec) {})
		},
		"Workflow in its exit handler": func(t *testing.T, s site, name string) v1alpha1.RunReference {
			ref := s.workflow(t, name)
			s.workflowStatus(t, name, map[string]any{"phase": "Failed"})
			return ref
		},
		"Workflow that nothing has looked at yet": func(t *testing.T, s site, name string) v1alpha1.RunReference { return s.workflow(t, name) },
		"kind of object that nobody knows": func(t *testing.T, s site, name string) v1alpha1.RunReference {
			return v1alpha1.RunReference{APIVersion: "tekton.dev/v1", Kind: "PipelineRun", Name: name, UID: name}
		},
		"API that the cluster doesn't serve": func(t *testing.T, s site, name string) v1alpha1.RunReference {
			return v1alpha1.RunReference{APIVersion: "argoproj.io/v9", Kind: "Workflow", Name: name, UID: name}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			ref := start(t, s, "the-run")
			h := s.run(t, ref.UID, func(o *lock.Options) { o.Holder.Run = ref }).acquire(t)
			_, err := s.run(t, "next").Acquire(t.Context(), 0)
			requireCode(t, fault.LockBusy, err, "the-run")
			require.NoError(t, h.Check(t.Context()))
		})
	}
}

func TestEveryPrintedDurationIsRightAndHasAUnit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run(t, "first").acquire(t)
	next := s.run(t, "next")
	_, err := next.Acquire(t.Context(), time.Second)
	requireCode(t, fault.LockBusy, err)
	expires := regexp.MustCompile(`Expires in: +(\S+) unless renewed \(TTL 3m0s, seen silent for (\S+)\)`).FindStringSubmatch(err.Error())
	require.NotNil(t, expires, err)
	left, perr := time.ParseDuration(expires[1])
	require.NoError(t, perr)
	seen, perr := time.ParseDuration(expires[2])
	require.NoError(t, perr)
	require.InDelta(t, 180, (left + seen).Seconds(), 1)
	require.InDelta(t, 1, seen.Seconds(), 1)
	require.Regexp(t, `waited 1(\.\d)?s`, err.Error())
}

// A suspended process could not recover; the fix let two run.
func TestAHolderPausedBeyondItsTTLIsFenced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.run(t, "first", short)
	h := first.acquire(t)
	kept, stop := h.Keep(t.Context())
	defer stop()
	first.net.Set(locktest.Always(locktest.Any, locktest.Fault{Hang: true})) // as good as SIGSTOP for all others
	next, err := s.run(t, "next").Acquire(t.Context(), 5*ttl)
	require.NoError(t, err)
	require.Equal(t, "Expired", s.get(t).Status.Previous[0].Ending)

	first.net.Set(nil) // wakes
	requireCode(t, fault.LockLost, h.Check(t.Context()))
	requireCode(t, fault.LockLost, lostWithin(kept, t, ttl))
	require.NoError(t, next.Check(t.Context()))
	requireCode(t, fault.LockLost, h.Release(t.Context()), "next@host-of-next")
	require.NoError(t, next.Check(t.Context()), "the old holder's release must not free it")
	_, err = first.Attach(t.Context())
	requireCode(t, fault.LockLost, err, "it was silent for", "next@host-of-next", "demo-2")
}

func TestAHolderPausedBeyondItsTTLGoesOnWhenNobodyCame(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.run(t, "first", short)
	h := first.acquire(t)
	require.Eventually(t, func() bool { return time.Now().After(h.Deadline()) }, 2*ttl, ttl/20)
	require.NoError(t, h.Check(t.Context()))
	require.Equal(t, "PUT demo", last(first.net.Requests()), "a proof this late must be a write")
	require.True(t, h.Deadline().After(time.Now()))
}

func last(s []string) string { return s[len(s)-1] }

// Renewals raced with 409.
func TestRenewalsSurviveConflicts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.run(t, "first", busy)
	h := first.acquire(t)
	kept, stop := h.Keep(t.Context())
	defer stop()
	var conflicts atomic.Int64
	first.net.Set(func(r *http.Request) *locktest.Fault {
		if r.Method != http.MethodPut || conflicts.Load() >= 3 {
			return nil
		}
		conflicts.Add(1)
		s.touch(t) // somebody labels the object between our read and our write
		return nil
	})
	before := s.get(t).Spec.Renewals
	require.Eventually(t, func() bool { return kept.Err() != nil || conflicts.Load() == 3 && s.get(t).Spec.Renewals > before }, time.Minute, 100*time.Millisecond)
	require.NoError(t, context.Cause(kept))
	require.NoError(t, h.Check(t.Context()))
}

// touch changes the object in a way that means nothing to the lock.
func (s site) touch(t *testing.T) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, time.Now().UnixNano())
	_, err := dynamic.NewForConfigOrDie(s.config).Resource(v1alpha1.LockResource).Namespace(s.ns).
		Patch(context.Background(), "demo", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Errorf("touch lock: %v", err)
	}
}

func TestManyRenewersOfOneRunDontDisturbEachOther(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.run(t, "first", busy).acquire(t)
	var kept []context.Context
	for range 4 {
		other, err := s.run(t, "first", busy).Attach(t.Context())
		require.NoError(t, err)
		k, stop := other.Keep(t.Context())
		t.Cleanup(stop)
		kept = append(kept, k)
	}
	require.Eventually(t, func() bool { return s.get(t).Spec.Renewals > 5 }, time.Minute, 100*time.Millisecond)
	for _, k := range kept {
		require.NoError(t, context.Cause(k))
	}
	require.NoError(t, h.Check(t.Context()))
}

// Renewing in a terminating namespace: endless 403.
func TestATerminatingNamespaceIsReportedOnceAndEndsTheRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// A finalizer keeps the namespace in Terminating.
	_, err := s.kube().CoreV1().ConfigMaps(s.ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "keep", Finalizers: []string{"rollcall.dev/test"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	defer func() {
		_, err := s.kube().CoreV1().ConfigMaps(s.ns).Patch(context.Background(), "keep", "application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}()
	first := s.run(t, "first", busy)
	h := first.acquire(t)
	kept, stop := h.Keep(t.Context())
	defer stop()
	require.NoError(t, s.kube().CoreV1().Namespaces().Delete(t.Context(), s.ns, metav1.DeleteOptions{}))
	requireCode(t, fault.LockLost, lostWithin(kept, t, 2*time.Minute), "deleted", "namespace")
	stop()
	asked := len(first.net.Requests())
	_, err = s.run(t, "next").Acquire(t.Context(), time.Minute)
	requireCode(t, fault.Config, err, "namespace "+s.ns+" is being deleted")
	require.Len(t, first.net.Requests(), asked, "no renewal after the loss")
	require.LessOrEqual(t, first.log.lines("level=WARN"), 1)
}

// The same run could not take its lock again.
func TestTheLockIsReentrantForTheSameRunNotForTheSameUser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	alice := func(o *lock.Options) { o.Holder.User, o.Holder.Host = "alice", "laptop" }
	h := s.run(t, "run-1", alice).acquire(t)
	again := s.run(t, "run-1", alice, func(o *lock.Options) { o.Holder.Step, o.Holder.Pod = "verify", "retry-2" }).acquire(t)
	require.Equal(t, h.Token(), again.Token())
	require.NoError(t, h.Check(t.Context()))
	o := s.get(t)
	require.Equal(t, "verify", o.Spec.Holder.Step)
	require.Equal(t, "retry-2", o.Spec.Holder.Pod)
	require.Empty(t, o.Status.Previous)

	_, err := s.run(t, "run-2", alice).Acquire(t.Context(), 0)
	requireCode(t, fault.LockBusy, err)
}

// Wish: contact, host, expiry, override. And: "another operation is in progress".
func TestTheRefusalTellsEverythingAboutTheHolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ref := s.workflow(t, "scale-up-abc")
	s.run(t, "alice", func(o *lock.Options) { o.Holder.Run = ref }).acquire(t)
	_, err := s.run(t, "bob").Acquire(t.Context(), 0)
	requireCode(t, fault.LockBusy, err,
		"lock demo in namespace "+s.ns+" is held by another run; nothing was changed",
		"ID:         demo-1", "Token:      1", "Holder:     alice", "Host:       host-of-alice", "Pod:        pod-of-alice",
		"Run:        Workflow scale-up-abc (uid "+ref.UID+")", "Operation:  scale-up", "Step:       stake", "Reason:     more validators",
		"Since:      20", "Renewed:    20", "Expires in: 3m0s unless renewed",
		"To look:    kubectl -n "+s.ns+" get deploymentlock demo", "To wait:    ", "ROLLCALL_LOCK_WAIT",
		"To break:   kubectl rollcall -n "+s.ns+" force-unlock demo-1 --reason")
	var busy *lock.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, "alice", busy.Info.Holder.User)
}

// The loop printed "attempting again" but never slept, then lost the details.
func TestAWaitReallyWaitsAndItsLastRefusalHasTheDetails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.run(t, "first", func(o *lock.Options) { o.TTL = 10 * time.Second }).acquire(t)
	_, stop := h.Keep(t.Context())
	defer stop()
	next := s.run(t, "next")
	began := time.Now()
	_, err := next.Acquire(t.Context(), 3*time.Second)
	waited := time.Since(began)
	requireCode(t, fault.LockBusy, err, "ID:         demo-1", "Holder:     first", "; waited ")
	require.GreaterOrEqual(t, waited, 3*time.Second)
	require.Less(t, waited, 3*time.Second+kube.RequestTimeout, "one request may be under way at the end")
	require.LessOrEqual(t, len(next.net.Requests()), 14, "%v", next.net.Requests())
	require.Equal(t, 1, next.log.lines("waiting for the lock"), "one line per 15 s: %s", next.log)
	require.Equal(t, 1, next.log.lines("id=demo-1"))
}

func TestAWaiterGetsTheLockAsSoonAsItIsFree(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.run(t, "first").acquire(t)
	next := s.run(t, "next")
	got := make(chan error, 1)
	go func() {
		_, err := next.Acquire(t.Context(), time.Minute)
		got <- err
	}()
	require.Eventually(t, func() bool { return contains(next.net.Requests(), "WATCH deploymentlocks") }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, h.Release(t.Context()))
	released := time.Now()
	require.NoError(t, <-got)
	require.Less(t, time.Since(released), 3*time.Second, "without the watch it takes longer")
}

func contains(s []string, e string) bool {
	for _, x := range s {
		if x == e {
			return true
		}
	}
	return false
}

func TestAWaiterNeedsNoWatch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.run(t, "first").acquire(t)
	next := s.run(t, "next")
	next.net.Set(locktest.Always(locktest.IsWatch, locktest.Fault{Status: http.StatusForbidden}))
	got := make(chan error, 1)
	go func() {
		_, err := next.Acquire(t.Context(), time.Minute)
		got <- err
	}()
	require.Eventually(t, func() bool { return contains(next.net.Requests(), "WATCH deploymentlocks") }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, <-got)
}

func TestACancelledWaitEndsAtOnceAndNamesTheHolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run(t, "first").acquire(t)
	ctx, cancel := context.WithCancel(t.Context())
	next := s.run(t, "next")
	got := make(chan error, 1)
	go func() {
		_, err := next.Acquire(ctx, time.Minute)
		got <- err
	}()
	require.Eventually(t, func() bool { return next.log.lines("waiting for the lock") > 0 }, 5*time.Second, 10*time.Millisecond)
	cancel()
	err := <-got
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "demo-1 held by first@host-of-first")
}

// A failed renewal was only logged and work went on.
func TestWorkIsCancelledWithTheCauseWhenRenewalsFail(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]locktest.Fault{
		"500":     {Status: http.StatusInternalServerError},
		"refused": {Refuse: true},
		"hang":    {Hang: true}, // a hanging renew request made two leaders
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			first := s.run(t, "first", short)
			h := first.acquire(t)
			kept, stop := h.Keep(t.Context())
			defer stop()
			first.net.Set(locktest.Always(locktest.Any, f))
			began := time.Now()
			cause := lostWithin(kept, t, ttl)
			requireCode(t, fault.LockLost, cause, "lock demo-1: it could not be proven or renewed for 6s")
			require.Less(t, time.Since(began), ttl, "before others may start")
			require.LessOrEqual(t, first.log.lines("level=WARN"), 1, "said once: %s", first.log)
			first.net.Set(nil)
			requireCode(t, fault.LockLost, h.Check(t.Context()), "could not be proven")
		})
	}
}

func TestWorkIsCancelledWithinOneRenewalPeriodWhenTheLockIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.run(t, "first", busy).acquire(t)
	kept, stop := h.Keep(t.Context())
	defer stop()
	require.NoError(t, s.run(t, "boss").ForceUnlock(t.Context(), h.ID(), "holder is on holiday"))
	began := time.Now()
	cause := lostWithin(kept, t, 30*time.Second)
	require.Less(t, time.Since(began), 10*time.Second+4*time.Second, "a renewal period and a request")
	requireCode(t, fault.LockLost, cause, "demo-1", "forced open", "boss", "holder is on holiday")
}

func TestRenewalsSurviveTroublesOfTheAPI(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]locktest.Fault{
		"429":          {Status: http.StatusTooManyRequests},
		"500":          {Status: http.StatusInternalServerError},
		"refused":      {Refuse: true},
		"hang":         {Hang: true},
		"lost answers": {Lose: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			first := s.run(t, "first", func(o *lock.Options) { o.TTL = 12 * time.Second })
			h := first.acquire(t)
			kept, stop := h.Keep(t.Context())
			defer stop()
			before := s.get(t).Spec.Renewals
			first.net.Set(locktest.Times(2, locktest.IsWrite, f))
			require.Eventually(t, func() bool { return s.get(t).Spec.Renewals > before+1 }, time.Minute, 100*time.Millisecond)
			require.NoError(t, kept.Err())
			require.NoError(t, h.Check(t.Context()))
		})
	}
}

// Unlock impossible because the id was never printed.
func TestForceUnlockNeedsTheIDAndAReasonAndLeavesATrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.run(t, "first").acquire(t)
	boss := s.run(t, "boss")
	requireCode(t, fault.Config, boss.ForceUnlock(t.Context(), "demo-1", " "), "needs a reason")
	requireCode(t, fault.Config, boss.ForceUnlock(t.Context(), "demo", "why"), "not an id of lock demo", "demo-7")
	requireCode(t, fault.Config, boss.ForceUnlock(t.Context(), "other-1", "why"), "not an id of lock demo")
	requireCode(t, fault.Config, boss.ForceUnlock(t.Context(), "demo-9", "why"), "demo-1 held by first@host-of-first")
	require.NoError(t, h.Check(t.Context()), "refused unlocks change nothing")

	require.NoError(t, boss.ForceUnlock(t.Context(), "demo-1", "laptop was stolen"))
	require.NoError(t, boss.ForceUnlock(t.Context(), "demo-1", "laptop was stolen"), "once more changes nothing")
	o := s.get(t)
	require.Nil(t, o.Spec.Holder)
	require.EqualValues(t, 2, o.Spec.Token)
	require.Len(t, o.Status.Previous, 1)
	p := o.Status.Previous[0]
	require.Equal(t, "Forced", p.Ending)
	require.EqualValues(t, 1, p.Token)
	require.Equal(t, "first", p.User)
	require.Equal(t, "boss@host-of-boss (pod pod-of-boss): laptop was stolen", p.By)
	require.NotNil(t, p.EndedAt)
	events, err := s.kube().CoreV1().Events(s.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ForceUnlocked"})
	require.NoError(t, err)
	require.Len(t, events.Items, 1)
	require.Contains(t, events.Items[0].Message, "laptop was stolen")
	require.Equal(t, "demo", events.Items[0].InvolvedObject.Name)

	requireCode(t, fault.LockLost, h.Check(t.Context()), "forced open", "laptop was stolen")
	require.EqualValues(t, 3, s.run(t, "next").acquire(t).Token())
}

// Argo's mutex is at most a polite queue: without it, a crowd still gets
// through one by one.
func TestACrowdWithoutAnyOtherMutexGetsThroughOneByOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const crowd = 12
	var inside, most atomic.Int64
	var tokens sync.Map
	var wg sync.WaitGroup
	for i := range crowd {
		r := s.run(t, fmt.Sprintf("run-%d", i), func(o *lock.Options) { o.TTL = 10 * time.Second })
		wg.Go(func() {
			h, err := r.Acquire(t.Context(), time.Minute)
			if err != nil {
				t.Errorf("acquire: %v", err)
				return
			}
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			tokens.Store(h.Token(), true)
			if err := h.Check(t.Context()); err != nil {
				t.Errorf("check: %v", err)
			}
			inside.Add(-1)
			if err := h.Release(t.Context()); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, most.Load())
	for i := range crowd {
		_, ok := tokens.Load(int64(i + 1))
		require.True(t, ok, "token %d", i+1)
	}
}

func TestWallClocksThatAreHoursOffOrStandStillChangeNothing(t *testing.T) {
	t.Parallel()
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, wall := range map[string]func() time.Time{
		"hours behind": func() time.Time { return time.Now().Add(-5 * time.Hour) },
		"hours ahead":  func() time.Time { return time.Now().Add(5 * time.Hour) },
		"standing":     func() time.Time { return epoch },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			h := s.run(t, "first", short, func(o *lock.Options) { o.Wall = wall }).acquire(t)
			kept, stop := h.Keep(t.Context())
			_, err := s.run(t, "next").Acquire(t.Context(), 2*ttl)
			requireCode(t, fault.LockBusy, err)
			require.NoError(t, kept.Err())
			stop()
			began := time.Now()
			_, err = s.run(t, "next").Acquire(t.Context(), 4*ttl)
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(began), ttl, "not before it stood still for its TTL")
			require.Less(t, time.Since(began), 2*ttl)
		})
	}
}

func TestDeletingTheLockStopsTheRunAndTheTokenStillGoesUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	floor := func(o *lock.Options) { o.Floor = func(context.Context) (int64, error) { return 41, nil } }
	h := s.run(t, "first", floor, busy).acquire(t)
	require.EqualValues(t, 42, h.Token())
	kept, stop := h.Keep(t.Context())
	defer stop()
	require.NoError(t, dynamic.NewForConfigOrDie(s.config).Resource(v1alpha1.LockResource).Namespace(s.ns).Delete(t.Context(), "demo", metav1.DeleteOptions{}))
	requireCode(t, fault.LockLost, lostWithin(kept, t, 15*time.Second), "demo-42", "deleted")
	next := s.run(t, "next", func(o *lock.Options) { o.Floor = func(context.Context) (int64, error) { return 42, nil } }).acquire(t)
	require.EqualValues(t, 43, next.Token())
}

func TestTheAPIServerRefusesATokenThatGoesDownAndANewHolderWithoutAHigherOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run(t, "first").acquire(t)
	for patch, says := range map[string]string{
		`{"spec":{"token":0}}`:                              "token must never go down",
		`{"spec":{"holder":{"run":{"uid":"thief"}}}}`:       "a new holder needs a token above the last one",
		`{"spec":{"generation":1,"members":["a"]}}`:         "",
		`{"spec":{"generation":1,"members":["a","b"]}}`:     "changing the member clusters needs a higher generation",
		`{"spec":{"holder":null,"token":1,"ttlSeconds":0}}`: "ttlSeconds",
	} {
		if says == "" {
			continue
		}
		if says[0] == 'c' {
			s.patch(t, `{"spec":{"generation":1,"members":["a"]}}`, "")
		}
		s.patch(t, patch, says)
	}
}

func (s site) patch(t *testing.T, patch, says string) {
	t.Helper()
	_, err := dynamic.NewForConfigOrDie(s.config).Resource(v1alpha1.LockResource).Namespace(s.ns).
		Patch(t.Context(), "demo", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if says == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, says)
}

func TestLostAnswersNeitherLoseNorDoubleAHolding(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.run(t, "first")
	first.net.Set(locktest.Times(1, locktest.IsWrite, locktest.Fault{Lose: true}))
	h := first.acquire(t)
	require.EqualValues(t, 1, h.Token())
	first.net.Set(locktest.Times(1, locktest.IsWrite, locktest.Fault{Lose: true}))
	require.NoError(t, h.Release(t.Context()))
	o := s.get(t)
	require.Nil(t, o.Spec.Holder)
	require.Len(t, o.Status.Previous, 1)
	require.EqualValues(t, 1, o.Spec.Token)
}

func TestAStepOfTheSameRunAttachesAndOneWithoutALockIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.run(t, "first").Attach(t.Context())
	requireCode(t, fault.LockLost, err, "lock demo")
	h := s.run(t, "first").acquire(t)
	other, err := s.run(t, "first").Attach(t.Context())
	require.NoError(t, err)
	require.Equal(t, h.Token(), other.Token())
	require.NoError(t, other.Check(t.Context()))
	_, err = s.run(t, "stranger").Attach(t.Context())
	requireCode(t, fault.LockLost, err, "held by first@host-of-first", "demo-1")
	require.NoError(t, other.Release(t.Context()))
	_, err = s.run(t, "first").Attach(t.Context())
	requireCode(t, fault.LockLost, err, "demo-1", "was released by its own run at 20")
	require.NoError(t, h.Release(t.Context()), "released by another step of the run already")
	_, err = s.run(t, "stranger").Attach(t.Context())
	requireCode(t, fault.LockLost, err, "free", "acquire-lock must run first")
}

func TestAMissingRightIsNamedAndARunThatCantBeLookedUpIsSaidOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.run(t, "first", s.as(t, "nobody")).Acquire(t.Context(), time.Minute)
	requireCode(t, fault.Config, err, "get deploymentlocks", "grant the right", s.ns)

	ref := s.workflow(t, "gone")
	s.run(t, ref.UID, short, func(o *lock.Options) { o.Holder.Run = ref }).acquire(t)
	s.deleteWorkflow(t, "gone")
	next := s.run(t, "next", s.as(t, "locker", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"deploymentlocks"}, Verbs: []string{"get", "create", "update", "watch"},
	}))
	h, err := next.Acquire(t.Context(), 5*ttl)
	require.NoError(t, err, "then the TTL tells")
	require.EqualValues(t, 2, h.Token())
	require.Equal(t, 1, next.log.lines("can't look up the run"), "%s", next.log)
	require.Contains(t, next.log.String(), "grant the right to get workflows in namespace "+s.ns)
}

// as makes the lock's clients those of a user with just these rights.
func (s site) as(t *testing.T, user string, rules ...rbacv1.PolicyRule) func(*lock.Options) {
	t.Helper()
	user += "-" + s.ns
	if len(rules) > 0 {
		_, err := s.kube().RbacV1().Roles(s.ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = s.kube().RbacV1().RoleBindings(s.ns).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	c := rest.CopyConfig(s.config)
	c.Impersonate.UserName = user
	clients, _ := locktest.Client(t, c, s.ns)
	require.Eventually(t, func() bool { // the authorizer learns of new roles in its own time
		_, err := clients.Dynamic.Resource(v1alpha1.LockResource).Namespace(s.ns).Get(t.Context(), "demo", metav1.GetOptions{})
		return apierrors.IsForbidden(err) == (len(rules) == 0)
	}, 30*time.Second, 50*time.Millisecond)
	return func(o *lock.Options) { o.Clients = clients }
}

func TestAMissingNamespaceIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ns = "no-such-namespace"
	_, err := s.run(t, "first").Acquire(t.Context(), time.Minute)
	requireCode(t, fault.Config, err, "no-such-namespace", "create namespace")
}

func TestARenewalOutlivesARestartOfTheAPIServerAndAMissingDefinitionIsTold(t *testing.T) {
	t.Parallel()
	cp := kubetest.Start(t, kubetest.Dedicated())
	bare := site{cp: cp, config: cp.Config(), ns: cp.NewNamespace(t, nil)}
	_, err := bare.run(t, "early").Acquire(t.Context(), time.Minute)
	requireCode(t, fault.Config, err, "doesn't know DeploymentLocks", "manifests/crds")

	s := siteOf(t, cp)
	first := s.run(t, "first", func(o *lock.Options) { o.TTL = 90 * time.Second })
	h := first.acquire(t)
	kept, stop := h.Keep(t.Context())
	defer stop()
	s.cp.KillServer(t)
	require.NoError(t, h.Check(t.Context()), "a check waits for the server")
	require.NoError(t, kept.Err())
	s.cp.RestartServer(t)
	require.NoError(t, h.Check(t.Context()))
	require.NoError(t, h.Release(t.Context()))
}

func ptr[T any](v T) *T { return &v }

// job makes a Job whose pods never start: there is no node.
func (s site) job(t *testing.T, name string, edit func(*batchv1.JobSpec)) v1alpha1.RunReference {
	t.Helper()
	spec := batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "none"}},
	}}}
	edit(&spec)
	j, err := s.kube().BatchV1().Jobs(s.ns).Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	return v1alpha1.RunReference{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: string(j.UID)}
}

func jobDeleted(t *testing.T, s site, name string) (v1alpha1.RunReference, func()) {
	ref := s.job(t, name, func(j *batchv1.JobSpec) { j.Suspend = ptr(true) })
	return ref, func() {
		policy := metav1.DeletePropagationBackground
		require.NoError(t, s.kube().BatchV1().Jobs(s.ns).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}))
	}
}

func jobEnds(edit func(*batchv1.JobSpec)) func(*testing.T, site, string) (v1alpha1.RunReference, func()) {
	return func(t *testing.T, s site, name string) (v1alpha1.RunReference, func()) {
		ref := s.job(t, name, edit)
		return ref, func() {
			require.Eventually(t, func() bool {
				j, err := s.kube().BatchV1().Jobs(s.ns).Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				for _, c := range j.Status.Conditions {
					if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue {
						return true
					}
				}
				return false
			}, time.Minute, 100*time.Millisecond)
		}
	}
}

func (s site) pod(t *testing.T, name string) v1alpha1.RunReference {
	t.Helper()
	var p *corev1.Pod
	require.Eventually(t, func() bool { // until the namespace has its service account
		var err error
		p, err = s.kube().CoreV1().Pods(s.ns).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		return err == nil
	}, 30*time.Second, 100*time.Millisecond)
	return v1alpha1.RunReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: string(p.UID)}
}

func podDeleted(t *testing.T, s site, name string) (v1alpha1.RunReference, func()) {
	return s.pod(t, name), func() {
		require.NoError(t, s.kube().CoreV1().Pods(s.ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr[int64](0)}))
	}
}

func podFailed(t *testing.T, s site, name string) (v1alpha1.RunReference, func()) {
	return s.pod(t, name), func() {
		_, err := s.kube().CoreV1().Pods(s.ns).Patch(t.Context(), name, "application/merge-patch+json", []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
}

var workflows = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "workflows"}

func (s site) workflow(t *testing.T, name string) v1alpha1.RunReference {
	t.Helper()
	o, err := dynamic.NewForConfigOrDie(s.config).Resource(workflows).Namespace(s.ns).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": map[string]any{"name": name},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return v1alpha1.RunReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Workflow", Name: name, UID: string(o.GetUID())}
}

func (s site) deleteWorkflow(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, dynamic.NewForConfigOrDie(s.config).Resource(workflows).Namespace(s.ns).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func (s site) workflowStatus(t *testing.T, name string, status map[string]any) {
	t.Helper()
	c := dynamic.NewForConfigOrDie(s.config).Resource(workflows).Namespace(s.ns)
	o, err := c.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	o.Object["status"] = status
	_, err = c.Update(t.Context(), o, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func workflowDeleted(t *testing.T, s site, name string) (v1alpha1.RunReference, func()) {
	return s.workflow(t, name), func() { s.deleteWorkflow(t, name) }
}

func workflowReplaced(t *testing.T, s site, name string) (v1alpha1.RunReference, func()) {
	return s.workflow(t, name), func() {
		s.deleteWorkflow(t, name)
		s.workflow(t, name)
	}
}

func workflowFailed(t *testing.T, s site, name string) (v1alpha1.RunReference, func()) {
	return s.workflow(t, name), func() {
		s.workflowStatus(t, name, map[string]any{"phase": "Failed", "finishedAt": "2026-01-01T00:00:00Z"})
	}
}
