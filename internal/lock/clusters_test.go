//go:build integration

package lock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
	"github.com/rollcall-dev/rollcall/internal/lock"
	"github.com/rollcall-dev/rollcall/internal/lock/locktest"
)

// fleet is member clusters a, b, c and so on. They are namespaces of one API
// server with networks of their own; test/lock has real ones.
type fleet map[string]site

func newFleet(t *testing.T, n int) fleet {
	f := fleet{}
	for i := range n {
		f[string(rune('a'+i))] = newSite(t)
	}
	return f
}

// nets are the networks of one run to each cluster.
type nets map[string]*locktest.Network

func (n nets) set(r locktest.Rule, clusters ...string) {
	for _, c := range clusters {
		n[c].Set(r)
	}
}

var (
	away = locktest.Always(locktest.Any, locktest.Fault{Refuse: true})
	hung = locktest.Always(locktest.Any, locktest.Fault{Hang: true})
)

func (f fleet) run(t *testing.T, uid string, edit ...func(*lock.Options)) (run, nets) {
	t.Helper()
	n, members := nets{}, map[string]*kube.Clients{}
	for name, s := range f {
		members[name], n[name] = locktest.Client(t, s.config, s.ns)
	}
	r := f["a"].run(t, uid, append([]func(*lock.Options){func(o *lock.Options) { o.Clients, o.Members = nil, members }}, edit...)...)
	return r, n
}

func (f fleet) names() []string { return slices.Sorted(maps.Keys(f)) }

func TestAMajorityOfTheClustersIsNeededAndEnough(t *testing.T) {
	t.Parallel()
	for n, spare := range map[int]int{1: 0, 2: 0, 3: 1, 5: 2} {
		t.Run(fmt.Sprintf("%d clusters spare %d", n, spare), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, n)
			founder, _ := f.run(t, "founder")
			h := founder.acquire(t)
			for _, c := range f.names() {
				require.Equal(t, "founder", f[c].get(t).Spec.Holder.User, "cluster %s", c)
			}
			other, _ := f.run(t, "other")
			_, err := other.Acquire(t.Context(), 0)
			requireCode(t, fault.LockBusy, err, "founder", "Cluster:    a: founder@")
			require.NoError(t, h.Release(t.Context()))

			names := f.names()
			lucky, net := f.run(t, "lucky")
			net.set(away, names[:spare]...)
			h, err = lucky.Acquire(t.Context(), 0)
			require.NoError(t, err)
			require.NoError(t, h.Check(t.Context()))
			require.Equal(t, spare, lucky.log.lines("member cluster gives no answer"), "each by name: %s", lucky.log)
			require.NoError(t, h.Release(t.Context()))

			unlucky, net := f.run(t, "unlucky")
			net.set(away, names[:spare+1]...)
			_, err = unlucky.Acquire(t.Context(), 0)
			requireCode(t, fault.Transient, err)
			if n > 1 {
				require.ErrorContains(t, err, fmt.Sprintf("%d of %d member clusters gave no answer, %d are needed:", spare+1, n, n-spare))
				for _, c := range names[:spare+1] {
					require.ErrorContains(t, err, "cluster "+c+":")
				}
			}
			for _, c := range names {
				require.Nil(t, f[c].get(t).Spec.Holder, "nothing may be left behind in cluster %s", c)
			}
		})
	}
}

func TestLosersReleaseBackOffAndOneOfManyContendersWins(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	first, _ := f.run(t, "founder")
	require.NoError(t, first.acquire(t).Release(t.Context()))
	const crowd = 6
	var inside, most atomic.Int64
	var mu sync.Mutex
	var order []int64
	var wg sync.WaitGroup
	for i := range crowd {
		r, _ := f.run(t, fmt.Sprintf("run-%d", i), func(o *lock.Options) { o.TTL = 20 * time.Second })
		wg.Go(func() {
			h, err := r.Acquire(t.Context(), time.Minute)
			if err != nil {
				t.Errorf("acquire: %v", err)
				return
			}
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			mu.Lock()
			order = append(order, h.Token())
			mu.Unlock()
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
	require.Len(t, order, crowd)
	require.True(t, slices.IsSorted(order), "tokens in the order of the holdings: %v", order)
	require.Len(t, slices.Compact(order), crowd, "every token once")
}

func TestAMinorityThatFailsInTheMiddleDoesntStopARunLosingTheMajorityDoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	r, net := f.run(t, "first", busy)
	h := r.acquire(t)
	kept, stop := h.Keep(t.Context())
	defer stop()
	net.set(hung, "b")
	before := f["a"].get(t).Spec.Renewals
	require.Eventually(t, func() bool { return f["a"].get(t).Spec.Renewals > before+1 }, time.Minute, 100*time.Millisecond)
	require.NoError(t, context.Cause(kept))
	began := time.Now()
	require.NoError(t, h.Check(t.Context()))
	require.Less(t, time.Since(began), 3*time.Second, "a hanging minority must not slow a check down")

	net.set(away, "c")
	requireCode(t, fault.LockLost, lostWithin(kept, t, 40*time.Second), "could not be proven or renewed", "cluster c: ", "of 3 clusters confirm it, 2 are needed")
}

func TestAClusterThatWasAwayOrForgotTheLockIsBroughtBackIn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	founder, _ := f.run(t, "founder")
	require.NoError(t, founder.acquire(t).Release(t.Context()))
	r, net := f.run(t, "first", busy)
	net.set(away, "a")
	h := r.acquire(t)
	kept, stop := h.Keep(t.Context())
	defer stop()
	require.Nil(t, f["a"].get(t).Spec.Holder)
	net.set(nil, "a")
	ours := func(c string) func() bool {
		return func() bool {
			u, err := dynamic.NewForConfigOrDie(f[c].config).Resource(v1alpha1.LockResource).Namespace(f[c].ns).Get(t.Context(), "demo", metav1.GetOptions{})
			if err != nil {
				return false
			}
			spec, _ := u.Object["spec"].(map[string]any)
			return spec["holder"] != nil && spec["token"] == h.Token()
		}
	}
	require.Eventually(t, ours("a"), time.Minute, 100*time.Millisecond)
	require.NoError(t, dynamic.NewForConfigOrDie(f["b"].config).Resource(v1alpha1.LockResource).Namespace(f["b"].ns).Delete(t.Context(), "demo", metav1.DeleteOptions{}))
	require.Eventually(t, ours("b"), time.Minute, 100*time.Millisecond)
	require.NoError(t, context.Cause(kept))
	require.NoError(t, h.Release(t.Context()))
	for _, c := range f.names() {
		require.Nil(t, f[c].get(t).Spec.Holder)
	}
}

func TestSlowClustersAreNamedAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	founder, _ := f.run(t, "founder")
	require.NoError(t, founder.acquire(t).Release(t.Context()))
	r, net := f.run(t, "first")
	net.set(locktest.Always(locktest.Any, locktest.Fault{After: 20 * time.Second}), "b")
	began := time.Now()
	h := r.acquire(t)
	require.Less(t, time.Since(began), kube.RequestTimeout, "one request to the slow cluster takes this long")
	require.Contains(t, r.log.String(), "cluster b: no answer within 1s of the others'")
	info, err := r.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, info.Held)
	require.Len(t, info.Clusters, 3)
	require.Contains(t, info.Clusters[1].Error, "no answer within")
	require.NoError(t, h.Release(t.Context()))
}

func TestAPartitionedHolderIsFencedByTheMajority(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	r, net := f.run(t, "first", short)
	h := r.acquire(t)
	kept, stop := h.Keep(t.Context())
	defer stop()
	net.set(away, "a", "b")
	next, _ := f.run(t, "next")
	n, err := next.Acquire(t.Context(), 5*ttl)
	require.NoError(t, err)
	require.Greater(t, n.Token(), h.Token())
	requireCode(t, fault.LockLost, lostWithin(kept, t, ttl))
	net.set(nil, "a", "b")
	requireCode(t, fault.LockLost, h.Check(t.Context()))
	require.NoError(t, n.Check(t.Context()))
}

func TestTwoMemberListsNeverBothHaveAMajority(t *testing.T) {
	t.Parallel()
	list := func(generation int64, names ...string) func(*lock.Options) {
		return func(o *lock.Options) { o.Generation, o.Names = generation, names }
	}
	setup := func(t *testing.T) (fleet, *lock.Held) {
		f := newFleet(t, 5)
		old, _ := f.run(t, "old", list(1, "a", "b", "c"))
		return f, old.acquire(t)
	}

	t.Run("the new list waits for the holder of the old one", func(t *testing.T) {
		t.Parallel()
		f, h := setup(t)
		// Any majority of the new list is free; c alone, its old member, is held.
		next, _ := f.run(t, "new", list(2, "c", "d", "e"))
		_, err := next.Acquire(t.Context(), 0)
		requireCode(t, fault.LockBusy, err, "old@")
		require.NoError(t, h.Release(t.Context()))
		n := next.acquire(t)
		require.Greater(t, n.Token(), h.Token())

		late, _ := f.run(t, "late", list(1, "a", "b", "c"))
		_, err = late.Acquire(t.Context(), 0)
		requireCode(t, fault.Config, err, "this run's member list (a, b, c) is generation 1", "generation 2 (c, d, e)")
	})
	t.Run("the new list needs all of its clusters once", func(t *testing.T) {
		t.Parallel()
		f, h := setup(t)
		require.NoError(t, h.Release(t.Context()))
		next, net := f.run(t, "new", list(2, "c", "d", "e"))
		net.set(away, "c")
		_, err := next.Acquire(t.Context(), 0)
		requireCode(t, fault.Transient, err, "is new, so all of its clusters must answer once", "cluster c")
		late, _ := f.run(t, "late", list(1, "a", "b", "c"))
		require.NoError(t, late.acquire(t).Release(t.Context()), "nothing was founded, so the old list is in force")
	})
	t.Run("the new list needs a majority of the old one", func(t *testing.T) {
		t.Parallel()
		f, h := setup(t)
		require.NoError(t, h.Release(t.Context()))
		next, net := f.run(t, "new", list(2, "c", "d", "e"))
		net.set(away, "a", "b")
		_, err := next.Acquire(t.Context(), 0)
		requireCode(t, fault.Transient, err, "clusters that leave the member list gave no answer", "cluster a:", "cluster b:")
		net.set(nil, "b")
		h = next.acquire(t)
		require.NoError(t, h.Release(t.Context()))
		late, net := f.run(t, "late", list(1, "a", "b", "c"))
		net.set(away, "c")
		_, err = late.Acquire(t.Context(), 0)
		requireCode(t, fault.Config, err, "generation 2")
	})
	t.Run("a list without credentials for a cluster that leaves is told", func(t *testing.T) {
		t.Parallel()
		f, h := setup(t)
		require.NoError(t, h.Release(t.Context()))
		next, _ := f.run(t, "new", list(2, "c", "d", "e"), func(o *lock.Options) { delete(o.Members, "a") })
		_, err := next.Acquire(t.Context(), 0)
		requireCode(t, fault.Config, err, "cluster a leaves the member list", "keep it in the member clusters' kubeconfig")
	})
	t.Run("another list of the same generation is refused", func(t *testing.T) {
		t.Parallel()
		f, _ := setup(t)
		next, _ := f.run(t, "new", list(1, "c", "d", "e"))
		_, err := next.Acquire(t.Context(), 0)
		requireCode(t, fault.Config, err, "a changed list needs a higher generation")
	})
	t.Run("a run that knows one cluster only is refused", func(t *testing.T) {
		t.Parallel()
		f, _ := setup(t)
		_, err := f["a"].run(t, "single").Acquire(t.Context(), 0)
		requireCode(t, fault.Config, err, "it belongs to the member clusters a, b, c")
	})
	t.Run("one cluster becomes three", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 3)
		single := f["b"].run(t, "single").acquire(t)
		next, _ := f.run(t, "new")
		_, err := next.Acquire(t.Context(), 0)
		requireCode(t, fault.LockBusy, err, "single@")
		require.NoError(t, single.Release(t.Context()))
		require.Greater(t, next.acquire(t).Token(), single.Token())
	})
}

func TestForceUnlockFreesAMajority(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	r, _ := f.run(t, "first")
	h := r.acquire(t)
	boss, net := f.run(t, "boss")
	net.set(away, "c")
	require.NoError(t, boss.ForceUnlock(t.Context(), h.ID(), "gone home"))
	requireCode(t, fault.LockLost, h.Check(t.Context()), "gone home")
	require.Greater(t, func() int64 { n, _ := f.run(t, "next"); return n.acquire(t).Token() }(), h.Token())
}

func TestARunThatLivesInOneClusterIsLookedUpThereAndOnlyThere(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	ref := f["b"].workflow(t, "the-run")
	of := func(o *lock.Options) { o.Holder.Run = ref }
	nowhere, _ := f.run(t, ref.UID, of)
	h := nowhere.acquire(t)
	next, _ := f.run(t, "next")
	_, err := next.Acquire(t.Context(), 0)
	requireCode(t, fault.LockBusy, err)
	require.NoError(t, h.Release(t.Context()))

	ref.Cluster = "b"
	home, _ := f.run(t, ref.UID, of)
	h = home.acquire(t)
	_, err = next.Acquire(t.Context(), 0)
	requireCode(t, fault.LockBusy, err)
	f["b"].deleteWorkflow(t, "the-run")
	n, err := next.Acquire(t.Context(), 0)
	require.NoError(t, err)
	require.Greater(t, n.Token(), h.Token())
	requireCode(t, fault.LockLost, h.Check(t.Context()), "Workflow the-run is gone")
}

func TestTheSameRunGetsItsHoldingBackInSeveralClusters(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	r, _ := f.run(t, "first")
	h := r.acquire(t)
	again, net := f.run(t, "first")
	net.set(away, "a")
	n := again.acquire(t)
	require.Equal(t, h.Token(), n.Token())
	attached, err := again.Attach(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	require.Equal(t, h.Token(), attached.Token())
}
