// Package chain defines what Rollcall needs from a proof-of-stake chain: facts
// (who is in the set at a height, who signed a commit, what a validator's stake
// record says) and three effects (stake, unstake, unjail).
//
// Guarantees asked of every Adapter:
//   - Facts are read at an explicit height wherever the chain allows it.
//   - An effect is idempotent: it reads the state first, and "already there" is
//     a Receipt with Sent == false, not an error.
//   - An effect returns only after the transaction was found in a block with
//     result code 0; an accepted broadcast proves nothing. After a time-out it
//     looks the transaction up before it signs another one.
//   - Errors carry a fault code: fault.Chain when the chain said no,
//     fault.Refused when sending would endanger the network, fault.Transient
//     when nobody answered, fault.Config when the answer is from another chain.
//   - No key material in an error or a log.
//
// Not guaranteed: that an included stake has joined consensus. On CometBFT a
// change is effective two blocks later; callers prove it from Set and Commits.
package chain

import (
	"context"
	"time"

	"github.com/rollcall-dev/rollcall/internal/keys"
)

// Endpoint is the base URL of one node's RPC, for example
// "http://validator-0.validator:26657".
type Endpoint string

// Node is what a node says of itself.
type Node struct {
	ChainID     string
	Version     string
	NodeID      string
	Height      int64     // latest block the node has
	BlockTime   time.Time // header time of that block
	AppHash     string    // uppercase hex, of the latest block's header
	CatchingUp  bool      // false is no proof of being caught up: compare Height
	Peers       int
	Address     string // consensus address of the node's own key, uppercase hex
	VotingPower int64
}

// Member is one validator of a consensus set.
type Member struct {
	Address string // consensus address, uppercase hex
	PubKey  []byte
	Power   int64
}

// Set is the consensus set that decides the block at Height.
type Set struct {
	Height  int64
	Members []Member
}

// Power returns the total voting power T of the set.
func (s Set) Power() (t int64) {
	for _, m := range s.Members {
		t += m.Power
	}
	return t
}

// Find returns the member with the consensus address.
func (s Set) Find(address string) (Member, bool) {
	for _, m := range s.Members {
		if m.Address == address {
			return m, true
		}
	}
	return Member{}, false
}

// Vote is what a member did in a commit.
type Vote int

// The three kinds of votes (CometBFT block_id_flag 1, 2, 3).
const (
	Absent   Vote = 1
	ForBlock Vote = 2
	ForNil   Vote = 3
)

// Commit is the canonical commit of one height.
type Commit struct {
	Height int64
	Time   time.Time       // header time of the block
	Votes  map[string]Vote // by consensus address; only members of the set at Height
}

// Signed reports whether the address signed for the block.
func (c Commit) Signed(address string) bool { return c.Votes[address] == ForBlock }

// Status is where a validator stands in its life on the chain.
type Status string

// Statuses, from CHAINS "adapter": Active needs the consensus set, the others
// come from the stake record.
const (
	Unstaked   Status = "Unstaked"   // no record, or a record without stake
	Waiting    Status = "Waiting"    // staked, but outside the active set (max_validators)
	Bonded     Status = "Bonded"     // the record says bonded; the set at a height decides whether it joined
	Unstaking  Status = "Unstaking"  // left by its own wish; funds are still locked
	Jailed     Status = "Jailed"     // put out for misbehaviour or downtime, can come back
	Tombstoned Status = "Tombstoned" // put out for ever; the key must never be used again
)

// Record is a validator's stake record.
type Record struct {
	Status      Status
	Tokens      string // amount staked, in the smallest unit, decimal digits
	Power       int64  // voting power the tokens stand for
	JailedUntil time.Time
	Height      int64 // height the record was read at
	// Foreign is true when the record's consensus key isn't the one in the
	// validator's Secret.
	Foreign bool
}

// Identity is a validator's public identity on the chain. Operator and Address
// identify it; Record needs no more, so that it works without the keys.
type Identity struct {
	Operator string // operator address in the chain's own form
	Account  string // account that pays and owns the stake
	Address  string // consensus address, uppercase hex
	PubKey   []byte // consensus public key
}

// Receipt tells what an effect did.
type Receipt struct {
	Sent   bool   // false: the chain was already there, no transaction was sent
	Hash   string // uppercase hex
	Height int64  // block that holds the transaction
	// Effective is the first height whose consensus set is changed, by the chain's
	// own rule; whether it really is must be read from the set.
	Effective int64
	Detail    string // one line for logs and events
}

// Origin marks a transaction with the run that sent it. It is public on chain.
type Origin struct {
	Token int64  // fencing token
	Run   string // run UID
	// Check is asked right before a broadcast; an error stops the transaction.
	// It proves that the lock is still ours.
	Check func(context.Context) error
	// Sending, if set, is told a transaction's hash before its first broadcast,
	// so that it is on record whatever happens next.
	Sending func(hash string)
}

// StakeRequest asks that a validator be staked with Amount.
type StakeRequest struct {
	Keys    keys.Validator
	Moniker string
	Amount  string // with or without the denomination, as the adapter's chain writes it
	Origin  Origin
}

// UnstakeRequest asks that a validator's whole own stake be withdrawn.
type UnstakeRequest struct {
	Keys   keys.Validator
	Origin Origin
}

// Observer reads consensus facts from one node.
type Observer interface {
	Node(ctx context.Context, e Endpoint) (Node, error)
	// Set returns the consensus set at height; 0 means the node's latest height.
	Set(ctx context.Context, e Endpoint, height int64) (Set, error)
	// Commits returns the canonical commits of heights from to to, both included.
	// to must be below the node's latest height: the commit of the latest block
	// is still that node's own view.
	Commits(ctx context.Context, e Endpoint, from, to int64) ([]Commit, error)
}

// Adapter speaks to one kind of chain. Methods that take no endpoint try the
// configured ones in order until one answers.
type Adapter interface {
	Observer
	Endpoints() []Endpoint
	Identity(k keys.Validator) (Identity, error)
	// Power returns the voting power that a stake of amount stands for, without
	// asking the chain.
	Power(amount string) (int64, error)
	Record(ctx context.Context, id Identity) (Record, error)
	// Preflight finds everything that would make a stake fail, without sending:
	// funds, denomination, minimum, a used or tombstoned key, a full set.
	Preflight(ctx context.Context, r StakeRequest) error
	Stake(ctx context.Context, r StakeRequest) (Receipt, error)
	Unstake(ctx context.Context, r UnstakeRequest) (Receipt, error)
	Unjail(ctx context.Context, r UnstakeRequest) (Receipt, error)
}
