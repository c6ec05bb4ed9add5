package initnode

import (
	"bytes"
	stded25519 "crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cometbft/cometbft/crypto/ed25519"
	cmtjson "github.com/cometbft/cometbft/libs/json"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/privval"
)

// keys are the public side of a node's key files, and where these are.
type keys struct {
	consensusAddress, nodeID string
	keyFile, nodeKeyFile     string
}

// loadKeys checks the two key files of a node. Its errors never carry a
// decoder's message, which could quote the file.
func loadKeys(dir, name string) (keys, error) {
	k := keys{keyFile: filepath.Join(dir, "priv_validator_key.json"), nodeKeyFile: filepath.Join(dir, "node_key.json")}

	raw, err := readKey(k.keyFile, name)
	if err != nil {
		return keys{}, err
	}
	var consensus privval.FilePVKey
	if err := cmtjson.Unmarshal(raw, &consensus); err != nil {
		return keys{}, malformed(name, k.keyFile, "not a CometBFT priv_validator_key")
	}
	private, ok := consensus.PrivKey.(ed25519.PrivKey)
	if !ok || len(private) != ed25519.PrivateKeySize {
		return keys{}, malformed(name, k.keyFile, "its private key is not an ed25519 key")
	}
	// The second half of an ed25519 key repeats the public key, so compare with
	// what the first half really yields.
	derived := ed25519.PrivKey(stded25519.NewKeyFromSeed(private[:stded25519.SeedSize]))
	if !derived.Equals(private) || consensus.PubKey == nil || !derived.PubKey().Equals(consensus.PubKey) ||
		!bytes.Equal(consensus.Address, derived.PubKey().Address()) {
		return keys{}, malformed(name, k.keyFile, "its private key, public key and address do not belong together")
	}
	k.consensusAddress = consensus.Address.String()

	raw, err = readKey(k.nodeKeyFile, name)
	if err != nil {
		return keys{}, err
	}
	var node p2p.NodeKey
	if err := cmtjson.Unmarshal(raw, &node); err != nil || node.PrivKey == nil {
		return keys{}, malformed(name, k.nodeKeyFile, "not a CometBFT node key")
	}
	k.nodeID = string(node.ID())
	return k, nil
}

func readKey(path, name string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no key for %s: Secret %s-keys does not exist or has no %s; create it, then delete this pod", name, name, filepath.Base(path))
	}
	if err != nil {
		return nil, fmt.Errorf("read key of %s: %w", name, err)
	}
	return raw, nil
}

func malformed(name, path, why string) error {
	return fmt.Errorf("bad key for %s: %s in Secret %s-keys is malformed: %s", name, filepath.Base(path), name, why)
}
