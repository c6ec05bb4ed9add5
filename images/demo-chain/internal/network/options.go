package network

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	cmttypes "github.com/cometbft/cometbft/types"
	sdk "github.com/cosmos/cosmos-sdk/types"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/app"
	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

// The forms a network is written in.
const (
	FormatFiles      = "files"
	FormatKubernetes = "kubernetes"
)

// Options describe the network to make.
type Options struct {
	ChainID string
	// Validators are staked in the genesis; Accounts, which counts them too,
	// are funded and have keys, so that the rest can be staked later.
	Validators, Accounts int
	// Balance and Stake are amounts of app.Denom: of every account, and the part
	// of it that a genesis validator stakes. 1,000,000 is one unit of power.
	Balance, Stake int64

	UnbondingTime time.Duration
	// JailTime is how long a validator that missed too many blocks stays jailed.
	JailTime time.Duration
	// SignedBlocksWindow is the number of blocks of which half must be signed.
	SignedBlocksWindow int
	MaxValidators      int
	GenesisTime        time.Time

	// Seed makes keys reproducible; empty for random ones.
	Seed   string
	Output string
	Format string

	// For FormatFiles. Node i listens on the i-th address from Address on, with
	// the usual ports.
	Address      string
	BlockTime    time.Duration
	MinGasPrices string

	// Service is, for FormatKubernetes, the headless Service's name.
	Service string
}

// DefaultOptions are those of the demo network of 4 validators.
func DefaultOptions() Options {
	return Options{
		ChainID: "rollcall-demo-1", Validators: 4, Accounts: 16,
		Balance: 10_000_000_000, Stake: 100_000_000,
		// Half of 60 blocks of 1 s: a pod has 30 s to restart.
		UnbondingTime: 20 * time.Second, JailTime: time.Minute, SignedBlocksWindow: 60, MaxValidators: 20,
		Format: FormatFiles, Address: "127.0.0.1", BlockTime: time.Second, MinGasPrices: "0" + app.Denom,
		Service: "validator",
	}
}

// validate returns every problem, joined.
func (o Options) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(o.ChainID != "" && len(o.ChainID) <= cmttypes.MaxChainIDLen, "chain-id must have 1 to %d characters", cmttypes.MaxChainIDLen)
	check(o.Validators >= 1, "validators must be at least 1, not %d", o.Validators)
	check(o.Accounts >= o.Validators, "accounts (%d) count the validators (%d) too, so they cannot be fewer", o.Accounts, o.Validators)
	check(o.Accounts <= 200, "accounts must be at most 200, not %d", o.Accounts)
	check(o.Stake >= sdk.DefaultPowerReduction.Int64(), "stake must be at least %s, which is one unit of voting power, not %d", sdk.DefaultPowerReduction, o.Stake)
	check(o.Balance >= o.Stake, "balance (%d) must cover the stake (%d)", o.Balance, o.Stake)
	check(o.UnbondingTime > 0, "unbonding-time must be positive, not %s", o.UnbondingTime)
	check(o.JailTime >= time.Minute, "jail-time must be at least 1m0s, which is the chain's own limit, not %s", o.JailTime)
	check(o.SignedBlocksWindow >= 2, "signed-blocks-window must be at least 2, not %d", o.SignedBlocksWindow)
	check(o.MaxValidators >= o.Validators && o.MaxValidators <= 65535, "max-validators must be %d to 65535, not %d", o.Validators, o.MaxValidators)
	check(o.BlockTime >= 10*time.Millisecond, "block-time must be at least 10ms, not %s", o.BlockTime)
	_, err := sdk.ParseDecCoins(o.MinGasPrices)
	check(err == nil && o.MinGasPrices != "", "min-gas-prices %q is not an amount such as 0.001%s", o.MinGasPrices, app.Denom)
	check(o.Output != "", "output folder missing: give --output DIR")
	check(o.Format == FormatFiles || o.Format == FormatKubernetes, "format must be %s or %s, not %q", FormatFiles, FormatKubernetes, o.Format)
	addr, err := netip.ParseAddr(o.Address)
	check(err == nil && addr.Is4(), "address %q is not an IPv4 address", o.Address)
	check(o.Service != "" && !strings.ContainsAny(o.Service, "/:@, "), "service %q is not a Service name", o.Service)
	return errors.Join(problems...)
}

// nodeName is the moniker of a node, and the name of its pod.
func nodeName(ordinal int) string { return fmt.Sprintf("validator-%d", ordinal) }

// peerHost is the name or address under which other nodes find a node.
func (o Options) peerHost(ordinal int) string {
	if o.Format == FormatKubernetes {
		return nodeName(ordinal) + "." + o.Service
	}
	return o.nodeAddress(ordinal)
}

func (o Options) nodeAddress(ordinal int) string {
	// validate has parsed it.
	addr := netip.MustParseAddr(o.Address)
	for range ordinal {
		addr = addr.Next()
	}
	return addr.String()
}

// peers are the genesis validators: the nodes that are there from the start.
func (o Options) peers(ids []identity) []string {
	peers := make([]string, 0, o.Validators)
	for _, id := range ids[:o.Validators] {
		peers = append(peers, fmt.Sprintf("%s@%s:%d", id.nodeID(), o.peerHost(id.ordinal), nodeconfig.P2PPort))
	}
	return peers
}
