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

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

// The names of the key files, in the Secret as well as in a node's home.
const (
	consensusKeyName = "priv_validator_key.json"
	nodeKeyName      = "node_key.json"
)

// keys are a node's key files, checked, and their public side.
type keys struct {
	consensusAddress, nodeID string
	files                    map[string][]byte
}

// copyTo puts the key files into a folder, with mode 0600.
func (k keys) copyTo(dir string) error {
	for name, content := range k.files {
		if err := nodeconfig.WriteFile(filepath.Join(dir, name), content); err != nil {
			return fmt.Errorf("keep keys in memory: %w", err)
		}
	}
	return nil
}

// loadKeys checks the two key files of a node. Its errors never carry a
// decoder's message, which could quote the file.
func loadKeys(dir, name string) (keys, error) {
	k := keys{files: map[string][]byte{}}
	raw, err := readKey(dir, consensusKeyName, name)
	if err != nil {
		return keys{}, err
	}
	var consensus privval.FilePVKey
	if err := cmtjson.Unmarshal(raw, &consensus); err != nil {
		return keys{}, malformed(name, consensusKeyName, "not a CometBFT priv_validator_key")
	}
	private, ok := consensus.PrivKey.(ed25519.PrivKey)
	if !ok || len(private) != ed25519.PrivateKeySize {
		return keys{}, malformed(name, consensusKeyName, "its private key is not an ed25519 key")
	}
	// The second half of an ed25519 key repeats the public key, so compare with
	// what the first half really yields.
	derived := ed25519.PrivKey(stded25519.NewKeyFromSeed(private[:stded25519.SeedSize]))
	if !derived.Equals(private) || consensus.PubKey == nil || !derived.PubKey().Equals(consensus.PubKey) ||
		!bytes.Equal(consensus.Address, derived.PubKey().Address()) {
		return keys{}, malformed(name, consensusKeyName, "its private key, public key and address do not belong together")
	}
	k.consensusAddress = consensus.Address.String()
	k.files[consensusKeyName] = raw

	raw, err = readKey(dir, nodeKeyName, name)
	if err != nil {
		return keys{}, err
	}
	var node p2p.NodeKey
	if err := cmtjson.Unmarshal(raw, &node); err != nil || node.PrivKey == nil {
		return keys{}, malformed(name, nodeKeyName, "not a CometBFT node key")
	}
	k.nodeID = string(node.ID())
	k.files[nodeKeyName] = raw
	return k, nil
}

func readKey(dir, file, name string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no key for %s: Secret %s-keys does not exist or has no %s; create it, and this pod goes on within minutes", name, name, file)
	}
	if err != nil {
		return nil, fmt.Errorf("read key of %s: %w", name, err)
	}
	return raw, nil
}

func malformed(name, file, why string) error {
	return fmt.Errorf("bad key for %s: %s in Secret %s-keys is malformed: %s", name, file, name, why)
}
