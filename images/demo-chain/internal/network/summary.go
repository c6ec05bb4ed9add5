package network

import (
	"encoding/json"
	"fmt"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

// Summary is what may be known about a network by anyone.
type Summary struct {
	ChainID    string `json:"chainID"`
	Validators int    `json:"validators"`
	Nodes      []Node `json:"nodes"`
}

// Node is the public side of one validator-to-be.
type Node struct {
	Name    string `json:"name"`
	Ordinal int    `json:"ordinal"`
	// Genesis is true if the validator is staked in the genesis.
	Genesis bool `json:"genesis"`
	// NodeID is the p2p identity, in hex.
	NodeID string `json:"nodeID"`
	// ConsensusAddress is the upper case hex that CometBFT's RPC shows.
	ConsensusAddress string `json:"consensusAddress"`
	// Operator and Account are one address in its two bech32 forms.
	Operator string `json:"operator"`
	Account  string `json:"account"`
	// Home, RPC and REST are set for networks of plain node homes.
	Home string `json:"home,omitempty"`
	RPC  string `json:"rpc,omitempty"`
	REST string `json:"rest,omitempty"`
}

func newSummary(opts Options, ids []identity) Summary {
	s := Summary{ChainID: opts.ChainID, Validators: opts.Validators}
	for _, id := range ids {
		n := Node{
			Name: nodeName(id.ordinal), Ordinal: id.ordinal, Genesis: id.ordinal < opts.Validators,
			NodeID: id.nodeID(), ConsensusAddress: id.consensusAddress(),
			Operator: id.valoper(), Account: id.account().String(),
		}
		if opts.Format == FormatFiles {
			n.Home = nodeHome(opts.Output, id.ordinal)
			n.RPC = fmt.Sprintf("http://%s:%d", opts.nodeAddress(id.ordinal), nodeconfig.RPCPort)
			n.REST = fmt.Sprintf("http://%s:%d", opts.nodeAddress(id.ordinal), nodeconfig.RESTPort)
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func (s Summary) encode() ([]byte, error) {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode summary: %w", err)
	}
	return append(raw, '\n'), nil
}
