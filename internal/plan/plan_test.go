package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/quorum"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/plan"
)

// power of every validator of the tests unless they say otherwise.
const power = 100

// facts builds a census.
type facts struct{ *census.Census }

// running is a network of n bonded validators that all sign, as many pods and
// as many replicas.
func running(n int) facts {
	replicas := int32(n)
	f := facts{&census.Census{
		Height: 100, Interval: time.Second,
		StatefulSet: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &replicas}},
	}}
	for h := range int64(census.Window) {
		f.Commits = append(f.Commits, chain.Commit{Height: 90 + h, Votes: map[string]chain.Vote{}})
	}
	for o := range n {
		f.add(o, chain.Bonded).in(o, power)
	}
	return f
}

func address(o int) string { return fmt.Sprintf("ADDR%d", o) }

// add adds a validator that isn't in the set.
func (f facts) add(o int, s chain.Status) facts {
	f.Validators = append(f.Validators, census.Validator{
		Ordinal: o, Identity: chain.Identity{Address: address(o)}, Pod: &corev1.Pod{}, Record: chain.Record{Status: s},
	})
	return f
}

// in puts a validator into the set and lets it sign.
func (f facts) in(o int, power int64) facts {
	m := chain.Member{Address: address(o), Power: power}
	f.Get(o).Member = &m
	return f.member(m)
}

// stranger is a member of the set that isn't of this deployment.
func (f facts) stranger(name string, power int64) facts {
	m := chain.Member{Address: name, Power: power}
	f.Others = append(f.Others, m)
	return f.member(m)
}

func (f facts) member(m chain.Member) facts {
	f.Set.Members = append(f.Set.Members, m)
	for _, k := range f.Commits {
		k.Votes[m.Address] = chain.ForBlock
	}
	f.Power = quorum.Power{Total: f.Power.Total + m.Power, Live: f.Power.Live + m.Power}
	return f
}

// silent lets a member sign nothing.
func (f facts) silent(o int) facts {
	for _, k := range f.Commits {
		k.Votes[address(o)] = chain.Absent
	}
	f.Power.Live -= f.Get(o).Member.Power
	return f
}

func (f facts) replicas(n int32) facts { f.StatefulSet.Spec.Replicas = &n; return f }

func network(edit ...func(*v1alpha1.SafetySpec)) *v1alpha1.ValidatorNetwork {
	n := &v1alpha1.ValidatorNetwork{}
	n.Spec.Workload.StatefulSet = "validator"
	for _, e := range edit {
		e(&n.Spec.Safety)
	}
	return n
}

func budget(n int32) func(*v1alpha1.SafetySpec) {
	return func(s *v1alpha1.SafetySpec) { s.FaultBudget = &n }
}

// batches shows a plan's batches as "4 5|6".
func batches(p *plan.Plan) string {
	var all []string
	for _, b := range p.Batches {
		all = append(all, strings.Trim(fmt.Sprint(b.Ordinals), "[]"))
	}
	return strings.Join(all, "|")
}

func transactions(p *plan.Plan) string {
	var all []string
	for _, c := range p.Changes {
		all = append(all, fmt.Sprintf("%s %s", c.Transaction, c.Pod))
	}
	return strings.Join(all, ", ")
}

func TestMakeDecidesWhoMoves(t *testing.T) {
	t.Parallel()
	few := func(n int, more int) facts {
		f := running(n)
		for o := n; o < n+more; o++ {
			f.add(o, chain.Unstaked)
		}
		return f
	}
	for name, c := range map[string]struct {
		facts          facts
		op             string
		wanted         int
		txs, batches   string
		added, removed []string
		network        *v1alpha1.ValidatorNetwork
	}{
		"as many as there are: nothing": {facts: running(4), op: "scale-up", wanted: 4},
		"as few as there are: nothing":  {facts: running(4), op: "scale-down", wanted: 4},
		"one more": {
			facts: few(4, 1), op: "scale-up", wanted: 5,
			txs: "stake validator-4", batches: "4", added: []string{"validator-4"},
		},
		"four to seven goes in batches that the live power carries": {
			facts: few(4, 3), op: "scale-up", wanted: 7,
			txs: "stake validator-4, stake validator-5, stake validator-6", batches: "4|5 6",
			added: []string{"validator-4", "validator-5", "validator-6"},
		},
		"a pod that runs but was never staked is staked": {
			facts: few(4, 1).replicas(5), op: "scale-up", wanted: 5, txs: "stake validator-4", batches: "4",
		},
		"one that is bonded already and waits for the set gets nothing": {
			facts: running(4).add(4, chain.Bonded).replicas(5), op: "scale-up", wanted: 5,
		},
		"one that is unbonding is staked again": {
			facts: running(4).add(4, chain.Unstaking), op: "scale-up", wanted: 5,
			txs: "stake validator-4", batches: "4", added: []string{"validator-4"},
		},
		"a jailed one is unjailed where that is allowed": {
			facts: running(4).add(4, chain.Jailed).replicas(5), op: "scale-up", wanted: 5,
			network: network(func(s *v1alpha1.SafetySpec) { s.Unjail = true }),
			txs:     "unjail validator-4", batches: "4",
		},
		"seven to four": {
			facts: running(7), op: "scale-down", wanted: 4,
			txs: "unstake validator-4, unstake validator-5, unstake validator-6", batches: "4 5|6",
			removed: []string{"validator-4", "validator-5", "validator-6"},
		},
		"without a fault to spare more may leave at once": {
			facts: running(7), op: "scale-down", wanted: 5, network: network(budget(0)),
			txs: "unstake validator-5, unstake validator-6", batches: "5 6",
			removed: []string{"validator-5", "validator-6"},
		},
		"a pod without a stake just goes": {
			facts: running(4).add(4, chain.Unstaked).replicas(5), op: "scale-down", wanted: 4, removed: []string{"validator-4"},
		},
		"one that unbonds isn't unstaked again": {
			facts: running(4).add(4, chain.Unstaking).replicas(5), op: "scale-down", wanted: 4, removed: []string{"validator-4"},
		},
		"the stake of one whose pod is gone already is withdrawn": {
			facts: running(5).replicas(4), op: "scale-down", wanted: 4, txs: "unstake validator-4", batches: "4",
		},
		"one that waits outside of the set is unstaked": {
			facts: running(4).add(4, chain.Waiting).replicas(5), op: "scale-down", wanted: 4,
			txs: "unstake validator-4", batches: "4", removed: []string{"validator-4"},
		},
		"a tombstoned one is unstaked, its funds are not lost": {
			facts: running(4).add(4, chain.Tombstoned).replicas(5), op: "scale-down", wanted: 4,
			txs: "unstake validator-4", batches: "4", removed: []string{"validator-4"},
		},
		"strangers are never touched": {
			facts: running(5).stranger("STRANGER", 300), op: "scale-down", wanted: 4, network: network(budget(0)),
			txs: "unstake validator-4", batches: "4", removed: []string{"validator-4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := c.network
			if n == nil {
				n = network()
			}
			p, err := plan.Make(n, c.facts.Census, c.op, c.wanted, power)
			require.NoError(t, err)
			require.Equal(t, c.txs, transactions(p))
			require.Equal(t, c.batches, batches(p))
			require.Equal(t, c.added, p.Added)
			require.Equal(t, c.removed, p.Removed)
			require.Equal(t, c.txs == "" && c.added == nil && c.removed == nil, p.Empty())
			var text strings.Builder
			require.NoError(t, p.Write(&text))
			require.Equal(t, p.Empty(), strings.Contains(text.String(), "Nothing to do."))
			for _, change := range p.Changes {
				require.Contains(t, text.String(), change.Address)
			}
		})
	}
}

func TestMakeRefusesWithNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts  facts
		op     string
		wanted int
		power  int64
		code   fault.Code
		parts  []string
	}{
		"up to fewer":  {running(5), "scale-up", 4, power, fault.Config, []string{"scale-up to 4: 5 validators run already", "use scale-down"}},
		"down to more": {running(4), "scale-down", 5, power, fault.Config, []string{"scale-down to 5: only 4 validators run", "use scale-up"}},
		"a stake stronger than the live power can carry": {
			running(4).add(4, chain.Unstaked), "scale-up", 5, 200, fault.Refused,
			[]string{"staking validator 4 (power 200) could halt the chain", "400 live power", "two thirds of 600", "3*400 = 1200", "2*600 = 1200", "silent: nobody", "the largest power that may join now is 199"},
		},
		"a stake while one of four is silent": {
			running(4).silent(2).add(4, chain.Unstaked), "scale-up", 5, power, fault.Refused,
			[]string{"3*300 = 900 is not above 2*500 = 1000", "silent: validator 2", "may join now is 49", "bring the silent validators back"},
		},
		"a stake while the chain is halted": {
			running(4).silent(2).silent(3).add(4, chain.Unstaked), "scale-up", 5, 1, fault.Refused,
			[]string{"silent: validator 2, validator 3", "may join now is 0"},
		},
		"a removal that leaves no fault to spare": {
			running(4), "scale-down", 3, power, fault.Refused,
			[]string{"unstaking validator 3 (power 100) could halt the chain", "of 400 power 400 is live", "1 of the 3 remaining", "two thirds of 300", "silent: nobody", "spec.safety.faultBudget"},
		},
		"a removal while another is silent": {
			running(5).silent(0), "scale-down", 4, power, fault.Refused,
			[]string{"of 500 power 400 is live", "silent: validator 0"},
		},
		"a removal of too much power at once": {
			running(2).add(2, chain.Bonded).in(2, 500).replicas(3), "scale-down", 2, power, fault.Refused,
			[]string{"unstaking validator 2 (power 500)", "of 700 power 700 is live"},
		},
		"the last validator": {
			running(1), "scale-down", 0, power, fault.Refused, []string{"last validator", "halt for good"},
		},
		"a tombstoned key": {
			running(4).add(4, chain.Tombstoned), "scale-up", 5, power, fault.Refused, []string{"validator 4 is tombstoned", "new keys"},
		},
		"a jailed validator": {
			running(4).add(4, chain.Jailed), "scale-up", 5, power, fault.Refused, []string{"validator 4 is jailed", "spec.safety.unjail"},
		},
		"a validator that waits outside of a full set": {
			running(4).add(4, chain.Waiting), "scale-up", 5, power, fault.Refused, []string{"validator 4 is staked but outside", "raise the chain's maximum"},
		},
		"a silent stranger is named": {
			func() facts {
				f := running(4).stranger("STRANGER", power).add(4, chain.Unstaked)
				for _, k := range f.Commits {
					k.Votes["STRANGER"] = chain.Absent
				}
				f.Power.Live -= power
				return f
			}(), "scale-up", 5, power, fault.Refused, []string{"silent: STRANGER"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := plan.Make(network(), c.facts.Census, c.op, c.wanted, c.power)
			require.Error(t, err)
			require.Equal(t, c.code, fault.CodeOf(err), "%v", err)
			for _, part := range c.parts {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

// Whatever the powers, an accepted plan keeps every one of its promises.
func TestEveryBatchKeepsTheQuorum(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	made := 0
	for range 2000 {
		n := 1 + rnd.IntN(12)
		f := running(0).replicas(int32(n))
		for o := range n {
			f.add(o, chain.Bonded).in(o, 1+rnd.Int64N(50))
			if rnd.IntN(8) == 0 {
				f.silent(o)
			}
		}
		op, wanted := "scale-down", rnd.IntN(n+1)
		if rnd.IntN(2) == 0 {
			op, wanted = "scale-up", n+rnd.IntN(6)
			for o := n; o < wanted; o++ {
				f.add(o, chain.Unstaked)
			}
		}
		p, err := plan.Make(network(), f.Census, op, wanted, 1+rnd.Int64N(50))
		if err != nil {
			require.True(t, fault.Is(err, fault.Refused), "%v", err)
			continue
		}
		made++
		moved := 0
		for _, b := range p.Batches {
			require.NotEmpty(t, b.Ordinals)
			moved += len(b.Ordinals)
			for when, q := range map[string]quorum.Power{"before": b.Before, "during": b.During, "after": b.After} {
				require.True(t, q.OK(), "%s %v: %s", when, b.Ordinals, q)
			}
		}
		require.Equal(t, len(p.Changes), moved, "every change is in one batch")
	}
	require.Greater(t, made, 200, "enough plans were accepted to mean something")
}

func TestSettlingNamesThoseWhosePlaceIsAboutToChange(t *testing.T) {
	t.Parallel()
	f := running(4).add(4, chain.Bonded).add(5, chain.Unstaked).add(6, chain.Unstaking).in(6, power).
		add(7, chain.Jailed).in(7, power).add(8, chain.Jailed).add(9, chain.Waiting)
	var got []int
	for _, v := range plan.Settling(f.Census) {
		got = append(got, v.Ordinal)
	}
	require.Equal(t, []int{4, 6, 7}, got)
	require.Empty(t, plan.Settling(running(4).Census))
}

func TestBudgetIsOneUnlessGiven(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, plan.Budget(v1alpha1.SafetySpec{}))
	require.Equal(t, 0, plan.Budget(network(budget(0)).Spec.Safety), "zero is a choice, not a default")
	require.Equal(t, 3, plan.Budget(network(budget(3)).Spec.Safety))
}
