package network

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
)

// Record writes a census into the status: the roster, the counters, and
// whether the network is as wanted.
func Record(n *v1alpha1.ValidatorNetwork, c *census.Census) {
	st := &n.Status
	st.Height, st.ObservedGeneration = c.Height, n.Generation
	st.Validators, st.Bonded, st.Signing, st.Jailed = 0, 0, 0, 0
	st.Selector = metav1.FormatLabelSelector(c.StatefulSet.Spec.Selector)
	for _, v := range c.Validators {
		e := Ensure(n, v.Ordinal)
		e.Address, e.Operator = v.Identity.Address, v.Identity.Operator
		e.State, e.Power = v1alpha1.BondState(v.Record.Status), v.Power()
		e.Signing = v.Member != nil && c.Alive(e.Address)
		switch {
		case v.Member != nil && (e.JoinedHeight == 0 || e.LeftHeight > 0):
			e.JoinedHeight, e.LeftHeight = firstIn(c, e.Address), 0
		case v.Member == nil && e.JoinedHeight > 0 && e.LeftHeight == 0:
			e.LeftHeight = c.Set.Height - int64(c.Out(e.Address))
		}
		if e.Signing || (v.Member == nil && e.LeftHeight > 0) {
			e.Tx = "" // proven
		}
		if v.Pod != nil {
			st.Validators++
		}
		if v.Member != nil {
			st.Bonded++
		}
		if e.Signing {
			st.Signing++
		}
		if v.Record.Status == chain.Jailed || v.Record.Status == chain.Tombstoned {
			st.Jailed++
		}
	}
	want := n.Spec.Validators
	if st.Validators == want && st.Bonded == want && st.Signing == want {
		SetReady(n, true, "AllSigning", fmt.Sprintf("all %d validators are in consensus and sign", want))
	} else {
		SetReady(n, false, "NotAllSigning", fmt.Sprintf("%d wanted, %d run, %d in consensus, %d sign", want, st.Validators, st.Bonded, st.Signing))
	}
}

// firstIn is the first height of the census at which a key was proven in the set.
func firstIn(c *census.Census, address string) int64 {
	for _, k := range c.Commits {
		if _, ok := k.Votes[address]; ok {
			return k.Height
		}
	}
	return c.Set.Height
}
