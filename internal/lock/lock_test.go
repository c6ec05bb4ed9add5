package lock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
)

func clients() *kube.Clients {
	return &kube.Clients{Dynamic: fake.NewSimpleDynamicClient(runtime.NewScheme()), Namespace: "test"}
}

func TestOptionsThatCantBeRightAreRefused(t *testing.T) {
	t.Parallel()
	three := map[string]*kube.Clients{"a": clients(), "b": clients(), "c": clients()}
	for name, c := range map[string]struct {
		o    Options
		says string
	}{
		"no name":                       {Options{Clients: clients()}, "it has no name"},
		"no cluster":                    {Options{Name: "demo"}, "either one cluster or member clusters"},
		"one cluster and members":       {Options{Name: "demo", Clients: clients(), Members: three}, "either one cluster or member clusters"},
		"TTL too short":                 {Options{Name: "demo", Clients: clients(), TTL: time.Millisecond}, "TTL 1ms"},
		"TTL too long":                  {Options{Name: "demo", Clients: clients(), TTL: 2 * time.Hour}, "from 1s to 1h0m0s"},
		"TTL with a fraction":           {Options{Name: "demo", Clients: clients(), TTL: 1500 * time.Millisecond}, "whole number of seconds"},
		"a member listed twice":         {Options{Name: "demo", Members: three, Names: []string{"a", "a"}}, "listed twice"},
		"a member without credentials":  {Options{Name: "demo", Members: three, Names: []string{"a", "d"}}, `no credentials for member cluster "d"`},
		"everything right, one cluster": {Options{Name: "demo", Clients: clients()}, ""},
		"everything right, three":       {Options{Name: "demo", Members: three, TTL: MinTTL}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(c.o)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.Equal(t, fault.Config, fault.CodeOf(err))
		})
	}
}

func TestARunWithoutUIDGetsNoLock(t *testing.T) {
	t.Parallel()
	l, err := New(Options{Name: "demo", Clients: clients()})
	require.NoError(t, err)
	_, err = l.Acquire(context.Background(), 0)
	require.Equal(t, fault.Config, fault.CodeOf(err))
	_, err = l.Attach(context.Background())
	require.Equal(t, fault.Config, fault.CodeOf(err))
}

func TestAMajorityIsMoreThanHalf(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 7: 4} {
		require.Equal(t, want, majority(n), "of %d", n)
	}
}

func TestDurationsAreShortAndHaveUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                         "0s",
		0:                                    "0s",
		1234 * time.Microsecond:              "1.23ms",
		1260 * time.Millisecond:              "1.3s",
		20*time.Second + 3*time.Millisecond:  "20s",
		20000 * time.Millisecond:             "20s",
		2*time.Minute + 41*time.Second + 499: "2m41s",
		180 * time.Second:                    "3m0s",
	} {
		require.Equal(t, want, span(d))
	}
}

func TestJitterStaysWithinAFifth(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Duration(1), jitter(1))
	for range 1000 {
		d := jitter(time.Second)
		require.InDelta(t, 1, d.Seconds(), 0.2)
	}
}

func TestRequestsAreBoundedBelowTheRenewalDeadline(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{MinTTL, 5 * time.Second, 30 * time.Second, DefaultTTL, MaxTTL} {
		l := &Lock{ttl: ttl}
		require.LessOrEqual(t, l.requestTimeout(), kube.RequestTimeout)
		require.LessOrEqual(t, 2*l.requestTimeout(), l.grace()-l.renewal(), "two that hang leave time for a third with TTL %s", ttl)
		require.Less(t, l.grace(), ttl)
	}
}

func TestAnIDIsTheLocksNameAndItsToken(t *testing.T) {
	t.Parallel()
	l := &Lock{name: "demo-2"}
	token, err := l.parseID(ID("demo-2", 7))
	require.NoError(t, err)
	require.EqualValues(t, 7, token)
	for _, bad := range []string{"", "demo-2", "demo-7", "demo-2-", "demo-2-x", "demo-2-0", "demo-2--1", "demo-2-7 ", "7"} {
		_, err := l.parseID(bad)
		require.Equal(t, fault.Config, fault.CodeOf(err), bad)
	}
}

func TestPreviousHoldersAreBoundedAndNewestFirst(t *testing.T) {
	t.Parallel()
	o := &v1alpha1.DeploymentLock{}
	for i := range maxPrevious + 5 {
		o.Spec.Token, o.Spec.Holder = int64(i), &v1alpha1.Holder{User: fmt.Sprint(i)}
		end(o, endForced, strings.Repeat("ä", 5000), time.Now())
		require.Nil(t, o.Spec.Holder)
	}
	require.Len(t, o.Status.Previous, maxPrevious)
	require.EqualValues(t, maxPrevious+4, o.Status.Previous[0].Token)
	require.Len(t, []rune(o.Status.Previous[0].By), 1400, "the CRD allows no more")
	end(o, endReleased, "", time.Now())
	require.Len(t, o.Status.Previous, maxPrevious, "a free lock has no holding to end")
}

func TestStillnessIsMeasuredHereAndStartsAgainWithEveryWrite(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := &member{}
	see := func(uid types.UID, version string, after time.Duration) time.Duration {
		o := &v1alpha1.DeploymentLock{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
		return m.observe(o, now.Add(after))
	}
	require.Zero(t, see("one", "1", 0))
	require.Equal(t, time.Second, see("one", "1", time.Second))
	require.Zero(t, see("one", "2", 2*time.Second), "a write starts it again")
	require.Equal(t, time.Minute, see("one", "2", time.Minute+2*time.Second))
	require.Zero(t, see("other", "2", 2*time.Minute), "so does another object of the same name")
}

func TestAHoldingCountsFromTheRenewalOfAMajority(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := clocktesting.NewFakeClock(at)
	l := &Lock{ttl: 180 * time.Second, clock: c, members: []*member{{name: "a"}, {name: "b"}, {name: "c"}}}
	h := l.holding(1)
	require.Equal(t, at.Add(120*time.Second), h.Deadline(), "from now while nothing is known")
	h.stakes[l.members[0]].sent = at.Add(30 * time.Second)
	require.Zero(t, h.renewed(), "one of three is none")
	h.stakes[l.members[2]].sent = at.Add(10 * time.Second)
	require.Equal(t, at.Add(130*time.Second), h.Deadline(), "the second best counts")
	h.stakes[l.members[1]].sent = at.Add(20 * time.Second)
	require.Equal(t, at.Add(140*time.Second), h.Deadline())
}

func TestAnswersOfClustersAreWeighed(t *testing.T) {
	t.Parallel()
	ours, other, deleted := stand{ours: true}, stand{lock: &v1alpha1.DeploymentLock{Spec: v1alpha1.DeploymentLockSpec{
		Token: 9, Holder: &v1alpha1.Holder{User: "bob", Run: v1alpha1.RunReference{UID: "x"}},
	}}}, stand{}
	none := stand{err: fault.New(fault.Transient, "no answer")}
	for name, c := range map[string]struct {
		stands []stand
		code   fault.Code
		says   string
	}{
		"all ours":                       {[]stand{ours, ours, ours}, fault.OK, ""},
		"a majority ours":                {[]stand{ours, none, ours}, fault.OK, ""},
		"a minority taken":               {[]stand{ours, other, ours}, fault.OK, ""},
		"a majority taken":               {[]stand{other, ours, other}, fault.LockLost, "held by bob (run x) for an unknown operation, id demo-9"},
		"a majority deleted":             {[]stand{deleted, deleted, ours}, fault.LockLost, "deleted"},
		"no majority can be ours":        {[]stand{other, deleted, none}, fault.LockLost, "bob"},
		"too few answers for either":     {[]stand{ours, none, none}, fault.Transient, "1 of 3 clusters confirm it, 2 are needed"},
		"one taken, the others unknown":  {[]stand{other, none, none}, fault.Transient, "no answer"},
		"one taken, one ours, one quiet": {[]stand{other, ours, none}, fault.Transient, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &Lock{name: "demo", ttl: DefaultTTL, clock: clocktesting.NewFakeClock(time.Now()), members: []*member{{name: "a"}, {name: "b"}, {name: "c"}}}
			err := l.holding(7).weigh(c.stands)
			require.Equal(t, c.code, fault.CodeOf(err), "%v", err)
			if err != nil {
				require.ErrorContains(t, err, c.says)
			}
		})
	}
}

func TestOnlyAFinishedRunIsFinished(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   string
		status map[string]any
		want   string
	}{
		"Workflow running":               {"Workflow", map[string]any{"phase": "Running"}, ""},
		"Workflow in its exit handler":   {"Workflow", map[string]any{"phase": "Failed", "finishedAt": nil}, ""},
		"Workflow without status":        {"Workflow", nil, ""},
		"Workflow succeeded":             {"Workflow", map[string]any{"phase": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z"}, "Succeeded"},
		"Workflow with an error":         {"Workflow", map[string]any{"phase": "Error", "finishedAt": "2026-01-01T00:00:00Z"}, "Error"},
		"Workflow pending, odd time":     {"Workflow", map[string]any{"phase": "Pending", "finishedAt": "2026-01-01T00:00:00Z"}, ""},
		"Job active":                     {"Job", map[string]any{"active": int64(1)}, ""},
		"Job about to fail":              {"Job", conditions("FailureTarget", "True"), ""},
		"Job about to be complete":       {"Job", conditions("SuccessCriteriaMet", "True"), ""},
		"Job suspended":                  {"Job", conditions("Suspended", "True"), ""},
		"Job not failed":                 {"Job", conditions("Failed", "False"), ""},
		"Job failed":                     {"Job", conditions("Failed", "True"), "Failed"},
		"Job complete":                   {"Job", conditions("Complete", "True"), "Complete"},
		"Pod pending":                    {"Pod", map[string]any{"phase": "Pending"}, ""},
		"Pod that nobody hears of":       {"Pod", map[string]any{"phase": "Unknown"}, ""},
		"Pod failed":                     {"Pod", map[string]any{"phase": "Failed"}, "Failed"},
		"another kind with a like phase": {"PipelineRun", map[string]any{"phase": "Failed"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &unstructured.Unstructured{Object: map[string]any{"kind": c.kind}}
			if c.status != nil {
				o.Object["status"] = c.status
			}
			require.Equal(t, c.want, finished(o))
		})
	}
}

func conditions(t, status string) map[string]any {
	return map[string]any{"conditions": []any{map[string]any{"type": t, "status": status}}}
}

func TestAHolderIsNamedInOneLine(t *testing.T) {
	t.Parallel()
	run := v1alpha1.RunReference{Kind: "Workflow", Name: "scale-up-x", UID: "u"}
	for want, h := range map[string]v1alpha1.Holder{
		"alice@node-1 (pod p, Workflow scale-up-x)": {User: "alice", Host: "node-1", Pod: "p", Run: run},
		"alice (Workflow scale-up-x)":               {User: "alice", Run: run},
		"somebody (run u)":                          {Run: v1alpha1.RunReference{UID: "u"}},
		"ci (pod p)":                                {User: "ci", Pod: "p", Run: v1alpha1.RunReference{Kind: "Pod", Name: "p", UID: "u"}},
	} {
		require.Equal(t, want, who(h))
	}
}

func TestTheHoldingOfMostClustersIsShown(t *testing.T) {
	t.Parallel()
	l := &Lock{name: "demo", ttl: DefaultTTL, members: []*member{{name: "a", clients: clients()}, {name: "b"}, {name: "c"}}}
	held := func(i int, token int64, user string) view {
		o := &v1alpha1.DeploymentLock{Spec: v1alpha1.DeploymentLockSpec{Token: token, TTLSeconds: 60}}
		if user != "" {
			o.Spec.Holder = &v1alpha1.Holder{User: user, Run: v1alpha1.RunReference{UID: user}}
		}
		return view{m: l.members[i], lock: o, still: 10 * time.Second}
	}
	i := l.info([]view{held(0, 7, "alice"), held(1, 8, "bob"), held(2, 7, "alice")})
	require.Equal(t, "alice", i.Holder.User)
	require.Equal(t, "demo-7", i.ID)
	require.Equal(t, "50s unless renewed (TTL 1m0s, seen silent for 10s)", i.expiry())
	i = l.info([]view{held(0, 7, ""), held(1, 8, ""), {m: l.members[2], err: context.DeadlineExceeded}})
	require.False(t, i.Held)
	require.Equal(t, "demo-8", i.ID)
	require.Equal(t, "context deadline exceeded", i.Clusters[2].Error)
	require.Equal(t, "lock demo is free, last id demo-8", i.line())
}

func TestALockIsDescribedOneFactPerLine(t *testing.T) {
	t.Parallel()
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	i := Info{
		Name: "demo", Namespace: "prod", ID: "demo-7", Token: 7, Held: true, TTL: DefaultTTL, AcquiredAt: &at, expiresIn: 161 * time.Second, Silent: 19 * time.Second,
		Holder: v1alpha1.Holder{User: "alice", Host: "node-1", Operation: "scale-up", Step: "stake", Run: v1alpha1.RunReference{Kind: "Workflow", Name: "up-x", UID: "u"}},
		Previous: []v1alpha1.PreviousHolder{
			{Holder: v1alpha1.Holder{User: "bob", Operation: "scale-down"}, Token: 6, Ending: endForced, By: "eve (run e): typo", EndedAt: &at},
			{Holder: v1alpha1.Holder{User: "carol"}, Token: 5, Ending: endReleased},
		},
		Clusters: []ClusterInfo{{Name: "a", Token: 7, Holder: "alice", Took: 2 * time.Second}, {Name: "b", Error: "timeout"}},
	}
	require.Equal(t, `lock demo in namespace prod is held
  ID:         demo-7
  Token:      7
  Holder:     alice
  Host:       node-1
  Run:        Workflow up-x (uid u)
  Operation:  scale-up
  Step:       stake
  Since:      2026-01-02T03:04:05Z by the holder's clock
  Expires in: 2m41s unless renewed (TTL 3m0s, seen silent for 19s)
  Cluster:    a: alice, token 7, answered in 2s
  Cluster:    b: no answer: timeout
  Before:     demo-6: bob for scale-down, was forced open at 2026-01-02T03:04:05Z by eve (run e): typo
  Before:     demo-5: carol for an unknown operation, was released by its own run`, i.String())
	i.Held = false
	require.Contains(t, i.String(), "lock demo in namespace prod is free\n  ID:         demo-7\n  Token:      7\n  Cluster:")
	require.Contains(t, (&BusyError{Info: i, Waited: 3 * time.Second}).Error(), "nothing was changed; waited 3s\n  ID:         demo-7")
}
