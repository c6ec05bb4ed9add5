package census_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
)

// votes builds the last commits from one line per validator: S signed, N voted
// nil, A was absent, and - was not in the set. The last letter is the newest.
func votes(lines map[string]string) *census.Census {
	c := &census.Census{}
	for address, line := range lines {
		for len(c.Commits) < len(line) {
			c.Commits = append(c.Commits, chain.Commit{Height: int64(100 + len(c.Commits)), Votes: map[string]chain.Vote{}})
		}
		for i, letter := range line {
			switch letter {
			case 'S':
				c.Commits[i].Votes[address] = chain.ForBlock
			case 'N':
				c.Commits[i].Votes[address] = chain.ForNil
			case 'A':
				c.Commits[i].Votes[address] = chain.Absent
			}
		}
	}
	c.Set.Height = int64(100 + len(c.Commits))
	return c
}

func TestAlive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line string
		want bool
	}{
		"one that signs everything is alive":                   {"SSSSSSSSSS", true},
		"one late vote in ten is forgiven":                     {"SSSASSSSSS", true},
		"one late vote in ten is forgiven, the newest too":     {"SSSSSSSSSA", true},
		"two late votes in ten are too many":                   {"SASSASSSSA", false},
		"two silent blocks at the end are a silence":           {"SSSSSSSSAA", false},
		"one that signs nothing is silent":                     {"AAAAAAAAAA", false},
		"votes for nil are no signatures":                      {"NNNNNNNNNN", false},
		"three in a row prove one that came back":              {"AAAAAAASSS", true},
		"two in a row don't prove one that came back":          {"AAAAAAAASS", false},
		"a newcomer that missed its first blocks is alive":     {"-----NNSSS", true},
		"a newcomer is proven by nothing less than signatures": {"-------NNS", false},
		"a newcomer that only signed is alive":                 {"---------S", true},
		"one that was never a member isn't alive":              {"----------", false},
		"one that left isn't alive":                            {"SSSSSSSS--", false},
		"one absence in a short window isn't forgiven":         {"SSSSA", false},
		"no commits prove nobody":                              {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, votes(map[string]string{"A": c.line}).Alive("A"), c.line)
		})
	}
}

func TestStreakAndOutCountTheLatestCommits(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ streak, out int }{
		"SSSSS": {5, 0}, "SSASS": {2, 0}, "SSSSA": {0, 0}, "SSSSN": {0, 0},
		"SSS--": {0, 2}, "-----": {0, 5}, "--SSS": {3, 0}, "-S-S-": {0, 1}, "": {0, 0},
	} {
		c := votes(map[string]string{"A": line})
		require.Equal(t, want.streak, c.Streak("A"), "streak of %q", line)
		require.Equal(t, want.out, c.Out("A"), "out of %q", line)
	}
}

func TestJoined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line string
		in   bool
		want bool
	}{
		"a member of the whole window isn't new":          {"SSSSS", true, false},
		"a member since the middle of the window is new":  {"--NSS", true, true},
		"a member from the next block on is new":          {"-----", true, true},
		"one that left isn't new":                         {"--S--", false, false},
		"a silent old member isn't new":                   {"AAAAA", true, false},
		"without commits nobody can be called a newcomer": {"", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := votes(map[string]string{"A": c.line})
			if c.in {
				found.Set.Members = []chain.Member{{Address: "A", Power: 1}}
			}
			require.Equal(t, c.want, found.Joined("A"))
		})
	}
}

func TestSynced(t *testing.T) {
	t.Parallel()
	good := func() *census.Validator {
		return &census.Validator{Pod: &corev1.Pod{}, Identity: chain.Identity{Address: "A"}, Node: &chain.Node{Address: "A", Height: 100, Peers: 3}}
	}
	for name, c := range map[string]struct {
		change func(*census.Validator)
		why    string
	}{
		"at the head":             {nil, ""},
		"two blocks behind":       {func(v *census.Validator) { v.Node.Height = 98 }, ""},
		"three blocks behind":     {func(v *census.Validator) { v.Node.Height = 97 }, "is 3 blocks behind, at height 97 of 100"},
		"no pod":                  {func(v *census.Validator) { v.Pod = nil }, "has no pod"},
		"silent":                  {func(v *census.Validator) { v.Node, v.NodeErr = nil, errors.New("refused") }, "RPC doesn't answer: refused"},
		"catching up":             {func(v *census.Validator) { v.Node.CatchingUp, v.Node.Height = true, 40 }, "is catching up, at height 40 of 100"},
		"catching up at the head": {func(v *census.Validator) { v.Node.CatchingUp = true }, "is catching up, at height 100 of 100"},
		"alone":                   {func(v *census.Validator) { v.Node.Peers = 0 }, "has no peers"},
		"new":                     {func(v *census.Validator) { v.Node.Height = 0 }, "has no block yet"},
		"another key":             {func(v *census.Validator) { v.Node.Address = "B" }, "runs with consensus key B, but its Secret holds A"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := good()
			if c.change != nil {
				c.change(v)
			}
			ok, why := (&census.Census{Height: 100}).Synced(v)
			require.Equal(t, c.why == "", ok)
			require.Equal(t, c.why, why)
		})
	}
	ok, _ := (&census.Census{}).Synced(nil)
	require.False(t, ok, "a validator that isn't known isn't synced")
}

func TestObserversAreSyncedAndTheMostAdvancedFirst(t *testing.T) {
	t.Parallel()
	c := &census.Census{Height: 100}
	for o, height := range []int64{99, 100, 40, 100, 98} {
		c.Validators = append(c.Validators, census.Validator{
			Ordinal: o, Pod: &corev1.Pod{}, Node: &chain.Node{Height: height, Peers: 1},
		})
	}
	require.Equal(t, []int{1, 3, 0, 4}, c.Observers())
	require.Equal(t, []int{3, 0}, c.Observers(1, 4), "subjects don't testify")
	require.Empty(t, c.Observers(0, 1, 3, 4))
}

func TestGetFindsByOrdinal(t *testing.T) {
	t.Parallel()
	c := &census.Census{Validators: []census.Validator{{Ordinal: 2}, {Ordinal: 5, Member: &chain.Member{Power: 7}}}}
	require.EqualValues(t, 7, c.Get(5).Power())
	require.Zero(t, c.Get(2).Power(), "no power outside of the set")
	require.Nil(t, c.Get(0))
}
