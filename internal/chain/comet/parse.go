package comet

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/chain"
)

const (
	keyEd25519   = "tendermint/PubKeyEd25519"
	keySecp256k1 = "tendermint/PubKeySecp256k1"

	// Limits of the protocol: types.MaxVotesCount, types.MaxTotalVotingPower
	// and types.MaxChainIDLen of CometBFT.
	maxValidators = 10000
	maxPower      = math.MaxInt64 / 8
	maxChainID    = 50

	addressLen = 20
)

// natural is a number that CometBFT writes as a string, or at some places as a
// number, and that is never negative.
type natural int64

// UnmarshalJSON takes a string or a number.
func (n *natural) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	// ParseUint, unlike ParseInt, takes no sign.
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return errors.New("a number isn't a whole one from 0 to 2^63-1")
	}
	*n = natural(v)
	return nil
}

// gas differs from natural in that -1 stands for "no limit".
type gas int64

// UnmarshalJSON takes -1 besides what natural takes.
func (g *gas) UnmarshalJSON(b []byte) error {
	if s := strings.Trim(string(b), `"`); s == "-1" {
		*g = -1
		return nil
	}
	return (*natural)(g).UnmarshalJSON(b)
}

// hexBytes are bytes that CometBFT writes as uppercase hex.
type hexBytes []byte

// UnmarshalText takes hex digits of either case.
func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	if *h, err = hex.DecodeString(string(text)); err != nil {
		return errors.New("bytes aren't hex")
	}
	return nil
}

// missing returns an error that names the fields whose flag is false.
func missing(fields ...any) error {
	var names []string
	for i := 0; i+1 < len(fields); i += 2 {
		if !fields[i+1].(bool) {
			names = append(names, fields[i].(string))
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("missing or malformed: %s", strings.Join(names, ", "))
}

func parseEnvelope(body []byte) (json.RawMessage, *rpcError, error) {
	var env struct {
		Version string          `json:"jsonrpc"`
		Result  json.RawMessage `json:"result"`
		Error   *rpcError       `json:"error"`
	}
	if err := json.Unmarshal(body, &env); err != nil {
		return nil, nil, errors.New("not a JSON object")
	}
	if env.Version != "2.0" {
		return nil, nil, errors.New(`no "jsonrpc":"2.0"`)
	}
	if env.Error != nil {
		return nil, env.Error, nil
	}
	if len(env.Result) == 0 || bytes.Equal(env.Result, []byte("null")) {
		return nil, nil, errors.New("neither result nor error")
	}
	return env.Result, nil, nil
}

func decode(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	// The decoder's own text spells out the whole type.
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Errorf("the result has a %s where it should not (%s)", mismatch.Value, mismatch.Field)
	}
	if err != nil {
		return fmt.Errorf("decode result: %w", err)
	}
	return nil
}

// isAddress reports whether s is an address in the form CometBFT prints.
func isAddress(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == addressLen && strings.ToUpper(s) == s
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil
}

func parseStatus(raw []byte) (chain.Node, error) {
	var r struct {
		NodeInfo struct {
			ID      string `json:"id"`
			Network string `json:"network"`
			Version string `json:"version"`
		} `json:"node_info"`
		SyncInfo struct {
			AppHash    *string    `json:"latest_app_hash"`
			Height     *natural   `json:"latest_block_height"`
			Time       *time.Time `json:"latest_block_time"`
			CatchingUp *bool      `json:"catching_up"`
		} `json:"sync_info"`
		Validator struct {
			Address string   `json:"address"`
			Power   *natural `json:"voting_power"`
		} `json:"validator_info"`
	}
	if err := decode(raw, &r); err != nil {
		return chain.Node{}, err
	}
	s := r.SyncInfo
	if err := missing(
		"node_info.id", r.NodeInfo.ID != "",
		"node_info.network", r.NodeInfo.Network != "" && len(r.NodeInfo.Network) <= maxChainID,
		"sync_info.latest_app_hash", s.AppHash != nil && isHex(*s.AppHash),
		"sync_info.latest_block_height", s.Height != nil,
		"sync_info.latest_block_time", s.Time != nil,
		"sync_info.catching_up", s.CatchingUp != nil,
		"validator_info.address", isAddress(r.Validator.Address),
		"validator_info.voting_power", r.Validator.Power != nil && *r.Validator.Power <= maxPower,
	); err != nil {
		return chain.Node{}, err
	}
	return chain.Node{
		ChainID: r.NodeInfo.Network, Version: r.NodeInfo.Version, NodeID: r.NodeInfo.ID,
		Height: int64(*s.Height), BlockTime: *s.Time, AppHash: strings.ToUpper(*s.AppHash), CatchingUp: *s.CatchingUp,
		Address: r.Validator.Address, VotingPower: int64(*r.Validator.Power),
	}, nil
}

func parseNetInfo(raw []byte) (int, error) {
	var r struct {
		Peers *natural `json:"n_peers"`
	}
	if err := decode(raw, &r); err != nil {
		return 0, err
	}
	if err := missing("n_peers", r.Peers != nil && *r.Peers <= 1<<20); err != nil {
		return 0, err
	}
	return int(*r.Peers), nil
}

type member struct {
	chain.Member
	keyType string
}

type page struct {
	height  int64
	members []member
	total   int
}

func parseValidators(raw []byte) (page, error) {
	var r struct {
		Height     *natural `json:"block_height"`
		Total      *natural `json:"total"`
		Count      *natural `json:"count"`
		Validators []struct {
			Address string `json:"address"`
			PubKey  struct {
				Type  string `json:"type"`
				Value []byte `json:"value"`
			} `json:"pub_key"`
			Power *natural `json:"voting_power"`
		} `json:"validators"`
	}
	if err := decode(raw, &r); err != nil {
		return page{}, err
	}
	if err := missing(
		"block_height", r.Height != nil,
		"total", r.Total != nil && *r.Total <= maxValidators,
		"count", r.Count != nil && int(*r.Count) == len(r.Validators),
		"validators", len(r.Validators) > 0,
	); err != nil {
		return page{}, err
	}
	p := page{height: int64(*r.Height), total: int(*r.Total)}
	for i, v := range r.Validators {
		if err := missing(
			"address", isAddress(v.Address),
			"pub_key", len(v.PubKey.Value) > 0 && (v.PubKey.Type != keyEd25519 || addressOf(v.PubKey.Value) == v.Address),
			"voting_power", v.Power != nil && *v.Power > 0 && *v.Power <= maxPower,
		); err != nil {
			return page{}, fmt.Errorf("validator %d: %w", i, err)
		}
		p.members = append(p.members, member{
			Member:  chain.Member{Address: v.Address, PubKey: v.PubKey.Value, Power: int64(*v.Power)},
			keyType: v.PubKey.Type,
		})
	}
	return p, nil
}

// addressOf is the consensus address of an ed25519 key.
func addressOf(pub []byte) string {
	sum := sha256.Sum256(pub)
	return strings.ToUpper(hex.EncodeToString(sum[:addressLen]))
}

type signature struct {
	vote    chain.Vote
	address string // empty when absent
	time    time.Time
	bytes   []byte
}

// blockID is what a vote for a block signs.
type blockID struct {
	hash       []byte
	partsTotal uint32
	partsHash  []byte
}

type signedHeader struct {
	chainID        string
	height         int64
	round          int32
	block          blockID
	time           time.Time
	validatorsHash string
	signatures     []signature
	canonical      bool
}

func parseCommit(raw []byte) (signedHeader, error) {
	var r struct {
		SignedHeader struct {
			Header struct {
				ChainID        string     `json:"chain_id"`
				Height         *natural   `json:"height"`
				Time           *time.Time `json:"time"`
				ValidatorsHash string     `json:"validators_hash"`
			} `json:"header"`
			Commit struct {
				Height *natural `json:"height"`
				Round  *int32   `json:"round"`
				Block  struct {
					Hash  hexBytes `json:"hash"`
					Parts struct {
						Total uint32   `json:"total"`
						Hash  hexBytes `json:"hash"`
					} `json:"parts"`
				} `json:"block_id"`
				Signatures []struct {
					Flag      chain.Vote `json:"block_id_flag"`
					Address   string     `json:"validator_address"`
					Time      time.Time  `json:"timestamp"`
					Signature []byte     `json:"signature"`
				} `json:"signatures"`
			} `json:"commit"`
		} `json:"signed_header"`
		Canonical *bool `json:"canonical"`
	}
	if err := decode(raw, &r); err != nil {
		return signedHeader{}, err
	}
	h, c := r.SignedHeader.Header, r.SignedHeader.Commit
	if err := missing(
		"header.chain_id", h.ChainID != "" && len(h.ChainID) <= maxChainID,
		"header.height", h.Height != nil && *h.Height > 0,
		"header.time", h.Time != nil,
		"header.validators_hash", len(h.ValidatorsHash) == 2*sha256.Size && isHex(h.ValidatorsHash),
		"commit.height", c.Height != nil && h.Height != nil && *c.Height == *h.Height,
		"commit.round", c.Round != nil && *c.Round >= 0,
		"commit.block_id.hash", len(c.Block.Hash) == sha256.Size,
		"commit.block_id.parts.total", c.Block.Parts.Total > 0,
		"commit.block_id.parts.hash", len(c.Block.Parts.Hash) == sha256.Size,
		"commit.signatures", len(c.Signatures) > 0 && len(c.Signatures) <= maxValidators,
		"canonical", r.Canonical != nil,
	); err != nil {
		return signedHeader{}, err
	}
	out := signedHeader{
		chainID: h.ChainID, height: int64(*h.Height), time: *h.Time,
		validatorsHash: strings.ToUpper(h.ValidatorsHash), canonical: *r.Canonical,
		round: *c.Round, block: blockID{hash: c.Block.Hash, partsTotal: c.Block.Parts.Total, partsHash: c.Block.Parts.Hash},
	}
	for i, s := range c.Signatures {
		switch {
		case s.Flag == chain.Absent && s.Address == "":
		case (s.Flag == chain.ForBlock || s.Flag == chain.ForNil) && isAddress(s.Address):
		default:
			return signedHeader{}, fmt.Errorf("signature %d has block_id_flag %d and address %q", i, s.Flag, clip(s.Address, 2*addressLen))
		}
		out.signatures = append(out.signatures, signature{vote: s.Flag, address: s.Address, time: s.Time, bytes: s.Signature})
	}
	return out, nil
}

// QueryResult is an application's answer to a query.
type QueryResult struct {
	Code      uint32
	Codespace string
	Log       string
	Value     []byte
	Height    int64 // 0 when the application doesn't say
}

func parseQuery(raw []byte) (QueryResult, error) {
	var r struct {
		Response *struct {
			Code      *uint32  `json:"code"`
			Codespace string   `json:"codespace"`
			Log       string   `json:"log"`
			Value     []byte   `json:"value"`
			Height    *natural `json:"height"`
		} `json:"response"`
	}
	if err := decode(raw, &r); err != nil {
		return QueryResult{}, err
	}
	if r.Response == nil {
		return QueryResult{}, missing("response", false)
	}
	if err := missing("response.code", r.Response.Code != nil, "response.height", r.Response.Height != nil); err != nil {
		return QueryResult{}, err
	}
	return QueryResult{
		Code: *r.Response.Code, Codespace: r.Response.Codespace, Log: r.Response.Log,
		Value: r.Response.Value, Height: int64(*r.Response.Height),
	}, nil
}

// CheckResult is a node's first look at a transaction. Code 0 means that it
// waits in the node's mempool, nothing more.
type CheckResult struct {
	Code      uint32
	Codespace string
	Log       string
	Hash      string // uppercase hex
}

func parseBroadcast(raw []byte) (CheckResult, error) {
	var r struct {
		Code      *uint32 `json:"code"`
		Codespace string  `json:"codespace"`
		Log       string  `json:"log"`
		Hash      string  `json:"hash"`
	}
	if err := decode(raw, &r); err != nil {
		return CheckResult{}, err
	}
	if err := missing("code", r.Code != nil, "hash", len(r.Hash) == 2*sha256.Size && isHex(r.Hash)); err != nil {
		return CheckResult{}, err
	}
	return CheckResult{Code: *r.Code, Codespace: r.Codespace, Log: r.Log, Hash: strings.ToUpper(r.Hash)}, nil
}

// TxResult is what became of a transaction in a block.
type TxResult struct {
	Hash      string // uppercase hex
	Height    int64
	Code      uint32
	Codespace string
	Log       string
	GasWanted int64 // -1 for no limit
	GasUsed   int64
}

type execResult struct {
	Code      *uint32 `json:"code"`
	Codespace string  `json:"codespace"`
	Log       string  `json:"log"`
	GasWanted *gas    `json:"gas_wanted"`
	GasUsed   *gas    `json:"gas_used"`
}

func (r *execResult) result(hash string, height int64) (TxResult, error) {
	if r == nil {
		return TxResult{}, missing("transaction result", false)
	}
	if err := missing("code", r.Code != nil, "gas_wanted", r.GasWanted != nil, "gas_used", r.GasUsed != nil); err != nil {
		return TxResult{}, err
	}
	return TxResult{
		Hash: hash, Height: height, Code: *r.Code, Codespace: r.Codespace, Log: r.Log,
		GasWanted: int64(*r.GasWanted), GasUsed: int64(*r.GasUsed),
	}, nil
}

func parseTx(raw []byte) (TxResult, error) {
	var r struct {
		Hash   string      `json:"hash"`
		Height *natural    `json:"height"`
		Result *execResult `json:"tx_result"`
	}
	if err := decode(raw, &r); err != nil {
		return TxResult{}, err
	}
	if err := missing("hash", len(r.Hash) == 2*sha256.Size && isHex(r.Hash), "height", r.Height != nil && *r.Height > 0); err != nil {
		return TxResult{}, err
	}
	return r.Result.result(strings.ToUpper(r.Hash), int64(*r.Height))
}

// Block is a block's transactions and the evidence of misbehaviour in it.
type Block struct {
	ChainID  string
	Height   int64
	Time     time.Time
	Txs      [][]byte
	Evidence int // number of pieces
}

func parseBlock(raw []byte) (Block, error) {
	var r struct {
		Block *struct {
			Header struct {
				ChainID string     `json:"chain_id"`
				Height  *natural   `json:"height"`
				Time    *time.Time `json:"time"`
			} `json:"header"`
			Data struct {
				Txs []string `json:"txs"`
			} `json:"data"`
			Evidence struct {
				Evidence []json.RawMessage `json:"evidence"`
			} `json:"evidence"`
		} `json:"block"`
	}
	if err := decode(raw, &r); err != nil {
		return Block{}, err
	}
	if r.Block == nil {
		return Block{}, missing("block", false)
	}
	h := r.Block.Header
	if err := missing("header.chain_id", h.ChainID != "", "header.height", h.Height != nil && *h.Height > 0, "header.time", h.Time != nil); err != nil {
		return Block{}, err
	}
	b := Block{ChainID: h.ChainID, Height: int64(*h.Height), Time: *h.Time, Evidence: len(r.Block.Evidence.Evidence)}
	for i, t := range r.Block.Data.Txs {
		tx, err := base64.StdEncoding.DecodeString(t)
		if err != nil {
			return Block{}, fmt.Errorf("transaction %d isn't base64", i)
		}
		b.Txs = append(b.Txs, tx)
	}
	return b, nil
}

// ValidatorUpdate is a change of the set, decided in a block. Power 0 removes.
type ValidatorUpdate struct {
	PubKey []byte
	Power  int64
}

// BlockResults are the outcome of a block's execution. Updates of block H are
// in the set from H+2 on.
type BlockResults struct {
	Height  int64
	Txs     []TxResult // without Hash, in the block's order
	Updates []ValidatorUpdate
}

func parseBlockResults(raw []byte) (BlockResults, error) {
	var r struct {
		Height  *natural      `json:"height"`
		Txs     []*execResult `json:"txs_results"`
		Updates []struct {
			PubKey struct {
				Sum struct {
					Value struct {
						Ed25519   []byte `json:"ed25519"`
						Secp256k1 []byte `json:"secp256k1"`
					} `json:"value"`
				} `json:"Sum"`
			} `json:"pub_key"`
			Power natural `json:"power"`
		} `json:"validator_updates"`
	}
	if err := decode(raw, &r); err != nil {
		return BlockResults{}, err
	}
	if err := missing("height", r.Height != nil && *r.Height > 0); err != nil {
		return BlockResults{}, err
	}
	out := BlockResults{Height: int64(*r.Height)}
	for i, t := range r.Txs {
		tx, err := t.result("", out.Height)
		if err != nil {
			return BlockResults{}, fmt.Errorf("transaction %d: %w", i, err)
		}
		out.Txs = append(out.Txs, tx)
	}
	for i, u := range r.Updates {
		key := u.PubKey.Sum.Value.Ed25519
		if len(key) == 0 {
			key = u.PubKey.Sum.Value.Secp256k1
		}
		if err := missing("pub_key", len(key) > 0, "power", u.Power <= maxPower); err != nil {
			return BlockResults{}, fmt.Errorf("validator update %d: %w", i, err)
		}
		out.Updates = append(out.Updates, ValidatorUpdate{PubKey: key, Power: int64(u.Power)})
	}
	return out, nil
}

// ConsensusParams are the limits that consensus enforces.
type ConsensusParams struct {
	Height         int64
	MaxGas         int64         // per block; -1 for no limit
	MaxBytes       int64         // per block; -1 for the protocol's limit
	EvidenceBlocks int64         // a double signature is punishable for this many blocks
	EvidenceAge    time.Duration // and for this long
	KeyTypes       []string      // of consensus keys, for example "ed25519"
}

func parseConsensusParams(raw []byte) (ConsensusParams, error) {
	var r struct {
		Height *natural `json:"block_height"`
		Params struct {
			Block struct {
				MaxBytes *gas `json:"max_bytes"`
				MaxGas   *gas `json:"max_gas"`
			} `json:"block"`
			Evidence struct {
				Blocks   *natural `json:"max_age_num_blocks"`
				Duration *natural `json:"max_age_duration"`
			} `json:"evidence"`
			Validator struct {
				KeyTypes []string `json:"pub_key_types"`
			} `json:"validator"`
		} `json:"consensus_params"`
	}
	if err := decode(raw, &r); err != nil {
		return ConsensusParams{}, err
	}
	p := r.Params
	if err := missing(
		"block_height", r.Height != nil,
		"block.max_bytes", p.Block.MaxBytes != nil,
		"block.max_gas", p.Block.MaxGas != nil,
		"evidence.max_age_num_blocks", p.Evidence.Blocks != nil,
		"evidence.max_age_duration", p.Evidence.Duration != nil,
		"validator.pub_key_types", len(p.Validator.KeyTypes) > 0,
	); err != nil {
		return ConsensusParams{}, err
	}
	return ConsensusParams{
		Height: int64(*r.Height), MaxGas: int64(*p.Block.MaxGas), MaxBytes: int64(*p.Block.MaxBytes),
		EvidenceBlocks: int64(*p.Evidence.Blocks), EvidenceAge: time.Duration(*p.Evidence.Duration),
		KeyTypes: p.Validator.KeyTypes,
	}, nil
}
