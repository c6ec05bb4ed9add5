package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sethvargo/go-retry"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

// Held is a lock that this run holds, or held. It is safe for concurrent use.
type Held struct {
	l     *Lock
	token int64
	base  time.Time // when this process learned that the run holds the lock

	renewing sync.Mutex // one round of renewals at a time
	stakes   map[*member]*stake

	mu       sync.Mutex
	over     error // why the holding is no more
	released bool
}

// stake is what a Held knows of one cluster.
type stake struct {
	writing sync.Mutex // a slow write must not meet the next one

	mu   sync.Mutex
	lock *v1alpha1.DeploymentLock // as last read or written here
	sent time.Time                // when the last renewal that succeeded was sent; zero if unknown
}

func (l *Lock) holding(token int64) *Held {
	h := &Held{l: l, token: token, base: l.clock.Now(), stakes: map[*member]*stake{}}
	for _, m := range l.members {
		h.stakes[m] = &stake{}
	}
	return h
}

// Token is the fencing token. Every effect carries it.
func (h *Held) Token() int64 { return h.token }

// ID names the holding in messages and for force-unlock, e.g. "demo-7".
func (h *Held) ID() string { return ID(h.l.name, h.token) }

// stand is what one cluster says about the holding.
type stand struct {
	ours bool
	lock *v1alpha1.DeploymentLock // when not ours; nil when deleted
	err  error                    // no answer
}

// errNotOurs ends a swap on a lock that this run doesn't hold.
var errNotOurs = errors.New("not held by this run")

// weigh turns the clusters' answers into one: nil, fault.LockLost, or
// fault.Transient when neither is certain.
func (h *Held) weigh(stands []stand) error {
	n, q := len(h.l.members), h.l.quorum()
	ours, others := 0, 0
	var last *v1alpha1.DeploymentLock
	var errs []error
	for _, s := range stands {
		switch {
		case s.ours:
			ours++
		case s.err != nil:
			errs = append(errs, s.err)
		default:
			others++
			if s.lock != nil && (last == nil || s.lock.Spec.Token > last.Spec.Token) {
				last = s.lock
			}
		}
	}
	switch {
	case ours >= q:
		return nil
	case others > n-q:
		return h.lostTo(last)
	default:
		errs = append(errs, fmt.Errorf("%d of %d clusters confirm it, %d are needed", ours, n, q))
		return fault.New(fault.Transient, "prove lock %s: %w", h.ID(), errors.Join(errs...))
	}
}

// decided stops the wait for clusters that can't change the outcome.
func (h *Held) decided(stands []stand) <-chan time.Time {
	ours, others := 0, 0
	for _, s := range stands {
		if s.ours {
			ours++
		} else if s.err == nil {
			others++
		}
	}
	if ours >= h.l.quorum() || others > len(h.l.members)-h.l.quorum() {
		return atOnce()
	}
	return nil
}

// note remembers the first reason why the holding is over.
func (h *Held) note(err error) error {
	if !fault.Is(err, fault.LockLost) {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over == nil {
		h.over = err
	}
	return h.over
}

func (h *Held) ended() (err error, released bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over, h.released
}

// renewed is the time from which the holding's TTL runs: others can't have seen
// a majority of the clusters stand still since an earlier one. Zero if unknown.
func (h *Held) renewed() time.Time {
	var sent []time.Time
	for _, s := range h.stakes {
		s.mu.Lock()
		sent = append(sent, s.sent)
		s.mu.Unlock()
	}
	slices.SortFunc(sent, func(a, b time.Time) int { return b.Compare(a) })
	return sent[h.l.quorum()-1]
}

// Deadline is when the holding stops to count unless it is renewed, on this
// process' monotonic clock.
func (h *Held) Deadline() time.Time {
	if r := h.renewed(); !r.IsZero() {
		return r.Add(h.l.grace())
	}
	return h.base.Add(h.l.grace())
}

// Check proves that the token is still the lock's, by a fresh read of a majority
// of the clusters; when the last renewal is more than a renewal period ago, by
// renewing. Call it right before every effect that can't carry the token in a
// way its receiver checks.
//
// Troubles of the API are tried again until Deadline, at least once. Errors are
// fault.LockLost, saying who took the lock and why, or the context's.
func (h *Held) Check(ctx context.Context) error {
	if err, _ := h.ended(); err != nil {
		return err
	}
	deadline := h.Deadline()
	err := retry.Do(ctx, h.l.retries(), func(ctx context.Context) error {
		err := h.prove(ctx)
		if fault.Is(err, fault.Transient) && h.l.clock.Now().Before(deadline) {
			return retry.RetryableError(err)
		}
		return err
	})
	switch {
	case err == nil, fault.Is(err, fault.LockLost):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("prove lock %s: %w", h.ID(), context.Cause(ctx))
	default:
		return h.note(h.silenced(err))
	}
}

// silenced is the loss of a lock that nobody is known to have taken.
func (h *Held) silenced(err error) error {
	return fault.New(fault.LockLost, "lock %s: it could not be proven or renewed for %s, so others may have it: %w", h.ID(), span(h.l.grace()), err).
		Do("run again; what is done already is not done twice")
}

// retries is the pace of tries after API troubles; the caller bounds them.
func (l *Lock) retries() retry.Backoff {
	pace := min(time.Second, l.ttl/30)
	return retry.WithMaxDuration(l.ttl, retry.WithJitterPercent(30, retry.WithCappedDuration(pace, retry.NewFibonacci(pace/8+1))))
}

func (h *Held) prove(ctx context.Context) error {
	if r := h.renewed(); r.IsZero() || h.l.clock.Since(r) >= h.l.renewal() {
		return h.renew(ctx)
	}
	return h.note(h.weigh(each(ctx, h.l.members, func(ctx context.Context, m *member) stand {
		v := m.read(ctx)
		if v.err != nil {
			return stand{err: v.err}
		}
		return stand{ours: heldBy(v.lock, h.l.holder.Run.UID, h.token), lock: v.lock}
	}, h.decided)))
}

// renew writes a renewal to every cluster at once and returns when a majority
// has decided.
func (h *Held) renew(ctx context.Context) error {
	h.renewing.Lock()
	defer h.renewing.Unlock()
	if err, _ := h.ended(); err != nil {
		return err
	}
	safe := !h.renewed().IsZero()
	return h.note(h.weigh(each(ctx, h.l.members, func(ctx context.Context, m *member) stand {
		return h.renewIn(ctx, m, safe)
	}, h.decided)))
}

// renewIn renews in one cluster. When join is set, it also takes a member that
// this holding doesn't have yet: one that was away, or whose object was deleted.
func (h *Held) renewIn(ctx context.Context, m *member, join bool) stand {
	s := h.stakes[m]
	if !s.writing.TryLock() {
		return stand{err: fault.New(fault.Transient, "cluster %s: the last renewal has no answer yet", m.name)}
	}
	defer s.writing.Unlock()
	s.mu.Lock()
	current := s.lock
	s.mu.Unlock()
	if current == nil {
		o, err := m.get(ctx)
		if err != nil {
			return stand{err: err}
		}
		current = o
	}
	o, sent, err := m.swap(ctx, current, func(now *v1alpha1.DeploymentLock) (*v1alpha1.DeploymentLock, error) {
		return h.renewal(now, join && len(h.l.members) > 1)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.lock, s.sent = o, sent
		return stand{ours: true}
	case errors.Is(err, errNotOurs):
		s.lock, s.sent = nil, time.Time{}
		return stand{lock: o}
	default:
		s.lock = nil
		return stand{err: err}
	}
}

// renewal is the object to write for one more renewal.
func (h *Held) renewal(now *v1alpha1.DeploymentLock, join bool) (*v1alpha1.DeploymentLock, error) {
	l := h.l
	if _, released := h.ended(); released {
		return nil, errNotOurs
	}
	switch {
	case heldBy(now, l.holder.Run.UID, h.token):
		o := now.DeepCopy()
		holder, at := l.holder, metav1.NewMicroTime(l.wall())
		o.Spec.Holder, o.Spec.RenewedAt, o.Spec.TTLSeconds = &holder, &at, int32(l.ttl/time.Second)
		o.Spec.Renewals++
		return o, nil
	case join && now == nil:
		o := new(v1alpha1.DeploymentLock)
		l.write(o, h.token)
		return o, nil
	case join && now.Spec.Holder == nil && now.Spec.Token < h.token && now.Spec.Generation <= l.generation:
		o := now.DeepCopy()
		l.write(o, h.token)
		return o, nil
	}
	return nil, errNotOurs
}

// Keep renews the lock in the background until stop is called or ctx ends. The
// returned context is cancelled with a fault.LockLost as its cause when the lock
// is lost: at the first renewal that shows it, or at Deadline when no renewal
// succeeds until then. After stop no renewal begins; it doesn't release.
func (h *Held) Keep(ctx context.Context) (kept context.Context, stop func()) {
	kept, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.keep(kept); err != nil {
			cancel(err)
		}
	}()
	return kept, func() {
		cancel(context.Canceled)
		<-done
	}
}

// keep returns the loss, or nil when ctx ended or the lock was released.
func (h *Held) keep(ctx context.Context) error {
	failing := false
	for {
		pause := time.Duration(0)
		if r := h.renewed(); !r.IsZero() {
			pause = h.l.renewal() - h.l.clock.Since(r)
		}
		if failing {
			pause = jitter(min(2*time.Second, h.l.ttl/30))
		}
		if !h.pause(ctx, pause) {
			return nil
		}
		err := h.renewBefore(ctx, h.Deadline())
		_, released := h.ended()
		switch {
		case released || ctx.Err() != nil:
			return nil //nolint:nilerr // whatever failed, nobody needs the lock any more
		case err == nil:
			if failing {
				h.l.log.Info("lock renewed again", "id", h.ID())
			}
			failing = false
		case fault.Is(err, fault.LockLost):
			return err
		case !h.l.clock.Now().Before(h.Deadline()):
			return h.note(h.silenced(err))
		default:
			if !failing {
				h.l.log.Warn("lock renewal failed, trying on", "id", h.ID(), "error", err.Error(), "left", span(h.Deadline().Sub(h.l.clock.Now())))
			}
			failing = true
		}
	}
}

// renewBefore gives a renewal until the deadline; a process that slept through
// the deadline gets one request's time to find out that nobody else came.
func (h *Held) renewBefore(ctx context.Context, deadline time.Time) error {
	left := deadline.Sub(h.l.clock.Now())
	if left <= 0 {
		left = h.l.requestTimeout()
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return h.renew(ctx)
}

func (h *Held) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := h.l.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}

// Release frees the lock and records the holding. It does nothing, without an
// error, when this run has released it already. It never frees a lock that is
// not this holding's: then the error is fault.LockLost. Troubles of the API are
// tried again for a sixth of the TTL. A cluster that gives no answer keeps a stale
// entry until the run is over or the TTL is.
func (h *Held) Release(ctx context.Context) error {
	h.renewing.Lock() // a renewal must not mistake the release for a loss
	defer h.renewing.Unlock()
	if _, released := h.ended(); released {
		return nil
	}
	err := retry.Do(ctx, retry.WithMaxDuration(h.l.ttl/6, h.l.retries()), func(ctx context.Context) error {
		return onlyTransient(h.releaseOnce(ctx))
	})
	if err != nil {
		return fmt.Errorf("release lock %s: %w", h.ID(), err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = true
	if h.over == nil {
		h.over = fault.New(fault.LockLost, "lock %s: this run has released it", h.ID())
	}
	return nil
}

func (h *Held) releaseOnce(ctx context.Context) error {
	straggle := min(time.Second, h.l.requestTimeout())
	stands := each(ctx, h.l.members, h.releaseIn, func(stands []stand) <-chan time.Time {
		if h.decided(stands) == nil {
			return nil
		}
		return h.l.clock.After(straggle)
	})
	if err := h.weigh(stands); err != nil {
		return err
	}
	for _, s := range stands {
		if s.err != nil {
			h.l.log.Warn("a cluster keeps the released lock until its TTL is over", "id", h.ID(), "error", s.err.Error())
		}
	}
	return nil
}

// releaseIn frees one cluster's lock; ours means that it is free now.
func (h *Held) releaseIn(ctx context.Context, m *member) stand {
	s := h.stakes[m]
	s.writing.Lock() // a renewal that is late must not come after the release
	defer s.writing.Unlock()
	s.mu.Lock()
	current := s.lock
	s.mu.Unlock()
	if current == nil {
		o, err := m.get(ctx)
		if err != nil {
			return stand{err: err}
		}
		current = o
	}
	o, _, err := m.swap(ctx, current, func(now *v1alpha1.DeploymentLock) (*v1alpha1.DeploymentLock, error) {
		if !heldBy(now, h.l.holder.Run.UID, h.token) {
			return nil, errNotOurs
		}
		o := now.DeepCopy()
		end(o, endReleased, "", h.l.wall())
		return o, nil
	})
	switch {
	case err == nil:
		return stand{ours: true}
	case errors.Is(err, errNotOurs):
		p := h.traceIn(o)
		return stand{ours: p != nil && p.Ending == endReleased, lock: o}
	default:
		return stand{err: err}
	}
}

// traceIn is the entry about this holding among the previous ones.
func (h *Held) traceIn(o *v1alpha1.DeploymentLock) *v1alpha1.PreviousHolder {
	if o == nil {
		return nil
	}
	for i, p := range o.Status.Previous {
		if p.Token == h.token && p.Run.UID == h.l.holder.Run.UID {
			return &o.Status.Previous[i]
		}
	}
	return nil
}
