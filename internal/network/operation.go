package network

import (
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/chain"
)

// maxHistory is how many ended operations are kept; the CRD allows 20.
const maxHistory = 20

// maxMessage is the CRD's limit for an operation's message, in bytes.
const maxMessage = 1024

// Begin records that op runs now. An operation that was left running by
// another run is moved to the history as failed: its run can't end it any more.
func Begin(n *v1alpha1.ValidatorNetwork, op v1alpha1.Operation, now time.Time) {
	if last := n.Status.LastOperation; last != nil {
		if last.Run.UID == op.Run.UID {
			op.StartedAt = last.StartedAt
		} else {
			archive(n, now, "ended without a word in step "+last.Step)
		}
	}
	if op.StartedAt == nil {
		t := metav1.NewTime(now)
		op.StartedAt = &t
	}
	op.Phase, op.FinishedAt = v1alpha1.OperationRunning, nil
	n.Status.LastOperation = &op
	n.Status.ObservedGeneration = n.Generation
	condition(n, v1alpha1.ConditionReconciling, true, "Operation", op.Type+" is running")
	condition(n, v1alpha1.ConditionStalled, false, "Operation", op.Type+" is running")
}

// archive moves the last operation to the history.
func archive(n *v1alpha1.ValidatorNetwork, now time.Time, ending string) {
	last := *n.Status.LastOperation
	if last.Phase == v1alpha1.OperationRunning {
		t := metav1.NewTime(now)
		last.Phase, last.FinishedAt, last.Message = v1alpha1.OperationFailed, &t, ending
	}
	n.Status.History = slices.Insert(n.Status.History, 0, last)
	n.Status.History = n.Status.History[:min(len(n.Status.History), maxHistory)]
}

// Reach records the step that the run is in; it returns false when that is
// known already or the operation isn't this run's.
func Reach(n *v1alpha1.ValidatorNetwork, uid, step string) bool {
	op := n.Status.LastOperation
	if op == nil || op.Run.UID != uid || (op.Step == step && op.Phase == v1alpha1.OperationRunning) {
		return false
	}
	op.Step, op.Phase, op.FinishedAt = step, v1alpha1.OperationRunning, nil
	return true
}

// Fail records that the run's operation failed in step. It returns false when
// the operation isn't this run's or has ended.
func Fail(n *v1alpha1.ValidatorNetwork, uid, step, reason, message string, now time.Time) bool {
	op := n.Status.LastOperation
	if op == nil || op.Run.UID != uid || op.Phase == v1alpha1.OperationSucceeded {
		return false
	}
	end(op, v1alpha1.OperationFailed, step, message, now)
	condition(n, v1alpha1.ConditionReconciling, false, reason, op.Message)
	condition(n, v1alpha1.ConditionStalled, true, reason, op.Message)
	return true
}

// Succeed records that the run's operation reached its goal.
func Succeed(n *v1alpha1.ValidatorNetwork, uid, step, message string, now time.Time) {
	if op := n.Status.LastOperation; op != nil && op.Run.UID == uid {
		end(op, v1alpha1.OperationSucceeded, step, message, now)
	}
	condition(n, v1alpha1.ConditionReconciling, false, "Succeeded", message)
	condition(n, v1alpha1.ConditionStalled, false, "Succeeded", message)
}

func end(op *v1alpha1.Operation, p v1alpha1.OperationPhase, step, message string, now time.Time) {
	t := metav1.NewTime(now)
	// A character that is cut in two would become a longer replacement.
	op.Phase, op.FinishedAt, op.Message = p, &t, strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
	if step != "" {
		op.Step = step
	}
}

// SetReady sets the Ready condition from facts.
func SetReady(n *v1alpha1.ValidatorNetwork, ready bool, reason, message string) {
	condition(n, v1alpha1.ConditionReady, ready, reason, message)
}

func condition(n *v1alpha1.ValidatorNetwork, t string, on bool, reason, message string) {
	s := metav1.ConditionFalse
	if on {
		s = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
		Type: t, Status: s, Reason: reason, Message: message, ObservedGeneration: n.Generation,
	})
}

// Entry returns the roster's entry of an ordinal, or nil.
func Entry(n *v1alpha1.ValidatorNetwork, ordinal int) *v1alpha1.RosterEntry {
	for i := range n.Status.Roster {
		if int(n.Status.Roster[i].Ordinal) == ordinal {
			return &n.Status.Roster[i]
		}
	}
	return nil
}

// Ensure returns the roster's entry of an ordinal, made in its place if need be.
func Ensure(n *v1alpha1.ValidatorNetwork, ordinal int) *v1alpha1.RosterEntry {
	if e := Entry(n, ordinal); e != nil {
		return e
	}
	i := sort.Search(len(n.Status.Roster), func(i int) bool { return int(n.Status.Roster[i].Ordinal) > ordinal })
	n.Status.Roster = slices.Insert(n.Status.Roster, i, v1alpha1.RosterEntry{Ordinal: int32(ordinal), State: "Unknown"})
	return &n.Status.Roster[i]
}

// Enroll records the public identities of validators; it returns false when
// the roster has them already.
func Enroll(n *v1alpha1.ValidatorNetwork, ids map[int]chain.Identity) (changed bool) {
	for o, id := range ids {
		e := Ensure(n, o)
		if e.Address != id.Address || e.Operator != id.Operator {
			e.Address, e.Operator, changed = id.Address, id.Operator, true
		}
	}
	return changed
}
