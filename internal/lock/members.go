package lock

import (
	"context"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

// plan is what an acquisition needs beyond free locks.
type plan struct {
	// need is how many members must be won: a majority, or all of them when the
	// list is new to the clusters.
	need int
	// founding is true when the list is new to the clusters.
	founding bool
	// older member lists, a majority of each of which must be ours to end.
	older [][]string
	// retired clusters of the older lists.
	retired []view
}

// membership compares the member list of this run with the lists that the
// locks record. A list in force is recorded by a majority of its clusters,
// because its first acquisition wrote all of them.
func (l *Lock) membership(ctx context.Context, views []view) (plan, error) {
	p := plan{need: l.quorum()}
	recorded := 0
	for _, v := range answered(views) {
		if v.lock == nil {
			continue
		}
		s := v.lock.Spec
		switch {
		case len(l.names) == 0 && len(s.Members) > 0:
			return p, fault.New(fault.Config, "acquire lock %s: it belongs to the member clusters %s (generation %d), but this run knows only one cluster",
				l.name, strings.Join(s.Members, ", "), s.Generation).Do("give this run the same member list")
		case s.Generation > l.generation:
			return p, fault.New(fault.Config, "acquire lock %s: this run's member list (%s) is generation %d, but cluster %s has generation %d (%s)",
				l.name, strings.Join(l.names, ", "), l.generation, v.m.name, s.Generation, strings.Join(s.Members, ", ")).
				Do("give this run the newer member list")
		case s.Generation == l.generation && !slices.Equal(s.Members, l.names):
			return p, fault.New(fault.Config, "acquire lock %s: this run's member list (%s) is not the one that cluster %s has for generation %d (%s)",
				l.name, strings.Join(l.names, ", "), v.m.name, l.generation, strings.Join(s.Members, ", ")).
				Do("a changed list needs a higher generation")
		case s.Generation == l.generation:
			recorded++
		case len(s.Members) > 0:
			p.older = append(p.older, s.Members)
		case s.Token > 0: // was a lock of its own
			p.older = append(p.older, []string{v.m.name})
		}
	}
	if len(l.names) == 0 || recorded >= l.quorum() {
		p.older = nil
		return p, nil
	}
	err := l.found(ctx, views, &p)
	return p, err
}

// found adds what the first acquisition of a new member list needs: every
// cluster of it, so that no older list is overlooked, and a majority of each
// older list, so that no run with that list holds the lock now or ever again.
func (l *Lock) found(ctx context.Context, views []view, p *plan) error {
	p.founding, p.need = true, len(l.members)
	for _, v := range views {
		if v.err != nil {
			return fault.New(fault.Transient, "acquire lock %s: the member list %s (generation %d) is new, so all of its clusters must answer once: %w",
				l.name, strings.Join(l.names, ", "), l.generation, v.err)
		}
	}
	var leaving []*member
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(p.older...)))) {
		if slices.Contains(l.names, name) {
			continue
		}
		i := slices.IndexFunc(l.retired, func(m *member) bool { return m.name == name })
		if i < 0 {
			return fault.New(fault.Config, "acquire lock %s: cluster %s leaves the member list, but this run has no credentials for it", l.name, name).
				Do("keep it in the member clusters' kubeconfig until the first run with the new list")
		}
		leaving = append(leaving, l.retired[i])
	}
	if len(leaving) > 0 {
		p.retired = l.readAll(ctx, leaving)
	}
	return nil
}

// outvoted reports whether the claims take a majority of every older list.
func (p plan) outvoted(claims []claim) bool {
	for _, list := range p.older {
		n := 0
		for _, c := range claims {
			if c.take && c.err == nil && slices.Contains(list, c.m.name) {
				n++
			}
		}
		if n < majority(len(list)) {
			return false
		}
	}
	return true
}
