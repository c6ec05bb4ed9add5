package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
)

// ForceUnlock ends the holding with that id, whoever has it. The token goes up,
// so that the holder is fenced even before anybody else comes. The lock keeps
// who did it and why, and the namespace gets an Event.
//
// Unlocking a holding that was forced open already is success. Errors are
// fault.Config for a missing reason or an id that is not the present holding's,
// and fault.Transient when no majority of the clusters could be reached.
func (l *Lock) ForceUnlock(ctx context.Context, id, reason string) error {
	token, err := l.parseID(id)
	if err != nil {
		return err
	}
	if reason = strings.TrimSpace(reason); reason == "" {
		return fault.New(fault.Config, "force-unlock %s: it needs a reason; it is kept in the lock", id)
	}
	ctx, cancel := context.WithTimeout(ctx, 4*l.requestTimeout())
	defer cancel()
	views := l.readAll(ctx, l.members)
	if err := l.enough(views); err != nil {
		return fmt.Errorf("force-unlock %s: %w", id, err)
	}
	info := l.info(views)
	switch {
	case info.Held && info.Token == token:
	case !info.Held && len(info.Previous) > 0 && info.Previous[0].Token == token && info.Previous[0].Ending == endForced:
		return nil
	default:
		return fault.New(fault.Config, "force-unlock %s: that is not the present holding: %s", id, info.line())
	}
	next, err := l.nextToken(ctx, views)
	if err != nil {
		return fmt.Errorf("force-unlock %s: %w", id, err)
	}
	by := who(l.holder) + ": " + reason
	if err := l.force(ctx, token, next, by); err != nil {
		return fmt.Errorf("force-unlock %s: %w", id, err)
	}
	l.log.Warn("lock was forced open", "id", id, "from", who(info.Holder), "by", by)
	l.event(ctx, fmt.Sprintf("%s was forced open; it was held by %s for %s; by %s",
		id, who(info.Holder), or(info.Holder.Operation, "an unknown operation"), by))
	return nil
}

func (l *Lock) force(ctx context.Context, token, next int64, by string) error {
	errs := each(ctx, l.members, func(ctx context.Context, m *member) error {
		o, err := m.get(ctx)
		if err != nil {
			return err
		}
		_, _, err = m.swap(ctx, o, func(now *v1alpha1.DeploymentLock) (*v1alpha1.DeploymentLock, error) {
			if now == nil || now.Spec.Token > token {
				return nil, nil // nothing of that holding is left here
			}
			o := now.DeepCopy()
			end(o, endForced, by, l.wall())
			o.Spec.Token = next
			return o, nil
		})
		return err
	}, func([]error) <-chan time.Time { return nil })
	n := 0
	for _, err := range errs {
		if err == nil {
			n++
		}
	}
	if n < l.quorum() {
		return fault.New(fault.Transient, "%d of %d clusters did it, %d are needed: %w", n, len(errs), l.quorum(), errors.Join(errs...))
	}
	return nil
}

// event tells the namespace of the first cluster that takes it. The audit entry
// is in the lock already, so a missing right to write Events is only logged.
func (l *Lock) event(ctx context.Context, message string) {
	var errs []error
	for _, m := range l.members {
		err := m.clients.Record(ctx, kube.Event{
			Regarding: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.LockKind.Kind, Name: l.name, Namespace: m.clients.Namespace},
			Type:      corev1.EventTypeWarning, Reason: "ForceUnlocked", Action: "force-unlock", Note: message,
		}, l.wall())
		if err == nil {
			return
		}
		errs = append(errs, err)
	}
	l.log.Warn("could not write an event", "error", errors.Join(errs...).Error())
}
