package comet

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxSets bounds the cache. A set changes with every join, leave and change of
// stake; a run looks at a window of some heights.
const maxSets = 32

// setCache remembers sets by their Merkle root, which no two sets share.
type setCache struct {
	mu    sync.Mutex
	byKey map[string][]member
	order []string
}

func newSetCache() *setCache { return &setCache{byKey: map[string][]member{}} }

func (c *setCache) get(hash string) ([]member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.byKey[hash]
	return m, ok
}

func (c *setCache) put(hash string, m []member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[hash]; ok {
		return
	}
	if len(c.order) == maxSets {
		delete(c.byKey, c.order[0])
		c.order = slices.Delete(c.order, 0, 1)
	}
	c.byKey[hash] = m
	c.order = append(c.order, hash)
}

var errUnhashable = errors.New("unknown key type")

// hashSet computes a header's validators_hash: the RFC 6962 Merkle root over
// the protobuf SimpleValidator{1: PublicKey{1: ed25519 | 2: secp256k1}, 2: power}
// of each validator, in the set's order. It returns errUnhashable for other
// types of keys.
func hashSet(members []member) (string, error) {
	leaves := make([][]byte, len(members))
	for i, m := range members {
		var field protowire.Number
		switch m.keyType {
		case keyEd25519:
			field = 1
		case keySecp256k1:
			field = 2
		default:
			return "", errUnhashable
		}
		key := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), m.PubKey)
		leaf := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), key)
		leaf = protowire.AppendVarint(protowire.AppendTag(leaf, 2, protowire.VarintType), uint64(m.Power))
		leaves[i] = leaf
	}
	return strings.ToUpper(hex.EncodeToString(merkleRoot(leaves))), nil
}

func merkleRoot(leaves [][]byte) []byte {
	switch len(leaves) {
	case 0:
		sum := sha256.Sum256(nil)
		return sum[:]
	case 1:
		sum := sha256.Sum256(append([]byte{0}, leaves[0]...))
		return sum[:]
	}
	// The left side holds the largest power of two below the number of leaves.
	split := 1
	for split*2 < len(leaves) {
		split *= 2
	}
	inner := append([]byte{1}, merkleRoot(leaves[:split])...)
	sum := sha256.Sum256(append(inner, merkleRoot(leaves[split:])...))
	return sum[:]
}
