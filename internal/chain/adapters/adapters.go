// Package adapters makes the chain adapter that a network asks for.
package adapters

import (
	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/cosmos"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

// New returns the adapter of a chain, which asks the endpoints in order.
func New(c v1alpha1.ChainSpec, endpoints []chain.Endpoint) (chain.Adapter, error) {
	if c.Adapter == "cosmos" {
		return cosmos.New(c.Options, c.ChainID, endpoints)
	}
	return nil, fault.New(fault.Config, "chain adapter %q is not built into this version", c.Adapter).
		Do("set spec.chain.adapter to cosmos")
}
