package quorum

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMayStake(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		p    Power
		n    int64
		want bool
	}{
		"one more joins four equal ones":             {Power{4, 4}, 1, true},
		"two at once could halt four":                {Power{4, 4}, 2, false},
		"two at once are fine with five":             {Power{5, 5}, 2, true},
		"nobody joins while one of four is silent":   {Power{4, 3}, 1, false},
		"a whale that may not sign halts the others": {Power{400, 400}, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.p.MayStake(tc.n))
		})
	}
}

func TestMayUnstake(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		p        Power
		n, fault int64
		want     bool
	}{
		"five to four, and one of them may fail":           {Power{5, 5}, 1, 1, true},
		"four to three leaves no room for a fault":         {Power{4, 4}, 1, 1, false},
		"four to three without a fault budget":             {Power{4, 4}, 1, 0, true},
		"seven to five":                                    {Power{7, 7}, 2, 1, true},
		"seven to four moves more than a third":            {Power{7, 7}, 3, 1, false},
		"five to four while another one is silent already": {Power{5, 4}, 1, 1, false},
		"a halted chain unstakes nobody":                   {Power{6, 4}, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.p.MayUnstake(tc.n, tc.fault))
		})
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	ones := func(n int) []int64 {
		s := make([]int64, n)
		for i := range s {
			s[i] = 1
		}
		return s
	}
	require.Equal(t, 1, Power{4, 4}.StakeBatch(ones(3)))
	require.Equal(t, 2, Power{5, 5}.StakeBatch(ones(3)))
	require.Equal(t, 3, Power{7, 7}.StakeBatch(ones(5)))
	require.Equal(t, 2, Power{7, 7}.UnstakeBatch(ones(3), ones(4), 1))
	require.Equal(t, 1, Power{5, 5}.UnstakeBatch(ones(1), ones(4), 1))
	require.Equal(t, 0, Power{4, 4}.UnstakeBatch(ones(1), ones(3), 1))
	require.Zero(t, Power{}.UnstakeBatch(nil, nil, 1))
}

// Every change that the rules allow is tried against the rule itself: whatever
// the newcomers do, and whichever validator of the budget fails, blocks go on.
func TestAllowedChangesKeepAQuorum(t *testing.T) {
	t.Parallel()
	for total := int64(1); total <= 40; total++ {
		for live := int64(0); live <= total; live++ {
			p := Power{total, live}
			for n := range int64(41) {
				if p.MayStake(n) {
					require.True(t, Power{total + n, live}.OK(), "stake %d at %v", n, p)
				}
				if p.MayStop(n) {
					require.True(t, Power{total, live - n}.OK(), "stop %d at %v", n, p)
				}
				for fault := range int64(4) {
					if p.MayUnstake(n, fault) {
						require.True(t, p.OK())
						require.True(t, Power{total - n, live - n - fault}.OK(), "unstake %d at %v", n, p)
					}
				}
			}
			if p.OK() {
				require.True(t, p.MayStop(p.Margin()), "margin of %v", p)
				require.False(t, p.MayStop(p.Margin()+1), "margin of %v", p)
			}
		}
	}
}
