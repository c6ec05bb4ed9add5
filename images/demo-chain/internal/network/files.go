package network

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

func nodeHome(output string, ordinal int) string {
	return filepath.Join(output, nodeName(ordinal))
}

// writeFiles makes one home per node, each with its own keys and
// operator.mnemonic, and network.json.
func writeFiles(opts Options, ids []identity, genesis []byte, summary Summary) error {
	for _, id := range ids {
		if err := writeHome(opts, ids, id, genesis); err != nil {
			return fmt.Errorf("write home of validator %d: %w", id.ordinal, err)
		}
	}
	raw, err := summary.encode()
	if err != nil {
		return err
	}
	return nodeconfig.WriteFile(filepath.Join(opts.Output, "network.json"), raw)
}

func writeHome(opts Options, all []identity, id identity, genesis []byte) error {
	home := nodeHome(opts.Output, id.ordinal)
	err := nodeconfig.Write(home, nodeconfig.Settings{
		Moniker: nodeName(id.ordinal), Listen: opts.nodeAddress(id.ordinal), PersistentPeers: opts.peers(all),
		BlockTime: opts.BlockTime, MinGasPrices: opts.MinGasPrices, ChainID: opts.ChainID,
	})
	if err != nil {
		return err
	}
	key, err := id.keyFile()
	if err != nil {
		return err
	}
	nodeKey, err := id.nodeKeyFile()
	if err != nil {
		return err
	}
	state, err := nodeconfig.EmptySigningState()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"config/genesis.json":            genesis,
		"config/priv_validator_key.json": key,
		"config/node_key.json":           nodeKey,
		"data/priv_validator_state.json": state,
		"operator.mnemonic":              []byte(id.mnemonic + "\n"),
	}
	for name, content := range files {
		// No fsync: a network whose making was cut short is made anew.
		if err := os.WriteFile(filepath.Join(home, name), content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
