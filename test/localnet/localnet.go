package localnet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// waitLimit bounds every wait for the chain; generous, for busy machines.
	waitLimit = 2 * time.Minute
	pollEvery = 100 * time.Millisecond
	// stopPatience is what a node gets to end by itself.
	stopPatience = 20 * time.Second
	cliTimeout   = time.Minute
	logLines     = 40
)

// Options describe a network. Zero values mean the default named at each field.
type Options struct {
	// Genesis is the number of validators in the genesis, which Start starts; 4.
	Genesis int
	// Accounts is the number of nodes with keys and funds, Genesis included;
	// Genesis + 2. Those after the genesis validators are started by StartNode.
	Accounts int
	// ChainID is unique for each network by default.
	ChainID string
	// BlockTime is the pause between blocks; 300 ms.
	BlockTime time.Duration
	// UnbondingTime is the time until undelegated stake is free; 20 s.
	UnbondingTime time.Duration
	// SignedBlocksWindow is the number of blocks of which a validator must sign
	// half, or be jailed for a minute; 200.
	SignedBlocksWindow int
	// MaxValidators limits the validator set; 20.
	MaxValidators int
	// MinGasPrices is what nodes accept; 0stake.
	MinGasPrices string
	// Balance is what each account owns, and Stake what each genesis validator
	// bonds of it, in stake; 10,000,000,000 and 100,000,000, which is 100 power.
	Balance, Stake int64
}

func (o Options) withDefaults() Options {
	setDefault(&o.Genesis, 4)
	setDefault(&o.Accounts, o.Genesis+2)
	setDefault(&o.ChainID, fmt.Sprintf("localnet-%08x", rand.Uint32()))
	setDefault(&o.BlockTime, 300*time.Millisecond)
	setDefault(&o.UnbondingTime, 20*time.Second)
	setDefault(&o.SignedBlocksWindow, 200)
	setDefault(&o.MaxValidators, 20)
	setDefault(&o.MinGasPrices, "0stake")
	setDefault(&o.Balance, 10_000_000_000)
	setDefault(&o.Stake, 100_000_000)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Node is what is public about a node.
type Node struct {
	Name             string `json:"name"`
	Ordinal          int    `json:"ordinal"`
	Genesis          bool   `json:"genesis"`
	NodeID           string `json:"nodeID"`
	ConsensusAddress string `json:"consensusAddress"` // upper case hex
	Operator         string `json:"operator"`         // cosmosvaloper1...
	Account          string `json:"account"`          // cosmos1..., the same key
	Home             string `json:"home"`
	RPC              string `json:"rpc"`  // http://127.x.y.z:26657
	REST             string `json:"rest"` // http://127.x.y.z:1317
}

// Keys are a node's secrets, in the formats of the files that hold them.
type Keys struct {
	PrivValidatorKey []byte // priv_validator_key.json
	NodeKey          []byte // node_key.json
	Mnemonic         string // 24 words of the operator's account
}

// Network is a running network. Its methods fail the test they belong to, and
// so must be called from the test's own goroutine; RPC, REST and Node may be
// called from any.
type Network struct {
	ChainID string

	t      testing.TB
	binary string
	facts  []Node
	nodes  []*node
}

// Start makes a network, starts its genesis validators and waits for the first
// blocks. The network ends with the test.
func Start(t testing.TB, opts Options) *Network {
	t.Helper()
	opts = opts.withDefaults()
	binary, err := Binary(t.Context())
	require.NoError(t, err)

	n := &Network{ChainID: opts.ChainID, t: t, binary: binary}
	dir := filepath.Join(t.TempDir(), "net")
	n.make(dir, reserveAddresses(t), opts)
	for _, fact := range n.facts {
		n.nodes = append(n.nodes, &node{logPath: filepath.Join(dir, fact.Name+".log")})
	}
	t.Cleanup(n.close)
	for i := range opts.Genesis {
		n.StartNode(i)
	}
	n.WaitHeight(0, 2)
	return n
}

// reserveAddresses returns the first three numbers of a block of loopback
// addresses that is this network's own: whoever listens on its last address
// has the block, until the listener is closed or the process ends.
func reserveAddresses(t testing.TB) string {
	t.Helper()
	var last error
	for range 100 {
		prefix := fmt.Sprintf("127.%d.%d", 32+rand.IntN(200), rand.IntN(256))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", prefix+".254:26656")
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
			return prefix
		}
		last = err
	}
	require.NoError(t, last, "find unused loopback addresses")
	return ""
}

func (n *Network) make(dir, prefix string, opts Options) {
	n.t.Helper()
	n.run(n.t.Context(), "", "network", "--format", "files", "--output", dir, "--address", prefix+".1",
		"--chain-id", opts.ChainID, "--validators", strconv.Itoa(opts.Genesis), "--accounts", strconv.Itoa(opts.Accounts),
		"--balance", strconv.FormatInt(opts.Balance, 10), "--stake", strconv.FormatInt(opts.Stake, 10),
		"--block-time", opts.BlockTime.String(), "--unbonding-time", opts.UnbondingTime.String(),
		"--signed-blocks-window", strconv.Itoa(opts.SignedBlocksWindow), "--max-validators", strconv.Itoa(opts.MaxValidators),
		"--min-gas-prices", opts.MinGasPrices)
	raw, err := os.ReadFile(filepath.Join(dir, "network.json"))
	require.NoError(n.t, err)
	var summary struct {
		Nodes []Node `json:"nodes"`
	}
	require.NoError(n.t, json.Unmarshal(raw, &summary))
	require.Len(n.t, summary.Nodes, opts.Accounts)
	n.facts = summary.Nodes
}

// close kills all nodes, which is quicker than asking them, and shows their
// logs if the test failed.
func (n *Network) close() {
	for i, node := range n.nodes {
		if node.running() {
			if _, err := node.stop(syscall.SIGKILL, stopPatience); err != nil {
				n.t.Errorf("node %d: %v", i, err)
			}
		}
		if n.t.Failed() && node.cmd != nil {
			n.t.Logf("end of the log of node %d:\n%s", i, tailFile(node.logPath, logLines))
		}
	}
}

// StartNode starts node i, with its data if it ran before. It does not wait:
// use WaitSynced. Additional arguments go to the chain's `start` command. For a
// node that never signed with a key that signs elsewhere, which `start` refuses,
// that is --double-sign-guard=false.
func (n *Network) StartNode(i int, args ...string) {
	n.t.Helper()
	all := append([]string{"start", "--home", n.Node(i).Home, "--log_no_color"}, args...)
	require.NoError(n.t, n.nodes[i].start(n.binary, all...), "node %d", i)
}

// StopNode sends a signal to node i and waits for its end. SIGTERM and SIGINT
// end a node cleanly, with exit code 0; SIGKILL leaves everything as it is.
func (n *Network) StopNode(i int, sig syscall.Signal) *os.ProcessState {
	n.t.Helper()
	state, err := n.nodes[i].stop(sig, stopPatience)
	require.NoError(n.t, err, "node %d", i)
	return state
}

// Signal sends a signal to node i and returns at once; SIGSTOP makes a node
// hang, SIGCONT wakes it.
func (n *Network) Signal(i int, sig syscall.Signal) {
	n.t.Helper()
	require.True(n.t, n.Running(i), "node %d does not run", i)
	require.NoError(n.t, n.nodes[i].cmd.Process.Signal(sig), "node %d", i)
}

// Running tells whether the process of node i runs.
func (n *Network) Running(i int) bool { return n.nodes[i].running() }

// WaitExit waits for node i to end by itself.
func (n *Network) WaitExit(i int) *os.ProcessState {
	n.t.Helper()
	require.NotNil(n.t, n.nodes[i].cmd, "node %d was never started", i)
	select {
	case <-n.nodes[i].done:
	case <-time.After(waitLimit):
		require.FailNow(n.t, "node goes on running", "node %d after %s", i, waitLimit)
	}
	return n.nodes[i].cmd.ProcessState
}

// Size is the number of nodes that have keys, running or not.
func (n *Network) Size() int { return len(n.facts) }

// Node returns the public facts of node i.
func (n *Network) Node(i int) Node { return n.facts[i] }

// RPC is the CometBFT RPC address of node i, http://127.x.y.z:26657.
func (n *Network) RPC(i int) string { return n.facts[i].RPC }

// REST is the Cosmos REST address of node i, http://127.x.y.z:1317.
func (n *Network) REST(i int) string { return n.facts[i].REST }

// LogPath is the file with the output of node i, all its runs in one.
func (n *Network) LogPath(i int) string { return n.nodes[i].logPath }

// Keys reads the secrets of node i.
func (n *Network) Keys(i int) Keys {
	n.t.Helper()
	read := func(name string) []byte {
		raw, err := os.ReadFile(filepath.Join(n.facts[i].Home, filepath.FromSlash(name)))
		require.NoError(n.t, err)
		return raw
	}
	return Keys{
		PrivValidatorKey: read("config/priv_validator_key.json"),
		NodeKey:          read("config/node_key.json"),
		Mnemonic:         strings.TrimSpace(string(read("operator.mnemonic"))),
	}
}

// CLI runs the chain's own command line with the home of node i, and with input
// on its standard input, and returns its standard output.
func (n *Network) CLI(i int, input string, args ...string) string {
	n.t.Helper()
	return n.run(n.t.Context(), input, append(args, "--home", n.facts[i].Home)...)
}

func (n *Network) run(ctx context.Context, input string, args ...string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, cliTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.binary, args...)
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(n.t, err, "demo-chain %s: %s", strings.Join(args, " "), tail([]byte(stderr.String()), 10))
	return stdout.String()
}
