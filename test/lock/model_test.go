package lock

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// op is an operation that took from call to ret, in tenths of the TTL.
func op(client int, k kind, token, call, ret int64, edit ...func(*output)) porcupine.Operation {
	const tenth = int64(time.Second / 10)
	in, out := input{Lock: "l", Kind: k, Token: token}, output{Returned: time.Duration(ret * tenth)}
	if k == acquire {
		in.Token, out.Token, out.Renewed = 0, token, time.Duration(call*tenth)
	}
	for _, e := range edit {
		e(&out)
	}
	o := porcupine.Operation{ClientId: client, Input: in, Call: call * tenth, Output: out, Return: ret * tenth}
	if out.Unknown {
		o.Return = never
	}
	return o
}

func refused(o *output) { o.Refused = true }
func unknown(o *output) { o.Unknown = true }
func renewedAt(tenths int64) func(*output) {
	return func(o *output) { o.Renewed = time.Duration(tenths) * time.Second / 10 }
}

func TestTheModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		history []porcupine.Operation
		good    bool
	}{
		"one after the other": {good: true, history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(0, effect, 1, 1, 2), op(0, release, 1, 2, 3), op(1, acquire, 2, 1, 4), op(1, effect, 2, 4, 5),
		}},
		"takeover after the TTL": {good: true, history: []porcupine.Operation{op(0, acquire, 1, 0, 1), op(1, acquire, 2, 2, 11)}},
		"takeover of a run that is over": {good: true, history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(2, kill, 1, 2, 3), op(1, acquire, 2, 3, 4),
		}},
		"takeover after force": {good: true, history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(2, force, 1, 2, 3), op(1, acquire, 3, 3, 4),
		}},
		"takeover after a release that may have happened": {good: true, history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(0, release, 1, 2, 3, unknown), op(1, acquire, 2, 3, 4),
		}},
		"late effect that is refused": {good: true, history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(1, acquire, 2, 2, 11), op(1, effect, 2, 11, 12), op(0, effect, 1, 12, 13, refused),
		}},
		"force of a holding whose run died before it knew": {good: true, history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(0, release, 1, 1, 2), op(2, force, 2, 4, 5), op(1, acquire, 4, 6, 7),
		}},
		"a token below a forced one": {history: []porcupine.Operation{op(2, force, 2, 0, 1), op(1, acquire, 2, 3, 4)}},
		"the same token twice": {history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(0, release, 1, 1, 2), op(1, acquire, 1, 3, 4),
		}},
		"a token that goes down": {history: []porcupine.Operation{
			op(0, acquire, 2, 0, 1), op(0, release, 2, 1, 2), op(1, acquire, 1, 3, 4),
		}},
		"two holders at once": {history: []porcupine.Operation{op(0, acquire, 1, 0, 1), op(1, acquire, 2, 2, 3)}},
		"a holder that renewed is robbed": {history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(0, confirm, 1, 8, 9, renewedAt(8)), op(1, acquire, 2, 10, 12),
		}},
		"an old token is confirmed": {history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(1, acquire, 2, 2, 11), op(0, confirm, 1, 12, 13),
		}},
		"an old token is confirmed after force": {history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(1, force, 1, 2, 3), op(0, confirm, 1, 4, 5),
		}},
		"a late effect is applied": {history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(1, acquire, 2, 2, 11), op(1, effect, 2, 11, 12), op(0, effect, 1, 13, 14),
		}},
		"an effect is refused for nothing": {history: []porcupine.Operation{op(0, acquire, 1, 0, 1), op(0, effect, 1, 1, 2, refused)}},
		"a release that wasn't the holder's": {history: []porcupine.Operation{
			op(0, acquire, 1, 0, 1), op(1, acquire, 2, 2, 11), op(0, release, 1, 12, 13),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.good, porcupine.CheckOperations(model(time.Second), c.history))
		})
	}
}
