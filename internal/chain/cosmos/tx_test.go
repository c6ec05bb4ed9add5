package cosmos

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decred/dcrd/bech32"
	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
)

var words12 = strings.Repeat("abandon ", 11) + "about"

// consensusHex is a public key whose addresses are known from the SDK.
const consensusHex = "684199b32633a579645b0cfbfa80cfb61e3f8b02fea28bd59d3ab3d9579605d8"

func mustSettings(t testing.TB, options map[string]string) settings {
	t.Helper()
	s, err := parseSettings(options)
	require.NoError(t, err)
	return s
}

func mustValidator(t testing.TB, operator string) keys.Validator {
	t.Helper()
	pub, err := hex.DecodeString(consensusHex)
	require.NoError(t, err)
	return keys.Validator{Ordinal: 4, Consensus: pub, Operator: keys.Secret(operator), Source: "Secret ns/validator-4-keys"}
}

func mustOperator(t testing.TB, options map[string]string, operator string) operator {
	t.Helper()
	op, err := mustSettings(t, options).operator(mustValidator(t, operator))
	require.NoError(t, err)
	return op
}

// The keys and addresses are what cosmos-sdk v0.53.8 derives.
func TestOperatorKeysAndAddresses(t *testing.T) {
	t.Parallel()
	address := func(text string) string {
		_, raw, err := bech32.DecodeToBase256(text)
		require.NoError(t, err)
		return strings.ToUpper(hex.EncodeToString(raw))
	}
	op := mustOperator(t, nil, words12)
	require.Equal(t, "c4a48e2fce1481cd3294b4490f6678090ea98d3d0e5cd984558ab0968741b104", hex.EncodeToString(op.key.Serialize()))
	require.Equal(t, "cosmos19rl4cm2hmr8afy4kldpxz3fka4jguq0auqdal4", op.account)
	require.Equal(t, "28FF5C6D57D8CFD492B6FB42614536ED648E01FD", address(op.account))
	require.Equal(t, "28FF5C6D57D8CFD492B6FB42614536ED648E01FD", address(op.valoper))
	require.True(t, strings.HasPrefix(op.valoper, "cosmosvaloper1"))
	require.True(t, strings.HasPrefix(op.valcons, "cosmosvalcons1"))
	require.Equal(t, "8A5875C75081AEFB603A23178350AE4542803C24", op.address)
	require.Equal(t, op.address, address(op.valcons))

	require.Equal(t, op.account, mustOperator(t, nil, "c4a48e2fce1481cd3294b4490f6678090ea98d3d0e5cd984558ab0968741b104").account)
	require.Equal(t, "4418D0B4D9C1EF0E53DFB99143677E1E52354622", address(mustOperator(t, map[string]string{"coinType": "60"}, words12).account))
	require.Equal(t, "1D19480DBDF192BBC6F35415A59983C0E6BFB65C", address(mustOperator(t, nil, strings.Repeat("abandon ", 23)+"art").account))

	pokt := mustOperator(t, map[string]string{"bech32Prefix": "pokt"}, words12)
	require.True(t, strings.HasPrefix(pokt.valoper, "poktvaloper1"))
}

func TestKeysOutOfTheCurveAreRefused(t *testing.T) {
	t.Parallel()
	order := fmt.Sprintf("%064x", secp256k1.Params().N)
	for _, bad := range []string{strings.Repeat("00", 32), order, strings.Repeat("ff", 32)} {
		_, err := mustSettings(t, nil).operator(mustValidator(t, bad))
		require.True(t, fault.Is(err, fault.Config), "%v", err)
		require.ErrorContains(t, err, "out of range")
		require.NotContains(t, err.Error(), bad)
	}
	_, err := mustSettings(t, nil).operator(keys.Validator{Source: "Secret ns/x"})
	require.True(t, fault.Is(err, fault.Config), "%v", err)
	require.ErrorContains(t, err, "Secret ns/x")
}

func TestOperatorDoesNotPrint(t *testing.T) {
	t.Parallel()
	op := mustOperator(t, nil, words12)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		require.Equal(t, "[operator]", fmt.Sprintf(verb, op))
	}
}

// The bytes in testdata were made by cosmos-sdk v0.53.8's own encoder and
// signer from the same key, messages, memo, fee and timeout height.
func TestTransactionsAreTheBytesThatTheSDKMakes(t *testing.T) {
	t.Parallel()
	op := mustOperator(t, nil, words12)
	s := mustSettings(t, nil)
	amount := big.NewInt(50000000)
	base := unsigned{
		chainID: "vector-1", memo: "rollcall token=7 run=9a1c", timeout: 77,
		account: 5, sequence: 3, gas: 240000, fee: big.NewInt(6000), feeDenom: "stake",
	}
	for name, build := range map[string]func(u unsigned) unsigned{
		"create": func(u unsigned) unsigned {
			u.msgs = []message{s.msgCreateValidator(op, "validator-4", amount)}
			return u
		},
		"restake": func(u unsigned) unsigned {
			u.msgs = []message{s.msgDelegate(op, amount), msgUnjail(op)}
			return u
		},
		"undelegate": func(u unsigned) unsigned {
			u.msgs, u.fee, u.sequence = []message{s.msgUndelegate(op, big.NewInt(49500000))}, new(big.Int), 0
			return u
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
			require.NoError(t, err)
			got := build(base).sign(op)
			require.Equal(t, strings.TrimSpace(string(want)), hex.EncodeToString(got.raw))
			require.Len(t, got.hash, 64)
			require.EqualValues(t, 77, got.timeout)
		})
	}
}

func TestGasAndFeeAreRoundedUp(t *testing.T) {
	t.Parallel()
	p, err := parsePrice("0.0025stake")
	require.NoError(t, err)
	require.EqualValues(t, 1502, scale(1001, big.NewRat(3, 2)))
	require.EqualValues(t, 1500, scale(1000, big.NewRat(3, 2)))
	require.Equal(t, "4", feeFor(1501, p).String())
	require.Equal(t, "1", feeFor(400, p).String())
	require.Equal(t, "0", feeFor(1501, price{amount: new(big.Rat)}).String())
}

func TestNodePrices(t *testing.T) {
	t.Parallel()
	free := price{amount: new(big.Rat), denom: "stake"}
	for list, want := range map[string]string{
		"":                                 "0 stake",
		"0stake":                           "0 stake",
		"0.025stake":                       "1/40 stake",
		"0.1photon":                        "1/10 photon",
		"0.1photon,0.025stake":             "1/40 stake",
		"0.1photon, 0.2ibc/27394FB092D2EC": "1/10 photon",
		"0.100000000000000000stake":        "1/10 stake",
		"nonsense,-1stake,,0.5stake":       "1/2 stake",
	} {
		got := choosePrice(list, free)
		require.Equal(t, want, got.amount.RatString()+" "+got.denom, list)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	s := mustSettings(t, map[string]string{"bech32Prefix": "pokt", "denom": "upokt", "gasPrice": "0.001upokt", "powerReduction": "1", "commissionRate": "0.05"})
	require.Equal(t, "50000000000000000", dec18(s.commission.rate))
	require.Equal(t, "upokt", s.gasPrice.denom)
	require.Nil(t, mustSettings(t, nil).gasPrice, "the node's price")

	_, err := parseSettings(map[string]string{
		"gasprice": "1stake", "denom": "1x", "bech32Prefix": "Cosmos", "coinType": "-1", "gasPrice": "cheap", "gasAdjustment": "0.5",
		"powerReduction": "0", "minSelfDelegation": "1.5", "commissionRate": "2", "commissionMaxRate": "0.1", "txTimeoutBlocks": "0", "haltAfter": "1h30",
	})
	require.True(t, fault.Is(err, fault.Config), "%v", err)
	for _, part := range []string{
		`unknown option "gasprice"`, "txTimeoutBlocks)", "denom", "bech32Prefix", "coinType", "gasPrice", "gasAdjustment",
		"haltAfter \"1h30\"", "powerReduction", "minSelfDelegation", "commissionRate", "txTimeoutBlocks \"0\"",
	} {
		require.ErrorContains(t, err, part)
	}
	_, err = parseSettings(map[string]string{"commissionRate": "0.3"})
	require.ErrorContains(t, err, "at most commissionMaxRate")
}

func TestEveryOptionIsDocumentedWithItsDefault(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for name, value := range defaults {
		require.Regexp(t, `(?m)^//\t`+name+` +`+value, string(doc))
	}
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	s := mustSettings(t, nil)
	for text, want := range map[string]int64{"100000000stake": 100, "100000000": 100, " 1500000 ": 1, "999999stake": 0} {
		got, err := s.Power(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, bad := range []string{"", "stake", "-1stake", "1.5stake", "0stake", "100uatom", "100stake,5stake", "1e9", strings.Repeat("9", 78)} {
		_, err := s.Power(bad)
		require.True(t, fault.Is(err, fault.Config), "%q: %v", bad, err)
	}
}
