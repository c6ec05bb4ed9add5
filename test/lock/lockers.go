package lock

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/lock"
)

// locker is a lock as one run sees it.
type locker interface {
	Acquire(ctx context.Context, wait time.Duration) (holding, error)
}

// holding is a lock that a run holds, or held.
type holding interface {
	Token() int64
	Check(context.Context) error
	Keep(context.Context) (context.Context, func())
	Release(context.Context) error
	// Renewed is when the holding's TTL began.
	Renewed() time.Time
}

// genuine is the product's lock.
type genuine struct {
	*lock.Lock
	ttl time.Duration
}

// Acquire implements locker.
func (r genuine) Acquire(ctx context.Context, wait time.Duration) (holding, error) {
	h, err := r.Lock.Acquire(ctx, wait)
	if err != nil {
		return nil, err
	}
	return realHolding{Held: h, ttl: r.ttl}, nil
}

type realHolding struct {
	*lock.Held
	ttl time.Duration
}

// Renewed follows from what Deadline promises: two thirds of the TTL later.
func (h realHolding) Renewed() time.Time { return h.Deadline().Add(-h.ttl * 2 / 3) }

// wallClock is a lock that is broken on purpose: it compares the holder's clock
// with its own. Everything else about it is right: compare-and-swap, tokens.
type wallClock struct {
	objects dynamic.ResourceInterface
	name    string
	run     string
	ttl     time.Duration
	wall    func() time.Time
}

// Acquire implements locker.
func (w *wallClock) Acquire(ctx context.Context, wait time.Duration) (holding, error) {
	for start := time.Now(); ; {
		h, err := w.try(ctx)
		if err == nil || time.Since(start) >= wait {
			return h, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(w.ttl / 10):
		}
	}
}

func (w *wallClock) try(ctx context.Context) (holding, error) {
	o, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	if s := o.Spec; s.Holder != nil && w.wall().Sub(s.RenewedAt.Time) < w.ttl {
		return nil, fault.New(fault.LockBusy, "held")
	}
	h := &wallClockHolding{w: w, token: o.Spec.Token + 1}
	o.Spec.Token, o.Spec.TTLSeconds = h.token, int32(w.ttl/time.Second)
	o.Spec.Holder = &v1alpha1.Holder{Run: v1alpha1.RunReference{UID: w.run}}
	err = h.write(ctx, o)
	return h, err
}

func (w *wallClock) read(ctx context.Context) (*v1alpha1.DeploymentLock, error) {
	ctx, cancel := context.WithTimeout(ctx, w.ttl)
	defer cancel()
	o := new(v1alpha1.DeploymentLock)
	u, err := w.objects.Get(ctx, w.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return o, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o)
}

type wallClockHolding struct {
	w       *wallClock
	token   int64
	renewed time.Time
}

func (h *wallClockHolding) write(ctx context.Context, o *v1alpha1.DeploymentLock) error {
	now := metav1.NewMicroTime(h.w.wall())
	o.Spec.RenewedAt = &now
	o.Spec.Renewals++
	c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.w.ttl)
	defer cancel()
	sent := time.Now()
	if _, err = h.w.objects.Update(ctx, &unstructured.Unstructured{Object: c}, metav1.UpdateOptions{}); err == nil {
		h.renewed = sent
	}
	return err
}

// Token implements holding.
func (h *wallClockHolding) Token() int64 { return h.token }

// Renewed implements holding.
func (h *wallClockHolding) Renewed() time.Time { return h.renewed }

func (h *wallClockHolding) held(ctx context.Context) (*v1alpha1.DeploymentLock, error) {
	o, err := h.w.read(ctx)
	if err == nil && (o.Spec.Holder == nil || o.Spec.Token != h.token) {
		err = fault.New(fault.LockLost, "lost")
	}
	return o, err
}

// Check implements holding; it renews, too.
func (h *wallClockHolding) Check(ctx context.Context) error {
	o, err := h.held(ctx)
	if err != nil {
		return err
	}
	return h.write(ctx, o)
}

// Keep renews at every Check instead.
func (h *wallClockHolding) Keep(ctx context.Context) (context.Context, func()) {
	return ctx, func() {}
}

// Release implements holding.
func (h *wallClockHolding) Release(ctx context.Context) error {
	o, err := h.held(ctx)
	if err != nil {
		return err
	}
	o.Spec.Holder = nil
	return h.write(ctx, o)
}

// target is what the lock protects.
type target interface {
	// apply makes an effect with a token. It returns errRefused when a higher
	// token was there before, and where the effect stands in the order of all.
	apply(ctx context.Context, token int64) (order int64, err error)
}

var errRefused = errors.New("refused: a higher token was there before")
