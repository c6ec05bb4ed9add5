// Package quorum holds the arithmetic that keeps a BFT network alive while its
// validator set changes. It is pure: numbers in, decisions out.
//
// It guarantees that a change it allows leaves more than two thirds of the
// voting power alive, given that the powers are true. It doesn't fetch them,
// and it can't know of faults that haven't shown in commits yet.
//
// Source of the rule: a block commits with signatures of strictly more than
// two thirds of the total power of the set (BFT; CometBFT's consensus spec).
package quorum

import (
	"fmt"
	"slices"
)

// Power of a set at one moment. All in voting power units.
type Power struct {
	Total int64 // T: power of the whole set
	Live  int64 // L: power of those who really signed the last commits
}

// OK reports whether the live power commits blocks: 3L > 2T.
func (p Power) OK() bool { return 3*p.Live > 2*p.Total }

// Margin is the power that may still fail before blocks stop; negative when
// they already have.
func (p Power) Margin() int64 {
	// The largest m with 3(L-m) > 2T.
	m := (3*p.Live - 2*p.Total - 1)
	if m < 0 {
		return -1
	}
	return m / 3
}

// String shows the numbers of the rule.
func (p Power) String() string {
	return fmt.Sprintf("%d of %d power signs, more than %d is needed", p.Live, p.Total, 2*p.Total/3)
}

// MayStake reports whether unproven power n may join: the live power must carry
// the larger set alone, since the newcomers may turn out not to sign.
func (p Power) MayStake(n int64) bool { return 3*p.Live > 2*(p.Total+n) }

// MayUnstake reports whether live power n may leave, with fault more power
// failing right afterwards (the strongest remaining validators of the budget).
// Until the change is effective the old set still needs its quorum.
func (p Power) MayUnstake(n, fault int64) bool {
	return p.OK() && 3*n <= p.Total && 3*(p.Live-n-fault) > 2*(p.Total-n)
}

// MayStop reports whether a process with power n of the set may be stopped
// while its key stays in the set.
func (p Power) MayStop(n int64) bool { return 3*(p.Live-n) > 2*p.Total }

// StakeBatch returns how many of the powers, in order, may join at once.
func (p Power) StakeBatch(powers []int64) int {
	var sum int64
	for i, n := range powers {
		if sum += n; !p.MayStake(sum) {
			return i
		}
	}
	return len(powers)
}

// UnstakeBatch returns how many of leaving, in order, may leave at once.
// remaining are the powers of the members that stay in any case; budget is the
// number of the strongest remaining ones that may fail.
func (p Power) UnstakeBatch(leaving, remaining []int64, budget int) int {
	var sum int64
	for i, n := range leaving {
		sum += n
		if !p.MayUnstake(sum, strongest(slices.Concat(remaining, leaving[i+1:]), budget)) {
			return i
		}
	}
	return len(leaving)
}

// strongest sums the n largest powers.
func strongest(powers []int64, n int) (sum int64) {
	s := slices.Clone(powers)
	slices.Sort(s)
	slices.Reverse(s)
	for _, p := range s[:min(n, len(s))] {
		sum += p
	}
	return sum
}
