package lock

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

// Info is what is known about a lock at one moment, for people.
type Info struct {
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	ID        string          `json:"id"` // of the present or, when free, of the last holding
	Token     int64           `json:"token"`
	Held      bool            `json:"held"`
	Holder    v1alpha1.Holder `json:"holder"` // zero when free
	TTL       time.Duration   `json:"ttl"`
	// AcquiredAt and RenewedAt are by the holder's clock; nil when unknown.
	AcquiredAt *metav1.MicroTime `json:"acquiredAt,omitempty"`
	RenewedAt  *metav1.MicroTime `json:"renewedAt,omitempty"`
	// Silent is how long the holder was seen not to renew, here, by this process.
	Silent   time.Duration             `json:"silent"`
	Previous []v1alpha1.PreviousHolder `json:"previous,omitempty"`
	// Clusters has one entry per member, sorted by name.
	Clusters []ClusterInfo `json:"clusters"`

	expiresIn time.Duration
}

// ClusterInfo is one member cluster's part of an Info.
type ClusterInfo struct {
	Name   string        `json:"name,omitempty"`
	Token  int64         `json:"token"`
	Holder string        `json:"holder,omitempty"` // in one line; empty when free
	Took   time.Duration `json:"took"`             // of the answer
	Error  string        `json:"error,omitempty"`  // why there was no answer
}

// Inspect reads the lock in every member cluster. It changes nothing. A cluster
// without an answer is named in Info; only when none answers, or the only one
// doesn't, there is an error.
func (l *Lock) Inspect(ctx context.Context) (Info, error) {
	views := l.readAll(ctx, l.members)
	if len(answered(views)) == 0 {
		return Info{}, fmt.Errorf("inspect lock %s: %w", l.name, views[0].err)
	}
	return l.info(views), nil
}

// info condenses the answers: the holding with the most clusters, and of those
// with as many, the one with the highest token.
func (l *Lock) info(views []view) Info {
	i := Info{Name: l.name, Namespace: l.members[0].clients.Namespace, TTL: l.ttl}
	votes := map[string]int{}
	var top *v1alpha1.DeploymentLock
	best := 0
	for _, v := range views {
		c := ClusterInfo{Name: v.m.name, Took: v.took}
		switch {
		case v.err != nil:
			c.Error = v.err.Error()
		case v.lock != nil:
			c.Token = v.lock.Spec.Token
			if top == nil || c.Token > top.Spec.Token {
				top = v.lock
			}
			if h := v.lock.Spec.Holder; h != nil {
				c.Holder = who(*h)
				key := fmt.Sprint(h.Run.UID, " ", c.Token)
				votes[key]++
				if n := votes[key]; n > best || n == best && c.Token > i.Token {
					best = n
					i.hold(v)
				}
			}
		}
		i.Clusters = append(i.Clusters, c)
	}
	if !i.Held && top != nil {
		i.Token, i.Previous = top.Spec.Token, top.Status.Previous
	}
	i.ID = ID(l.name, i.Token)
	return i
}

func (i *Info) hold(v view) {
	s := v.lock.Spec
	i.Held, i.Holder, i.Token, i.TTL = true, *s.Holder, s.Token, ttlOf(v.lock)
	i.AcquiredAt, i.RenewedAt, i.Previous = s.AcquiredAt, s.RenewedAt, v.lock.Status.Previous
	i.Silent, i.expiresIn = v.still, max(ttlOf(v.lock)-v.still, 0)
}

// line names the holding in one line.
func (i *Info) line() string {
	if !i.Held {
		return fmt.Sprintf("lock %s is free, last id %s", i.Name, i.ID)
	}
	return fmt.Sprintf("%s held by %s, operation %s, step %s", i.ID, who(i.Holder), or(i.Holder.Operation, "unknown"), or(i.Holder.Step, "unknown"))
}

func (i *Info) expiry() string {
	return fmt.Sprintf("%s unless renewed (TTL %s, seen silent for %s)", span(i.expiresIn), span(i.TTL), span(i.Silent))
}

// BusyError is the refusal of a lock that another run holds.
type BusyError struct {
	Info   Info
	Waited time.Duration
}

// Error tells everything that the reader needs to decide: wait, ask, or break.
func (e *BusyError) Error() string {
	i, b := e.Info, new(strings.Builder)
	fmt.Fprintf(b, "lock %s in namespace %s is held by another run; nothing was changed", i.Name, i.Namespace)
	if e.Waited >= time.Second {
		fmt.Fprintf(b, "; waited %s", span(e.Waited))
	}
	i.rows(b)
	row(b, "To look", fmt.Sprintf("kubectl -n %s get deploymentlock %s -o yaml", i.Namespace, i.Name))
	row(b, "To wait", "run again with ROLLCALL_LOCK_WAIT=10m, or argo submit with -p lockWait=10m")
	row(b, "To break", fmt.Sprintf(`kubectl rollcall -n %s force-unlock %s --reason "..." (only when its run can't go on; it is fenced then)`, i.Namespace, i.ID))
	return b.String()
}

// String tells everything about the lock, one fact per line.
func (i Info) String() string {
	b := new(strings.Builder)
	if i.Held {
		fmt.Fprintf(b, "lock %s in namespace %s is held", i.Name, i.Namespace)
	} else {
		fmt.Fprintf(b, "lock %s in namespace %s is free", i.Name, i.Namespace)
	}
	i.rows(b)
	for _, p := range i.Previous {
		row(b, "Before", fmt.Sprintf("%s: %s for %s, %s", ID(i.Name, p.Token), who(p.Holder), or(p.Operation, "an unknown operation"), ended(p)))
	}
	return b.String()
}

func (i *Info) rows(b *strings.Builder) {
	row(b, "ID", i.ID)
	row(b, "Token", fmt.Sprint(i.Token))
	if h := i.Holder; i.Held {
		row(b, "Holder", or(h.User, "unknown"))
		row(b, "Host", h.Host)
		row(b, "Pod", h.Pod)
		row(b, "Run", strings.TrimSpace(h.Run.Kind+" "+h.Run.Name+" (uid "+h.Run.UID+")"))
		row(b, "Operation", h.Operation)
		row(b, "Step", h.Step)
		row(b, "Reason", h.Reason)
		row(b, "Since", stamp(i.AcquiredAt))
		row(b, "Renewed", stamp(i.RenewedAt))
		row(b, "Expires in", i.expiry())
	}
	for _, c := range i.Clusters {
		switch {
		case c.Name == "":
		case c.Error != "":
			row(b, "Cluster", c.Name+": no answer: "+c.Error)
		default:
			row(b, "Cluster", fmt.Sprintf("%s: %s, token %d, answered in %s", c.Name, or(c.Holder, "free"), c.Token, span(c.Took)))
		}
	}
}

// row adds a line, unless there is nothing to say.
func row(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "\n  %-11s %s", name+":", value)
	}
}

func (l *Lock) refusal(i *Info, waited time.Duration) error {
	return &fault.Error{Code: fault.LockBusy, Err: &BusyError{Info: *i, Waited: waited}}
}

// stamp prints a moment of the holder's clock.
func stamp(t *metav1.MicroTime) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339) + " by the holder's clock"
}

// span prints a duration with its unit, to the second, or finer below ten.
func span(d time.Duration) string {
	switch {
	case d < 0:
		d = 0
	case d < 10*time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	case d < 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return d.String()
}
