package comet

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollcall-dev/rollcall/internal/chain"
)

// precommit is the type of the votes that make a commit.
const precommit = 2

// signBytes is what a validator signed for its part of the commit: the length
// and the protobuf CanonicalVote{1: type, 2: height, 3: round (both sfixed64),
// 4: block id, 5: timestamp, 6: chain id} of CometBFT's data structures. A vote
// for nil has no block id.
func (h signedHeader) signBytes(s signature) []byte {
	fixed := func(b []byte, n protowire.Number, v int64) []byte {
		if v == 0 {
			return b
		}
		return binary.LittleEndian.AppendUint64(protowire.AppendTag(b, n, protowire.Fixed64Type), uint64(v))
	}
	varint := func(b []byte, n protowire.Number, v uint64) []byte {
		if v == 0 {
			return b
		}
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	embed := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	vote := varint(nil, 1, precommit)
	vote = fixed(vote, 2, h.height)
	vote = fixed(vote, 3, int64(h.round))
	if s.vote == chain.ForBlock {
		parts := embed(varint(nil, 1, uint64(h.block.partsTotal)), 2, h.block.partsHash)
		vote = embed(vote, 4, embed(embed(nil, 1, h.block.hash), 2, parts))
	}
	stamp := varint(nil, 1, uint64(s.time.Unix()))
	stamp = varint(stamp, 2, uint64(s.time.Nanosecond()))
	vote = embed(vote, 5, stamp)
	vote = embed(vote, 6, []byte(h.chainID))
	return protowire.AppendBytes(nil, vote)
}
