package scale

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/quorum"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// five is a census at height 100 of five replicas of which the first four are
// in consensus; last is the fifth.
func five(last census.Validator) *census.Census {
	n := int32(5)
	c := &census.Census{
		Height: 100, StatefulSet: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &n}},
		Power: quorum.Power{Total: 500, Live: 500},
	}
	for o := range 4 {
		c.Validators = append(c.Validators, census.Validator{
			Ordinal: o, Pod: &corev1.Pod{}, Member: &chain.Member{Power: 100}, Record: chain.Record{Status: chain.Bonded},
		})
	}
	last.Ordinal = 4
	c.Validators = append(c.Validators, last)
	return c
}

func TestMayStop(t *testing.T) {
	t.Parallel()
	in := &chain.Member{Power: 100}
	for name, c := range map[string]struct {
		last  census.Validator
		parts []string // of the refusal; none: it may
	}{
		"one in the set stays": {
			census.Validator{Member: in, Record: chain.Record{Status: chain.Bonded}},
			[]string{"at height 100 the consensus set still has validator 4 (power 100)", "500 of 500 power signs", "run scale-down"},
		},
		"one that unstaked but is still in the set stays": {
			census.Validator{Member: in, Record: chain.Record{Status: chain.Unstaking}}, []string{"validator 4 (power 100)"},
		},
		"one whose stake is effective with the next block stays": {
			census.Validator{Record: chain.Record{Status: chain.Bonded}}, []string{"a stake is still held by validator 4 (Bonded)"},
		},
		"one that waits for a place in the set stays": {
			census.Validator{Record: chain.Record{Status: chain.Waiting}}, []string{"validator 4 (Waiting)"},
		},
		"one that left may go":          {census.Validator{Record: chain.Record{Status: chain.Unstaking}}, nil},
		"one without a stake may go":    {census.Validator{Record: chain.Record{Status: chain.Unstaked}}, nil},
		"one that was jailed may go":    {census.Validator{Record: chain.Record{Status: chain.Jailed}}, nil},
		"one that never may return may": {census.Validator{Record: chain.Record{Status: chain.Tombstoned}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := mayStop(five(c.last), 4)
			if c.parts == nil {
				require.NoError(t, err)
				return
			}
			require.Equal(t, fault.Refused, fault.CodeOf(err))
			for _, p := range c.parts {
				require.ErrorContains(t, err, p)
			}
		})
	}
	require.NoError(t, mayStop(five(census.Validator{Member: in}), 5), "nobody is to be stopped")
}

func TestMayStartWaitsForTheOldPod(t *testing.T) {
	t.Parallel()
	c := five(census.Validator{Pod: &corev1.Pod{}})
	*c.StatefulSet.Spec.Replicas = 4
	waiting, err := mayStart(t.Context(), nil, c, 5)
	require.NoError(t, err)
	require.Contains(t, waiting, "the old pod of validator 4 to be gone")
}

func TestMayStartNeedsCommitsToJudgeBy(t *testing.T) {
	t.Parallel()
	c := five(census.Validator{})
	*c.StatefulSet.Spec.Replicas = 4
	_, err := mayStart(t.Context(), nil, c, 5)
	require.Equal(t, fault.Transient, fault.CodeOf(err), "a chain at its first block: %v", err)
}

// signed is a chain whose last 20 commits hold one signature of the key NEW.
type signed struct {
	chain.Adapter
	at int64 // 0: none
}

func (a signed) Commits(_ context.Context, _ chain.Endpoint, from, to int64) (out []chain.Commit, _ error) {
	for h := from; h <= to; h++ {
		k := chain.Commit{Height: h, Votes: map[string]chain.Vote{}}
		if h == a.at {
			k.Votes["NEW"] = chain.ForBlock
		}
		out = append(out, k)
	}
	return out, nil
}

func TestMayStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at            int64
		member        *chain.Member
		waits, refuse string
	}{
		"a key that signed nothing may start":                     {},
		"a member that signs nothing may start":                   {member: &chain.Member{}},
		"a key that signed and left is waited for":                {at: 81, waits: "the key of validator 4 to be silent for 20 blocks: it signed block 81 of 99"},
		"a key that signed 20 blocks ago may start":               {at: 79},
		"a key that signs elsewhere and is in the set is refused": {at: 98, member: &chain.Member{}, refuse: "signed block 98, though validator 4 doesn't run here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := five(census.Validator{Member: c.member, Identity: chain.Identity{Address: "NEW"}})
			*found.StatefulSet.Spec.Replicas = 4
			found.Commits = []chain.Commit{{Height: 99}}
			found.Validators[0].Node = &chain.Node{Height: 100, Peers: 3}
			s := &step.Session{Adapter: signed{at: c.at}, Network: &v1alpha1.ValidatorNetwork{}}
			waiting, err := mayStart(t.Context(), s, found, 5)
			if c.refuse != "" {
				require.Equal(t, fault.Refused, fault.CodeOf(err))
				require.ErrorContains(t, err, c.refuse)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.waits, waiting)
		})
	}
}
