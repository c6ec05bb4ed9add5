package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

// How a holding may end; the values are the CRD's.
const (
	endReleased = "Released"
	endExpired  = "Expired"
	endRunGone  = "RunGone"
	endForced   = "Forced"
)

// reportEvery is how often a waiter says whom it waits for.
const reportEvery = 15 * time.Second

// patience is how many tries a lost race or an API in trouble is worth beyond wait.
const patience = 5

// errContended is a race for a free lock that another run won.
var errContended = errors.New("another run was faster")

// Acquire takes the lock. With wait zero it tries once; else it waits that long
// for the holder to end, and says regularly whom it waits for. Lost races and
// short API troubles are tried again in both cases.
//
// For a run that holds the lock already, it returns that holding.
//
// Errors are fault.LockBusy with a *BusyError that tells all about the holder,
// fault.Transient when too few clusters answer, and fault.Config when a retry
// can't help (a right is missing, the namespace is being deleted, the member
// list is not the one in force).
func (l *Lock) Acquire(ctx context.Context, wait time.Duration) (*Held, error) {
	if l.holder.Run.UID == "" {
		return nil, fault.New(fault.Config, "acquire lock %s: this run has no UID", l.name)
	}
	start := l.clock.Now()
	w := l.newWaiter(ctx)
	defer w.stop()
	tries := retry.WithMaxRetries(patience, retry.WithJitterPercent(50, retry.WithCappedDuration(time.Second, retry.NewExponential(50*time.Millisecond))))
	var busy *Info
	for {
		held, info, err := l.try(ctx)
		if held != nil {
			return held, nil
		}
		if info != nil {
			busy = info
		}
		waited := l.clock.Since(start)
		pause := l.poll()
		switch {
		case err != nil && !errors.Is(err, errContended) && !fault.Is(err, fault.Transient):
			return nil, err
		case err != nil:
			// A race or a trouble, not a holder: worth a few quick tries of its own.
			if d, stop := tries.Next(); !stop {
				pause = d
				break
			}
			if waited >= wait {
				return nil, l.gaveUp(ctx, busy, waited, err)
			}
		case waited >= wait:
			return nil, l.refusal(busy, waited)
		default:
			w.report(*info, waited, wait)
			pause = min(pause, max(wait-waited, 0))
			if info.expiresIn > 0 {
				pause = min(pause, info.expiresIn+rand.N(50*time.Millisecond))
			}
		}
		if err := w.sleep(ctx, pause, info != nil); err != nil {
			return nil, l.interrupted(busy, err)
		}
	}
}

// gaveUp explains a try that ended in trouble or in one lost race too many.
func (l *Lock) gaveUp(ctx context.Context, busy *Info, waited time.Duration, err error) error {
	if errors.Is(err, errContended) {
		if info, ierr := l.Inspect(ctx); ierr == nil && info.Held {
			return l.refusal(&info, waited)
		}
		return fault.New(fault.LockBusy, "acquire lock %s: %w, %d times in a row", l.name, err, patience).Do("try again")
	}
	if busy != nil {
		return fmt.Errorf("acquire lock %s: %w; last seen: %s", l.name, err, busy.line())
	}
	return fmt.Errorf("acquire lock %s: %w", l.name, err)
}

func (l *Lock) interrupted(busy *Info, err error) error {
	if busy != nil {
		return fmt.Errorf("wait for lock %s: %w; last seen: %s", l.name, err, busy.line())
	}
	return fmt.Errorf("acquire lock %s: %w", l.name, err)
}

// claim is what a contender may do with one cluster's lock.
type claim struct {
	view
	take   bool   // free, ours, or its holder is over
	ours   bool   // our run's, whatever the token
	ending string // how the holding ended that a take ends
	why    string
}

// judge decides about one answer. It asks for the holder's run last, because
// that is a request.
func (l *Lock) judge(ctx context.Context, v view, runs map[string]verdict) claim {
	c := claim{view: v}
	switch {
	case v.err != nil:
	case v.lock == nil || v.lock.Spec.Holder == nil:
		c.take = true
	case v.lock.Spec.Holder.Run.UID == l.holder.Run.UID:
		c.take, c.ours = true, true
	case v.still >= ttlOf(v.lock):
		c.take, c.ending = true, endExpired
		c.why = fmt.Sprintf("it was silent for %s, its TTL is %s", span(v.still), span(ttlOf(v.lock)))
	default:
		uid := v.lock.Spec.Holder.Run.UID
		r, asked := runs[uid]
		if !asked {
			r.over, r.how = l.over(ctx, v)
			runs[uid] = r
		}
		if r.over {
			c.take, c.ending, c.why = true, endRunGone, r.how
		}
	}
	return c
}

// verdict is the answer to "is that run over?".
type verdict struct {
	over bool
	how  string
}

func ttlOf(o *v1alpha1.DeploymentLock) time.Duration {
	return time.Duration(o.Spec.TTLSeconds) * time.Second
}

// try makes one attempt. It returns a Held, or an Info about who is in the way,
// or an error.
func (l *Lock) try(ctx context.Context) (*Held, *Info, error) {
	views := l.readAll(ctx, l.members)
	if err := l.enough(views); err != nil {
		return nil, nil, err
	}
	plan, err := l.membership(ctx, views)
	if err != nil {
		return nil, nil, err
	}
	runs := map[string]verdict{}
	var claims []claim
	takeable := 0
	for _, v := range views {
		c := l.judge(ctx, v, runs)
		if c.take {
			takeable++
		}
		claims = append(claims, c)
	}
	if h, err := l.reenter(ctx, claims, plan); h != nil || err != nil {
		return h, nil, err
	}
	var retired []claim
	for _, v := range plan.retired {
		retired = append(retired, l.judge(ctx, v, runs))
	}
	switch free := plan.outvoted(slices.Concat(claims, retired)); {
	case takeable < plan.need, !free && len(answered(plan.retired)) == len(plan.retired):
		info := l.info(slices.Concat(views, plan.retired))
		return nil, &info, nil
	case !free:
		return nil, nil, l.unanswered("clusters that leave the member list", plan.retired, "a majority of the old list is needed once")
	}
	token, err := l.nextToken(ctx, slices.Concat(views, plan.retired))
	if err != nil {
		return nil, nil, err
	}
	h, err := l.take(ctx, claims, retired, plan, token)
	return h, nil, err
}

// enough reports the clusters that gave no answer when they are too many.
func (l *Lock) enough(views []view) error {
	missing := len(views) - len(answered(views))
	if len(views)-missing >= l.quorum() {
		return nil
	}
	if len(l.members) == 1 {
		return views[0].err
	}
	return l.unanswered("member clusters", views, fmt.Sprintf("%d are needed", l.quorum()))
}

// unanswered names every cluster that gave no answer, and why.
func (l *Lock) unanswered(what string, views []view, need string) error {
	var errs []error
	code := fault.Transient
	for _, v := range views {
		if v.err != nil {
			errs = append(errs, v.err)
		}
		if v.err != nil && !fault.Is(v.err, fault.Transient) {
			code = fault.CodeOf(v.err) // no use in trying again
		}
	}
	return fault.New(code, "%d of %d %s gave no answer, %s: %w", len(errs), len(views), what, need, errors.Join(errs...))
}

// nextToken is above every token that any reached cluster or the network knows.
func (l *Lock) nextToken(ctx context.Context, views []view) (int64, error) {
	var top int64
	for _, v := range answered(views) {
		if v.lock != nil {
			top = max(top, v.lock.Spec.Token)
		}
	}
	if l.floor != nil {
		floor, err := l.floor(ctx)
		if err != nil {
			return 0, fmt.Errorf("read the highest token the network remembers: %w", err)
		}
		top = max(top, floor)
	}
	return top + 1, nil
}

// reenter returns the holding that this run has already, after writing the
// present step, host and pod into it; nil when it has none.
func (l *Lock) reenter(ctx context.Context, claims []claim, p plan) (*Held, error) {
	if p.founding {
		return nil, nil
	}
	for _, token := range tokens(claims) {
		h, n := l.holding(token), 0
		for _, c := range claims {
			if c.ours && c.lock.Spec.Token == token {
				h.stakes[c.m].lock = c.lock
				n++
			}
		}
		if n < l.quorum() {
			continue
		}
		switch err := h.renew(ctx); {
		case fault.Is(err, fault.LockLost):
			return nil, errContended
		case err != nil:
			return nil, err
		default:
			return h, nil
		}
	}
	return nil, nil
}

// tokens of this run's own claims, highest first.
func tokens(claims []claim) []int64 {
	var ts []int64
	for _, c := range claims {
		if c.ours {
			ts = append(ts, c.lock.Spec.Token)
		}
	}
	slices.Sort(ts)
	slices.Reverse(ts)
	return slices.Compact(ts)
}

// take writes token into the members in sorted order, so that contenders meet
// in the same cluster first, and stops as soon as it can't win any more. Who
// loses gives back what it took.
func (l *Lock) take(ctx context.Context, claims, retired []claim, p plan, token int64) (*Held, error) {
	h := l.holding(token)
	var touched []*member
	var taken []claim
	var lost []error
	won, left := 0, 0
	for _, c := range claims {
		if c.take {
			left++
		}
	}
	for _, c := range claims {
		if !c.take {
			continue
		}
		if won+left < p.need {
			break
		}
		left--
		touched = append(touched, c.m)
		o, sent, err := c.m.swap(ctx, c.lock, l.acquisition(c, token))
		if err != nil {
			lost = append(lost, err)
			continue
		}
		s := h.stakes[c.m]
		s.lock, s.sent = o, sent
		won++
		taken = append(taken, c)
		if c.ending != "" {
			l.log.Info("took over the lock", "id", ID(l.name, token), "cluster", c.m.name, "from", who(*c.lock.Spec.Holder), "because", c.why)
		}
	}
	for _, c := range retired {
		if won < p.need || !c.take {
			continue
		}
		if _, _, err := c.m.swap(ctx, c.lock, l.retirement(c, token)); err != nil {
			lost = append(lost, err)
			continue
		}
		taken = append(taken, c)
	}
	if won >= p.need && p.outvoted(taken) {
		return h, nil
	}
	l.giveBack(ctx, touched, token)
	if len(lost) == 0 {
		return nil, errContended
	}
	for _, err := range lost {
		// What a retry can't help is worth more words than a lost race.
		if !errors.Is(err, errContended) && !errors.Is(err, errMoved) {
			return nil, err
		}
	}
	return nil, errContended
}

// acquisition writes our holding over what c saw. Anything else than what c saw
// is a lost race, except our own write whose answer was lost.
func (l *Lock) acquisition(c claim, token int64) change {
	return func(now *v1alpha1.DeploymentLock) (*v1alpha1.DeploymentLock, error) {
		switch {
		case heldBy(now, l.holder.Run.UID, token):
			return nil, nil
		case !same(now, c.lock):
			return nil, errContended
		}
		o := new(v1alpha1.DeploymentLock)
		if now != nil {
			o = now.DeepCopy()
		}
		if c.ending != "" {
			end(o, c.ending, who(l.holder)+": "+c.why, l.wall())
		}
		l.write(o, token)
		return o, nil
	}
}

func same(a, b *v1alpha1.DeploymentLock) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion
}

// write makes o our holding with token.
func (l *Lock) write(o *v1alpha1.DeploymentLock, token int64) {
	now := metav1.NewMicroTime(l.wall())
	holder := l.holder
	o.Spec = v1alpha1.DeploymentLockSpec{
		Holder: &holder, Token: token, TTLSeconds: int32(l.ttl / time.Second),
		AcquiredAt: &now, RenewedAt: &now, Generation: l.generation, Members: l.names,
	}
}

// retirement tells a cluster that left the member list, so that runs with the
// old list are refused.
func (l *Lock) retirement(c claim, token int64) change {
	return func(now *v1alpha1.DeploymentLock) (*v1alpha1.DeploymentLock, error) {
		switch {
		case now != nil && now.Spec.Holder == nil && now.Spec.Generation == l.generation:
			return nil, nil
		case !same(now, c.lock):
			return nil, errContended
		}
		o := new(v1alpha1.DeploymentLock)
		if now != nil {
			o = now.DeepCopy()
		}
		end(o, c.ending, who(l.holder)+": "+c.why, l.wall())
		o.Spec.Token, o.Spec.Generation, o.Spec.Members = token, l.generation, l.names
		return o, nil
	}
}

// giveBack frees what a loser took. A cluster that doesn't answer keeps it
// until the run is over or the TTL is.
func (l *Lock) giveBack(ctx context.Context, members []*member, token int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*l.requestTimeout())
	defer cancel()
	each(ctx, members, func(ctx context.Context, m *member) error {
		o, err := m.get(ctx)
		if err != nil || !heldBy(o, l.holder.Run.UID, token) {
			return err
		}
		_, _, err = m.swap(ctx, o, func(now *v1alpha1.DeploymentLock) (*v1alpha1.DeploymentLock, error) {
			if !heldBy(now, l.holder.Run.UID, token) {
				return nil, nil
			}
			o := now.DeepCopy()
			o.Spec.Holder, o.Spec.AcquiredAt, o.Spec.RenewedAt, o.Spec.Renewals = nil, nil, nil, 0
			return o, nil
		})
		if err != nil {
			l.log.Warn("could not give back the lock", "cluster", m.name, "error", err.Error())
		}
		return err
	}, func([]error) <-chan time.Time { return nil })
}

// who names a holder in one line.
func who(h v1alpha1.Holder) string {
	s := or(h.User, "somebody")
	if h.Host != "" {
		s += "@" + h.Host
	}
	var in []string
	if h.Pod != "" {
		in = append(in, "pod "+h.Pod)
	}
	if h.Run.Kind != "" && h.Run.Name != h.Pod {
		in = append(in, h.Run.Kind+" "+h.Run.Name)
	}
	if len(in) == 0 && h.Run.UID != "" {
		in = append(in, "run "+h.Run.UID)
	}
	if len(in) == 0 {
		return s
	}
	return s + " (" + strings.Join(in, ", ") + ")"
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
