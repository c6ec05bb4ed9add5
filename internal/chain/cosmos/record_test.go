package cosmos

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

func TestStatusOfARecord(t *testing.T) {
	t.Parallel()
	entry := []time.Time{time.Unix(1700000000, 0)}
	record := func(status uint64, jailed bool, tokens int64) *validator {
		return &validator{status: status, jailed: jailed, tokens: big.NewInt(tokens), minSelf: big.NewInt(10)}
	}
	for name, c := range map[string]struct {
		facts facts
		own   int64
		want  chain.Status
	}{
		"no record":                                      {facts{}, 0, chain.Unstaked},
		"no record, funds still locked":                  {facts{unbonding: entry}, 0, chain.Unstaking},
		"bonded":                                         {facts{record: record(bondBonded, false, 100)}, 100, chain.Bonded},
		"bonded, part of the stake withdrawn":            {facts{record: record(bondBonded, false, 50), unbonding: entry}, 50, chain.Bonded},
		"staked outside a full set":                      {facts{record: record(bondUnbonded, false, 100)}, 100, chain.Waiting},
		"pushed out of a full set":                       {facts{record: record(bondUnbonding, false, 100)}, 100, chain.Waiting},
		"everything withdrawn":                           {facts{record: record(bondUnbonding, true, 0), unbonding: entry}, 0, chain.Unstaking},
		"everything withdrawn, others delegated":         {facts{record: record(bondUnbonding, true, 500), unbonding: entry}, 0, chain.Unstaking},
		"withdrawn long ago, others delegated":           {facts{record: record(bondUnbonded, true, 500)}, 0, chain.Unstaked},
		"nearly everything withdrawn":                    {facts{record: record(bondUnbonding, true, 5), unbonding: entry}, 5, chain.Unstaking},
		"jailed":                                         {facts{record: record(bondUnbonding, true, 99)}, 99, chain.Jailed},
		"jailed with an old withdrawal under way":        {facts{record: record(bondUnbonding, true, 99), unbonding: entry}, 99, chain.Jailed},
		"jailed and slashed below the minimum":           {facts{record: record(bondUnbonding, true, 9)}, 9, chain.Jailed},
		"tombstoned":                                     {facts{record: record(bondUnbonding, true, 95), signing: signing{tombstoned: true}}, 95, chain.Tombstoned},
		"tombstoned and withdrawn":                       {facts{record: record(bondUnbonding, true, 0), unbonding: entry, signing: signing{tombstoned: true}}, 0, chain.Tombstoned},
		"tombstoned, record gone":                        {facts{signing: signing{tombstoned: true}}, 0, chain.Tombstoned},
		"a record without tokens that nobody jailed":     {facts{record: record(bondUnbonded, false, 0)}, 10, chain.Unstaked},
		"others delegated, own stake at the minimum":     {facts{record: record(bondBonded, false, 510)}, 10, chain.Bonded},
		"own stake below the minimum without withdrawal": {facts{record: record(bondBonded, false, 505)}, 5, chain.Bonded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.facts.own = big.NewInt(c.own)
			require.Equal(t, c.want, c.facts.status())
		})
	}
}

func TestRecordNeedsNoKeys(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	a := adapterFor(t, f)
	full := mustOperator(t, nil, words12).identity()
	r, err := a.Record(t.Context(), chain.Identity{Operator: full.Operator, Address: full.Address})
	require.NoError(t, err)
	require.Equal(t, chain.Waiting, r.Status)
	require.False(t, r.Foreign)
	require.EqualValues(t, 50, r.Power)
	require.Zero(t, r.JailedUntil)

	for _, bad := range []chain.Identity{{}, {Operator: "cosmosvaloper1x", Address: full.Address}, {Operator: full.Account, Address: full.Address}, {Operator: full.Operator, Address: "AB"}} {
		_, err := a.Record(t.Context(), bad)
		require.True(t, fault.Is(err, fault.Config), "%v", err)
	}
}

func TestWithdrawalsAreLimitedByTheChain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.unbonding = 7
	_, err := unstake(t, adapterFor(t, f))
	require.True(t, fault.Is(err, fault.Chain), "%v", err)
	require.ErrorContains(t, err, "7 withdrawals under way")
	require.ErrorContains(t, err, "2023-11-14T22:15:00Z")
	require.Empty(t, f.sent())
}

func TestAccountsThatEmbedAnother(t *testing.T) {
	t.Parallel()
	base := message(nil).str(1, "cosmos1x").sub(2, packAny(urlSecp256k1, nil)).uint(3, 5).uint(4, 9)
	wrap := func(m message) message { return message(nil).sub(1, m).uint(2, 77) }
	for url, value := range map[string]message{
		"/cosmos.auth.v1beta1.BaseAccount":                 base,
		"/cosmos.auth.v1beta1.ModuleAccount":               wrap(base),
		"/cosmos.vesting.v1beta1.BaseVestingAccount":       wrap(base),
		"/cosmos.vesting.v1beta1.ContinuousVestingAccount": wrap(wrap(base)),
		"/cosmos.vesting.v1beta1.PermanentLockedAccount":   wrap(wrap(base)),
		"/cosmos.vesting.v1beta1.PeriodicVestingAccount":   wrap(wrap(base)),
		"/cosmos.vesting.v1beta1.DelayedVestingAccount":    wrap(wrap(base)),
	} {
		got, err := parseAccount(message(nil).sub(1, packAny(url, value)))
		require.NoError(t, err, url)
		require.Equal(t, account{number: 5, sequence: 9}, got, url)
	}
	for _, bad := range []message{nil, message(nil).sub(1, packAny("/ethermint.types.v1.EthAccount", wrap(base))), message(nil).sub(1, packAny("/cosmos.auth.v1beta1.BaseAccount", nil))} {
		_, err := parseAccount(bad)
		require.Error(t, err)
	}
}

func TestPlacesInAFullSetGoByPowerThenAddress(t *testing.T) {
	t.Parallel()
	a := &Adapter{settings: mustSettings(t, nil)}
	x := mustOperator(t, nil, words12).valoper                                 // 28FF...
	y := mustOperator(t, map[string]string{"coinType": "60"}, words12).valoper // 4418...
	require.True(t, a.before(y, 2, x, 1))
	require.False(t, a.before(x, 1, y, 2))
	require.True(t, a.before(x, 1, y, 1), "of equal powers the smaller address is first")
	require.False(t, a.before(y, 1, x, 1))
}

// What a node says is foreign: no bytes make a parser panic, and what is taken
// has the limits that the rest relies on.
func FuzzParsers(f *testing.F) {
	v := message(nil).str(1, "cosmosvaloper1x").sub(2, packAny(urlEd25519, message(nil).bytes(1, make([]byte, 32)))).uint(3, 1).uint(4, 3).str(5, "100").str(11, "1")
	f.Add([]byte(message(nil).sub(1, v)))
	f.Add([]byte(message(nil).sub(1, v).sub(1, v).sub(2, message(nil).bytes(1, []byte("next")))))
	f.Add([]byte(message(nil).sub(1, message(nil).sub(1, message(nil).uint(1, 20).uint(2, 1<<40)).uint(2, 20).uint(3, 7).str(5, "stake").str(6, "50000000000000000"))))
	f.Add([]byte(message(nil).sub(1, message(nil).sub(1, nil).sub(2, coin("stake", big.NewInt(5))))))
	f.Add([]byte(message(nil).sub(1, message(nil).sub(4, message(nil).uint(1, 1<<63)).uint(5, 1))))
	f.Add([]byte(message(nil).sub(1, packAny("/cosmos.vesting.v1beta1.DelayedVestingAccount", message(nil).sub(1, message(nil).sub(1, nil))))))
	f.Add([]byte(`{"gas_info":{"gas_used":"5"}}`))
	f.Add(protowire.AppendTag(nil, 1, protowire.StartGroupType))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if v, err := parseValidatorResponse(raw); err == nil && (v.tokens.Sign() < 0 || v.status < bondUnbonded || v.status > bondBonded) {
			t.Fatalf("%+v", v)
		}
		_, _ = parseValidatorsResponse(raw)
		if p, err := parseParams(raw); err == nil && (p.maxValidators <= 0 || p.maxEntries < 0) {
			t.Fatalf("%+v", p)
		}
		if n, err := parseDelegation(raw); err == nil && n.Sign() < 0 {
			t.Fatal(n)
		}
		_, _ = parseUnbonding(raw)
		if s, err := parseSigning(raw); err == nil && s.jailedUntil.Year() > 9999 {
			t.Fatal(s.jailedUntil)
		}
		_, _ = parseAccount(raw)
		if gas, err := parseSimulation(raw); err == nil && scale(gas, big.NewRat(10, 1))*2 < gas {
			t.Fatal("overflow")
		}
		_ = choosePrice(string(raw), price{amount: new(big.Rat), denom: "stake"})
	})
}
