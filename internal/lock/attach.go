package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

// Attach finds the holding that an earlier step of the same run acquired. It
// only reads; the first renewal of Keep, or the first Check, makes it this
// step's. Errors are fault.LockLost, saying who took the lock or how it ended,
// and fault.Transient or fault.Config when that can't be found out.
func (l *Lock) Attach(ctx context.Context) (*Held, error) {
	if l.holder.Run.UID == "" {
		return nil, fault.New(fault.Config, "attach to lock %s: this run has no UID", l.name)
	}
	var h *Held
	err := retry.Do(ctx, retry.WithMaxDuration(l.renewal(), l.retries()), func(ctx context.Context) error {
		views := l.readAll(ctx, l.members)
		if err := l.enough(views); err != nil {
			return onlyTransient(err)
		}
		var err error
		h, err = l.attach(views)
		return onlyTransient(err)
	})
	if err != nil {
		return nil, fmt.Errorf("attach to lock %s: %w", l.name, err)
	}
	return h, nil
}

func (l *Lock) attach(views []view) (*Held, error) {
	var claims []claim
	for _, v := range answered(views) {
		ours := v.lock != nil && v.lock.Spec.Holder != nil && v.lock.Spec.Holder.Run.UID == l.holder.Run.UID
		claims = append(claims, claim{view: v, ours: ours})
	}
	ts := tokens(claims)
	if len(ts) == 0 {
		ts = []int64{l.lastToken(views)}
	}
	h := l.holding(ts[0])
	var stands []stand
	for _, c := range claims {
		s := stand{ours: heldBy(c.lock, l.holder.Run.UID, h.token), lock: c.lock}
		if s.ours {
			h.stakes[c.m].lock = c.lock
		}
		stands = append(stands, s)
	}
	for _, v := range views {
		if v.err != nil {
			stands = append(stands, stand{err: v.err})
		}
	}
	if err := h.weigh(stands); err != nil {
		return nil, err
	}
	return h, nil
}

// lastToken that this run held, as far as the locks remember.
func (l *Lock) lastToken(views []view) int64 {
	for _, v := range answered(views) {
		if v.lock == nil {
			continue
		}
		for _, p := range v.lock.Status.Previous {
			if p.Run.UID == l.holder.Run.UID {
				return p.Token
			}
		}
	}
	return 0
}

// lostTo explains a loss from the lock as it is now; nil means it was deleted.
func (h *Held) lostTo(now *v1alpha1.DeploymentLock) error {
	const again = "run again; what is done already is not done twice"
	what := "lock " + h.ID()
	if h.token == 0 {
		what = "lock " + h.l.name
	}
	p := h.traceIn(now)
	switch {
	case now == nil:
		return fault.New(fault.LockLost, "%s: its object was deleted while the run held it, perhaps with its namespace", what).Do(again)
	case now.Spec.Holder == nil && p == nil:
		return fault.New(fault.LockLost, "%s: this run doesn't hold it; it is free, last id %s", what, ID(h.l.name, now.Spec.Token)).
			Do("acquire-lock must run first in the same run")
	case now.Spec.Holder == nil:
		return fault.New(fault.LockLost, "%s: it %s", what, ended(*p)).Do(again)
	case p == nil:
		return fault.New(fault.LockLost, "%s: it is held by %s for %s, id %s", what, who(*now.Spec.Holder),
			or(now.Spec.Holder.Operation, "an unknown operation"), ID(h.l.name, now.Spec.Token)).Do(again)
	default:
		return fault.New(fault.LockLost, "%s: it %s; now it is held by %s for %s, id %s", what, ended(*p), who(*now.Spec.Holder),
			or(now.Spec.Holder.Operation, "an unknown operation"), ID(h.l.name, now.Spec.Token)).Do(again)
	}
}

// ended tells how a holding ended.
func ended(p v1alpha1.PreviousHolder) string {
	at := ""
	if p.EndedAt != nil {
		at = " at " + p.EndedAt.UTC().Format(time.RFC3339)
	}
	switch p.Ending {
	case endReleased:
		return "was released by its own run" + at
	case endForced:
		return "was forced open" + at + " by " + p.By
	default:
		return "was taken over" + at + " by " + p.By
	}
}
