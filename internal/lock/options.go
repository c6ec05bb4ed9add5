package lock

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
)

// Bounds of a lock's TTL. The lower one is for tests; the ValidatorNetwork
// allows nothing below five seconds.
const (
	DefaultTTL = 180 * time.Second
	MinTTL     = time.Second
	MaxTTL     = time.Hour
)

// Options configure a Lock.
type Options struct {
	// Clients of the only cluster. Exactly one of Clients and Members is set.
	Clients *kube.Clients
	// Members are the clients of every cluster that the lock may have to reach, by
	// name. More than Names is allowed: a cluster that is leaving the list must
	// still be reached once.
	Members map[string]*kube.Clients
	// Names of the member clusters in force; all keys of Members when empty.
	Names []string
	// Generation of Names. Another list needs a higher one. Zero counts as one
	// when there are Members.
	Generation int64

	// Name of the DeploymentLock, in the namespace of each cluster's clients.
	Name string
	// TTL is how long a holder may stay silent; whole seconds, DefaultTTL when zero.
	TTL time.Duration
	// Holder describes this run; Run.UID identifies it.
	Holder v1alpha1.Holder
	// Floor returns the highest token that the ValidatorNetwork remembers, so that
	// a lock that was deleted doesn't start again from one. It is called once for
	// an acquisition that isn't re-entrant. May be nil.
	Floor func(context.Context) (int64, error)

	// Logger for waits, takeovers and clusters in trouble. Discards when nil.
	Logger *slog.Logger
	// Clock measures time spans and must not jump. The real one when nil.
	Clock clock.Clock
	// Wall tells the time of day that is written for people. time.Now when nil.
	Wall func() time.Time
}

// Lock is one deployment's lock as one run sees it. It is safe for concurrent use.
type Lock struct {
	name       string
	members    []*member // in force, sorted by name
	retired    []*member // known, but not in force
	names      []string  // of members; empty for a single cluster
	generation int64
	ttl        time.Duration
	holder     v1alpha1.Holder
	floor      func(context.Context) (int64, error)
	log        *slog.Logger
	clock      clock.Clock
	wall       func() time.Time

	mu         sync.Mutex
	unreadable map[string]bool // runs that this lock already said it can't look up
	trouble    map[string]bool // clusters that this lock already said are in trouble
}

// New validates the options. It makes no request. Errors are fault.Config.
func New(o Options) (*Lock, error) {
	l := &Lock{
		name: o.Name, ttl: o.TTL, holder: o.Holder, floor: o.Floor, log: o.Logger, clock: o.Clock, wall: o.Wall,
		unreadable: map[string]bool{}, trouble: map[string]bool{},
	}
	if l.ttl == 0 {
		l.ttl = DefaultTTL
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.log = l.log.With("lock", o.Name)
	if l.clock == nil {
		l.clock = clock.RealClock{}
	}
	if l.wall == nil {
		l.wall = time.Now
	}
	switch {
	case o.Name == "":
		return nil, fault.New(fault.Config, "make lock: it has no name")
	case l.ttl < MinTTL || l.ttl > MaxTTL || l.ttl%time.Second != 0:
		return nil, fault.New(fault.Config, "make lock %s: TTL %s is not a whole number of seconds from %s to %s", o.Name, l.ttl, MinTTL, MaxTTL)
	case (o.Clients == nil) == (len(o.Members) == 0):
		return nil, fault.New(fault.Config, "make lock %s: give either one cluster or member clusters", o.Name)
	}
	if o.Clients != nil {
		l.members = []*member{newMember("", o.Clients, l)}
		return l, nil
	}
	return l, l.setMembers(o)
}

func (l *Lock) setMembers(o Options) error {
	l.generation = max(o.Generation, 1)
	l.names = slices.Sorted(slices.Values(o.Names))
	if len(l.names) == 0 {
		for name := range o.Members {
			l.names = append(l.names, name)
		}
		slices.Sort(l.names)
	}
	if len(slices.Compact(slices.Clone(l.names))) != len(l.names) {
		return fault.New(fault.Config, "make lock %s: a member cluster is listed twice in %s", l.name, strings.Join(l.names, ", "))
	}
	for _, name := range l.names {
		c, ok := o.Members[name]
		if !ok {
			return fault.New(fault.Config, "make lock %s: no credentials for member cluster %q", l.name, name).
				Do("add a context of that name to the member clusters' kubeconfig")
		}
		l.members = append(l.members, newMember(name, c, l))
	}
	for name, c := range o.Members {
		if !slices.Contains(l.names, name) {
			l.retired = append(l.retired, newMember(name, c, l))
		}
	}
	slices.SortFunc(l.retired, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	return nil
}

// majority of n clusters, as written in DESIGN.md, "Several clusters".
func majority(n int) int { return n/2 + 1 }

func (l *Lock) quorum() int { return majority(len(l.members)) }

// renewal is how long a holder waits between renewals.
func (l *Lock) renewal() time.Duration { return l.ttl / 3 }

// grace is how long a holding counts without a renewal. It leaves a third of
// the TTL between the moment a holder stops and the moment others may start.
func (l *Lock) grace() time.Duration { return l.ttl * 2 / 3 }

// requestTimeout bounds one API request so that a renewal that hangs leaves
// time for another one, and that for a third, before the grace is over.
func (l *Lock) requestTimeout() time.Duration { return min(kube.RequestTimeout, l.ttl/8) }

// poll is how often a waiter looks again even when no watch reports anything.
func (l *Lock) poll() time.Duration { return jitter(min(4*time.Second, l.ttl/4)) }

// jitter returns d changed by up to a fifth, so that waiters spread out.
func jitter(d time.Duration) time.Duration {
	if d < 5 {
		return d
	}
	return d - d/5 + rand.N(d*2/5)
}

// ID names one holding: the lock's name and its token, e.g. "demo-7".
func ID(name string, token int64) string { return fmt.Sprintf("%s-%d", name, token) }

// parseID returns the token of an ID of this lock.
func (l *Lock) parseID(id string) (int64, error) {
	digits, ok := strings.CutPrefix(id, l.name+"-")
	token, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || token < 1 {
		return 0, fault.New(fault.Config, "read lock id %q: it is not an id of lock %s", id, l.name).
			Do("copy the id from the refusal, it looks like %s", ID(l.name, 7))
	}
	return token, nil
}

// once reports whether key is new in set.
func (l *Lock) once(set map[string]bool, key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if set[key] {
		return false
	}
	set[key] = true
	return true
}

func (l *Lock) forget(set map[string]bool, key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := set[key]
	delete(set, key)
	return had
}
