package network_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/network"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func operation(uid string) v1alpha1.Operation {
	return v1alpha1.Operation{Type: "scale-up", Validators: 5, Step: "acquire-lock", Run: v1alpha1.RunReference{UID: uid}, Token: 7}
}

// begun is a network that the run works on.
func begun(uid string) *v1alpha1.ValidatorNetwork {
	n := &v1alpha1.ValidatorNetwork{}
	n.Generation = 3
	network.Begin(n, operation(uid), t0)
	return n
}

func requireCondition(t *testing.T, n *v1alpha1.ValidatorNetwork, kind string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	c := meta.FindStatusCondition(n.Status.Conditions, kind)
	require.NotNil(t, c, kind)
	require.Equal(t, status, c.Status, kind)
	require.Equal(t, reason, c.Reason, kind)
	require.EqualValues(t, 3, c.ObservedGeneration)
}

func TestBeginRecordsWhoWorks(t *testing.T) {
	t.Parallel()
	n := begun("a")
	op := n.Status.LastOperation
	require.Equal(t, v1alpha1.OperationRunning, op.Phase)
	require.True(t, op.StartedAt.Time.Equal(t0))
	require.Nil(t, op.FinishedAt)
	require.Empty(t, n.Status.History)
	require.EqualValues(t, 3, n.Status.ObservedGeneration)
	requireCondition(t, n, v1alpha1.ConditionReconciling, metav1.ConditionTrue, "Operation")
	requireCondition(t, n, v1alpha1.ConditionStalled, metav1.ConditionFalse, "Operation")
}

func TestBeginAgainByTheSameRunGoesOn(t *testing.T) {
	t.Parallel()
	n := begun("a")
	require.True(t, network.Fail(n, "a", "stake", "Transient", "no answer", t0.Add(time.Minute)))
	network.Begin(n, operation("a"), t0.Add(time.Hour))
	require.Equal(t, v1alpha1.OperationRunning, n.Status.LastOperation.Phase)
	require.True(t, n.Status.LastOperation.StartedAt.Time.Equal(t0), "the run began when it began")
	require.Empty(t, n.Status.History, "one run is one operation")
}

func TestBeginArchivesTheOperationBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end     func(*v1alpha1.ValidatorNetwork)
		phase   v1alpha1.OperationPhase
		message string
	}{
		"one that was killed is failed":    {func(*v1alpha1.ValidatorNetwork) {}, v1alpha1.OperationFailed, "ended without a word in step acquire-lock"},
		"one that succeeded stays so":      {func(n *v1alpha1.ValidatorNetwork) { network.Succeed(n, "a", "save-state", "done", t0) }, v1alpha1.OperationSucceeded, "done"},
		"one that failed keeps its reason": {func(n *v1alpha1.ValidatorNetwork) { network.Fail(n, "a", "stake", "Chain", "no funds", t0) }, v1alpha1.OperationFailed, "no funds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := begun("a")
			c.end(n)
			network.Begin(n, operation("b"), t0.Add(time.Hour))
			require.Equal(t, "b", n.Status.LastOperation.Run.UID)
			require.True(t, n.Status.LastOperation.StartedAt.Time.Equal(t0.Add(time.Hour)))
			require.Len(t, n.Status.History, 1)
			h := n.Status.History[0]
			require.Equal(t, "a", h.Run.UID)
			require.Equal(t, c.phase, h.Phase)
			require.Equal(t, c.message, h.Message)
			require.NotNil(t, h.FinishedAt)
		})
	}
}

func TestHistoryIsBoundedAndNewestFirst(t *testing.T) {
	t.Parallel()
	n := begun("run-0")
	for i := 1; i <= 30; i++ {
		network.Begin(n, operation(fmt.Sprintf("run-%d", i)), t0)
	}
	require.Len(t, n.Status.History, 20, "the CRD allows no more")
	require.Equal(t, "run-29", n.Status.History[0].Run.UID)
	require.Equal(t, "run-10", n.Status.History[19].Run.UID)
}

func TestReachOnlyMovesTheOwnOperation(t *testing.T) {
	t.Parallel()
	require.False(t, network.Reach(&v1alpha1.ValidatorNetwork{}, "a", "stake"), "no operation")
	n := begun("a")
	require.False(t, network.Reach(n, "b", "stake"), "another run's")
	require.Equal(t, "acquire-lock", n.Status.LastOperation.Step)
	require.True(t, network.Reach(n, "a", "stake"))
	require.Equal(t, "stake", n.Status.LastOperation.Step)
	require.False(t, network.Reach(n, "a", "stake"), "nothing new, nothing to write")
	require.True(t, network.Fail(n, "a", "", "Transient", "x", t0))
	require.True(t, network.Reach(n, "a", "stake"), "a retried step runs again")
	require.Equal(t, v1alpha1.OperationRunning, n.Status.LastOperation.Phase)
	require.Nil(t, n.Status.LastOperation.FinishedAt)
}

func TestFail(t *testing.T) {
	t.Parallel()
	n := begun("a")
	require.False(t, network.Fail(n, "b", "stake", "Refused", "no", t0), "another run's operation")
	require.Equal(t, v1alpha1.OperationRunning, n.Status.LastOperation.Phase)
	require.True(t, network.Fail(n, "a", "stake", "Refused", "unsafe", t0.Add(time.Minute)))
	op := n.Status.LastOperation
	require.Equal(t, v1alpha1.OperationFailed, op.Phase)
	require.Equal(t, "stake", op.Step)
	require.Equal(t, "unsafe", op.Message)
	require.True(t, op.FinishedAt.Time.Equal(t0.Add(time.Minute)))
	requireCondition(t, n, v1alpha1.ConditionReconciling, metav1.ConditionFalse, "Refused")
	requireCondition(t, n, v1alpha1.ConditionStalled, metav1.ConditionTrue, "Refused")

	network.Succeed(n, "a", "save-state", "done", t0)
	require.False(t, network.Fail(n, "a", "release-lock", "Transient", "late", t0), "what succeeded stays a success")
	require.Equal(t, v1alpha1.OperationSucceeded, n.Status.LastOperation.Phase)
}

func TestSucceed(t *testing.T) {
	t.Parallel()
	n := begun("a")
	network.Succeed(n, "a", "save-state", "5 signing", t0)
	require.Equal(t, v1alpha1.OperationSucceeded, n.Status.LastOperation.Phase)
	require.Equal(t, "save-state", n.Status.LastOperation.Step)
	requireCondition(t, n, v1alpha1.ConditionReconciling, metav1.ConditionFalse, "Succeeded")
	requireCondition(t, n, v1alpha1.ConditionStalled, metav1.ConditionFalse, "Succeeded")
}

func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	n := begun("a")
	require.True(t, network.Fail(n, "a", "stake", "Chain", "x"+strings.Repeat("ü", 2000), t0))
	m := n.Status.LastOperation.Message
	require.True(t, utf8.ValidString(m))
	require.LessOrEqual(t, len(m), 1024)
	require.Greater(t, len(m), 1000)
}

func TestEnsureKeepsTheRosterInOrder(t *testing.T) {
	t.Parallel()
	n := &v1alpha1.ValidatorNetwork{}
	for _, o := range []int{5, 0, 10, 2, 5} {
		network.Ensure(n, o).Power = int64(o)
	}
	var got []int32
	for _, e := range n.Status.Roster {
		got = append(got, e.Ordinal)
		require.EqualValues(t, e.Ordinal, e.Power, "the returned entry is the roster's own")
		require.Equal(t, v1alpha1.BondState("Unknown"), e.State)
	}
	require.Equal(t, []int32{0, 2, 5, 10}, got)
	require.Nil(t, network.Entry(n, 1))
	require.EqualValues(t, 10, network.Entry(n, 10).Power)
}

func TestEnrollReportsWhetherAnythingIsNew(t *testing.T) {
	t.Parallel()
	n := &v1alpha1.ValidatorNetwork{}
	ids := map[int]chain.Identity{0: {Address: "A", Operator: "a"}, 3: {Address: "D", Operator: "d"}}
	require.True(t, network.Enroll(n, ids))
	require.False(t, network.Enroll(n, ids))
	ids[3] = chain.Identity{Address: "E", Operator: "d"}
	require.True(t, network.Enroll(n, ids), "a changed key is news")
	require.Equal(t, "E", network.Entry(n, 3).Address)
	require.False(t, network.Enroll(n, nil))
}

// found is a census at height 101 of one validator whose votes in the last ten
// commits are given as in the census tests: S signed, A absent, - not a member.
func found(line string, status chain.Status, member, pod bool) *census.Census {
	c := &census.Census{
		StatefulSet: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "validator"}}}},
		Height:      101,
		Set:         chain.Set{Height: 91 + int64(len(line))},
	}
	for i, letter := range line {
		k := chain.Commit{Height: int64(91 + i), Votes: map[string]chain.Vote{}}
		switch letter {
		case 'S':
			k.Votes["A"] = chain.ForBlock
		case 'A':
			k.Votes["A"] = chain.Absent
		}
		c.Commits = append(c.Commits, k)
	}
	v := census.Validator{Ordinal: 0, Identity: chain.Identity{Address: "A", Operator: "a"}, Record: chain.Record{Status: status}}
	if member {
		v.Member = &chain.Member{Address: "A", Power: 100}
	}
	if pod {
		v.Pod = &corev1.Pod{}
	}
	c.Validators = []census.Validator{v}
	return c
}

func TestRecordTellsTheLifeOfAValidator(t *testing.T) {
	t.Parallel()
	n := &v1alpha1.ValidatorNetwork{}
	n.Generation, n.Spec.Validators = 3, 1
	at := func(c *census.Census) v1alpha1.RosterEntry {
		network.Record(n, c)
		return n.Status.Roster[0]
	}

	e := at(found("----------", chain.Unstaked, false, true))
	require.Zero(t, e.JoinedHeight)
	require.Zero(t, e.LeftHeight, "one that never joined didn't leave")
	require.EqualValues(t, 1, n.Status.Validators)
	require.Zero(t, n.Status.Bonded)
	requireCondition(t, n, v1alpha1.ConditionReady, metav1.ConditionFalse, "NotAllSigning")

	e = at(found("-----SSSSS", chain.Bonded, true, true))
	require.EqualValues(t, 96, e.JoinedHeight, "the first height it was proven in the set")
	require.Equal(t, v1alpha1.BondState("Bonded"), e.State)
	require.EqualValues(t, 100, e.Power)
	require.True(t, e.Signing)
	require.Equal(t, "app=validator", n.Status.Selector)
	require.EqualValues(t, 101, n.Status.Height)
	require.EqualValues(t, 3, n.Status.ObservedGeneration)
	requireCondition(t, n, v1alpha1.ConditionReady, metav1.ConditionTrue, "AllSigning")

	n.Status.Roster[0].Tx = "HASH"
	e = at(found("AAAAAAAAAA", chain.Bonded, true, true))
	require.Equal(t, "HASH", e.Tx, "nothing is proven while it doesn't sign")
	e = at(found("SSSSSSSSSS", chain.Bonded, true, true))
	require.Empty(t, e.Tx, "proven")
	require.EqualValues(t, 96, e.JoinedHeight, "it joined only once")

	e = at(found("AAAAAAAAAA", chain.Bonded, true, true))
	require.False(t, e.Signing)
	require.EqualValues(t, 1, n.Status.Bonded)
	require.Zero(t, n.Status.Signing)

	e = at(found("SSSSSSS---", chain.Unstaking, false, true))
	require.EqualValues(t, 98, e.LeftHeight, "the first height it was proven out of the set")
	require.Zero(t, e.Power)

	e = at(found("----------", chain.Unstaked, false, false))
	require.EqualValues(t, 98, e.LeftHeight, "it left only once")
	require.Zero(t, n.Status.Validators)

	e = at(found("---SSSSSSS", chain.Bonded, true, true))
	require.EqualValues(t, 94, e.JoinedHeight, "it joined again")
	require.Zero(t, e.LeftHeight)
}

func TestRecordCountsJailedOnes(t *testing.T) {
	t.Parallel()
	for _, s := range []chain.Status{chain.Jailed, chain.Tombstoned} {
		n := &v1alpha1.ValidatorNetwork{}
		network.Record(n, found("AAAAA-----", s, false, true))
		require.EqualValues(t, 1, n.Status.Jailed)
		require.Zero(t, n.Status.Signing)
	}
}
