package network

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/cometbft/cometbft/crypto/ed25519"
	cmtjson "github.com/cometbft/cometbft/libs/json"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/privval"
	"github.com/cosmos/cosmos-sdk/crypto/hd"
	cryptotypes "github.com/cosmos/cosmos-sdk/crypto/types"
	sdk "github.com/cosmos/cosmos-sdk/types"
	"github.com/cosmos/go-bip39"
)

// hdPath is the account of the Cosmos coin type that every wallet derives first.
const hdPath = "m/44'/118'/0'/0/0"

// identity is all the key material of one validator.
type identity struct {
	ordinal   int
	consensus ed25519.PrivKey
	node      ed25519.PrivKey
	operator  cryptotypes.PrivKey
	mnemonic  string
}

// entropy yields 32 bytes for a purpose.
type entropy func(purpose string) ([]byte, error)

func newEntropy(seed string) entropy {
	if seed == "" {
		return func(string) ([]byte, error) {
			b := make([]byte, 32)
			_, err := rand.Read(b)
			return b, err
		}
	}
	return func(purpose string) ([]byte, error) {
		mac := hmac.New(sha256.New, []byte(seed))
		mac.Write([]byte(purpose))
		return mac.Sum(nil), nil
	}
}

func newIdentity(ordinal int, from entropy) (identity, error) {
	draws := map[string][]byte{"consensus": nil, "node": nil, "operator": nil}
	for purpose := range draws {
		b, err := from(fmt.Sprintf("%s/%d", purpose, ordinal))
		if err != nil {
			return identity{}, fmt.Errorf("draw randomness: %w", err)
		}
		draws[purpose] = b
	}
	mnemonic, err := bip39.NewMnemonic(draws["operator"])
	if err != nil {
		return identity{}, fmt.Errorf("make mnemonic: %w", err)
	}
	secret, err := hd.Secp256k1.Derive()(mnemonic, "", hdPath)
	if err != nil {
		return identity{}, fmt.Errorf("derive operator key: %w", err)
	}
	return identity{
		ordinal:   ordinal,
		consensus: ed25519.GenPrivKeyFromSecret(draws["consensus"]),
		node:      ed25519.GenPrivKeyFromSecret(draws["node"]),
		operator:  hd.Secp256k1.Generate()(secret),
		mnemonic:  mnemonic,
	}, nil
}

func newIdentities(n int, seed string) ([]identity, error) {
	from := newEntropy(seed)
	ids := make([]identity, n)
	for i := range ids {
		id, err := newIdentity(i, from)
		if err != nil {
			return nil, fmt.Errorf("make keys of validator %d: %w", i, err)
		}
		ids[i] = id
	}
	return ids, nil
}

func (id identity) nodeID() string { return string(p2p.PubKeyToID(id.node.PubKey())) }

// account is the operator's address in bytes; bech32 shows it as cosmos1... or
// cosmosvaloper1...
func (id identity) account() sdk.AccAddress { return sdk.AccAddress(id.operator.PubKey().Address()) }

func (id identity) valoper() string { return sdk.ValAddress(id.account()).String() }

func (id identity) consensusAddress() string { return id.consensus.PubKey().Address().String() }

// keyFile is the priv_validator_key.json.
func (id identity) keyFile() ([]byte, error) {
	raw, err := cmtjson.MarshalIndent(privval.FilePVKey{
		Address: id.consensus.PubKey().Address(), PubKey: id.consensus.PubKey(), PrivKey: id.consensus,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode consensus key: %w", err)
	}
	return raw, nil
}

// nodeKeyFile is the node_key.json.
func (id identity) nodeKeyFile() ([]byte, error) {
	raw, err := cmtjson.Marshal(p2p.NodeKey{PrivKey: id.node})
	if err != nil {
		return nil, fmt.Errorf("encode node key: %w", err)
	}
	return raw, nil
}
