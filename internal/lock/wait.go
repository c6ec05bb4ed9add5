package lock

import (
	"context"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// waiter wakes an Acquire early. The watches make it fast; the poll of Acquire
// itself is what correctness rests on, so that a watch may end or hang freely.
type waiter struct {
	l        *Lock
	cancel   context.CancelFunc
	ctx      context.Context
	watching bool
	changed  chan struct{}
	reported time.Time
}

func (l *Lock) newWaiter(ctx context.Context) *waiter {
	ctx, cancel := context.WithCancel(ctx)
	return &waiter{l: l, ctx: ctx, cancel: cancel, changed: make(chan struct{}, 1)}
}

func (w *waiter) stop() { w.cancel() }

// report logs the holder at the first wait and then every reportEvery.
func (w *waiter) report(info Info, waited, wait time.Duration) {
	now := w.l.clock.Now()
	if !w.reported.IsZero() && now.Sub(w.reported) < reportEvery {
		return
	}
	w.reported = now
	w.l.log.Info("waiting for the lock", "id", info.ID, "holder", who(info.Holder),
		"operation", info.Holder.Operation, "step", info.Holder.Step,
		"since", stamp(info.AcquiredAt), "renewed", stamp(info.RenewedAt), "expiresIn", info.expiry(),
		"waited", span(waited), "left", span(wait-waited))
}

// sleep waits for d, for a change when watched, or for the end of ctx.
func (w *waiter) sleep(ctx context.Context, d time.Duration, watched bool) error {
	if watched && !w.watching {
		w.watching = true
		for _, m := range w.l.members {
			go w.watch(m)
		}
	}
	t := w.l.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C():
		return nil
	case <-w.changed:
		// Everybody who waits wakes now; come a little apart.
		s := w.l.clock.NewTimer(rand.N(min(50*time.Millisecond, w.l.ttl/50)))
		defer s.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.C():
			return nil
		}
	}
}

// watch reports that the lock of one cluster became free, changed hands, or was
// deleted. A request ends after kube.RequestTimeout, a watch too; the first event
// of the next one shows what happened in between.
func (w *waiter) watch(m *member) {
	token := int64(-1)
	for w.ctx.Err() == nil {
		selector := fields.OneTermEqualSelector("metadata.name", w.l.name).String()
		begun := w.l.clock.Now()
		stream, err := m.objects.Watch(w.ctx, metav1.ListOptions{FieldSelector: selector})
		if err == nil {
			token = w.follow(stream, token)
		}
		// A watch that didn't last is a sign of trouble: don't add to it.
		pause := w.l.poll()
		if err == nil && w.l.clock.Since(begun) > time.Second {
			pause = jitter(10 * time.Millisecond)
		}
		t := w.l.clock.NewTimer(pause)
		select {
		case <-w.ctx.Done():
		case <-t.C():
		}
		t.Stop()
	}
}

// follow reads events until the watch ends. It gets and returns the token last
// seen, negative for none yet.
func (w *waiter) follow(stream watch.Interface, token int64) int64 {
	defer stream.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return token
		case e, open := <-stream.ResultChan():
			if !open || e.Type == watch.Error {
				return token
			}
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			now, _, _ := unstructured.NestedInt64(u.Object, "spec", "token")
			_, held, _ := unstructured.NestedMap(u.Object, "spec", "holder")
			renewed := e.Type != watch.Deleted && held && (token < 0 || now == token)
			if token = now; renewed {
				continue
			}
			select {
			case w.changed <- struct{}{}:
			default: // a wake-up is on its way already
			}
		}
	}
}
