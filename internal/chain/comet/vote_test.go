package comet

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/chain"
)

// The bytes were made by CometBFT v0.38.26's types.VoteSignBytes.
func TestVotesAreTheBytesThatCometBFTSigns(t *testing.T) {
	t.Parallel()
	h := signedHeader{
		chainID: "vector-1", height: 12345,
		block: blockID{hash: bytes.Repeat([]byte{0xAB}, 32), partsTotal: 3, partsHash: bytes.Repeat([]byte{0xCD}, 32)},
	}
	at := time.Date(2026, 12, 1, 15, 4, 5, 67890, time.UTC)
	inRound := h
	inRound.round = 2
	require.Equal(t, "74080211393000000000000019020000000000000022480a20abababababababababababababababababababababababababababababababab122408031220cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd2a0a08e5c3bbd80610b292043208766563746f722d31",
		hex.EncodeToString(inRound.signBytes(signature{vote: chain.ForBlock, time: at})))
	require.Equal(t, "2108021139300000000000002a0a08e5c3bbd80610b292043208766563746f722d31",
		hex.EncodeToString(h.signBytes(signature{vote: chain.ForNil, time: at})), "a vote for nil, in round 0")
}
