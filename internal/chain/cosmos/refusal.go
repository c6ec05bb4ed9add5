package cosmos

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

// Codes of the codespaces "sdk", "staking" and "slashing" (types/errors of the
// Cosmos SDK) that decide something here.
const (
	codeUnknownRequest  = 6
	codeInsufficient    = 5
	codeOutOfGas        = 11
	codeInsufficientFee = 13
	codeInCache         = 19
	codeMempoolFull     = 20
	codeNotFound        = 22
	codeInvalidHeight   = 26
	codeSequence        = 32
	codeNotFoundLater   = 38

	spaceSDK      = "sdk"
	spaceStaking  = "staking"
	spaceSlashing = "slashing"
)

// Stages at which a chain refuses.
const (
	StageQuery    = "query"    // a question
	StageSimulate = "simulate" // a rehearsal: nothing was sent
	StageCheck    = "check"    // on the way into the mempool: nothing will be in a block
	StageBlock    = "block"    // in a block: only the fee was taken
)

// Refusal is a chain's "no". It is always wrapped in a fault.Error with the code
// fault.Chain.
type Refusal struct {
	Stage     string
	What      string // what was asked, e.g. a query's path or a message's name
	Codespace string
	Code      uint32
	Log       string
	Hash      string // of the transaction, if one was signed
	Height    int64  // of the block, for StageBlock
	GasUsed   int64
}

// Error tells stage, codespace, code and log.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("the chain refused %s at stage %s: %s code %d: %s", r.What, r.Stage, r.Codespace, r.Code, r.Log)
	if r.Hash != "" {
		text += " (transaction " + r.Hash
		if r.Height > 0 {
			text += fmt.Sprintf(" in block %d", r.Height)
		}
		text += ")"
	}
	return text
}

// isSDK reports whether the SDK itself refused, with that code.
func (r *Refusal) isSDK(code uint32) bool {
	return r.Codespace == spaceSDK && r.Code == code
}

// notFound is how an SDK application says that there is no such thing.
func (r *Refusal) notFound() bool {
	return r.isSDK(codeNotFound) || r.isSDK(codeNotFoundLater) ||
		r.Stage == StageQuery && strings.Contains(r.Log, "code = NotFound")
}

// unavailable is a node that can't answer at the moment: its application is
// starting, or a block behind its block store.
func (r *Refusal) unavailable() bool {
	return r.Stage == StageQuery && (r.isSDK(codeInvalidHeight) ||
		strings.Contains(r.Log, "context did not contain latest block height") ||
		strings.Contains(r.Log, "is not ready; please wait for first block"))
}

func (r *Refusal) wrongSequence() bool { return r.isSDK(codeSequence) }

// aboutState says that the refusal may come from a change of the state between
// reading and sending.
func (r *Refusal) aboutState() bool {
	return r.Codespace == spaceStaking || r.Codespace == spaceSlashing
}

var sequenceForm = regexp.MustCompile(`expected ([0-9]+), got ([0-9]+)`)

// expected returns the sequence number that the chain wants.
func (r *Refusal) expected() (uint64, bool) {
	m := sequenceForm.FindStringSubmatch(r.Log)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n, err == nil
}

// fault gives the refusal its code, and advice where there is some.
func (r *Refusal) fault() error {
	e := fault.New(fault.Chain, "%w", r)
	switch {
	case r.unavailable():
		return fault.New(fault.Transient, "%w", r)
	case r.isSDK(codeInsufficient):
		return e.Do("send the operator's account more funds")
	case r.isSDK(codeInsufficientFee):
		return e.Do("set the chain option gasPrice to at least what the log asks for")
	case r.isSDK(codeOutOfGas):
		return e.Do("raise the chain option gasAdjustment")
	case r.isSDK(codeUnknownRequest) && r.Stage == StageQuery:
		return e.Do("check that the endpoint is a node of a Cosmos SDK chain")
	}
	return e
}

func isNotFound(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.notFound()
}
