package cosmos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/comet"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

const (
	pathParams     = "/cosmos.staking.v1beta1.Query/Params"
	pathValidator  = "/cosmos.staking.v1beta1.Query/Validator"
	pathValidators = "/cosmos.staking.v1beta1.Query/Validators"
	pathDelegation = "/cosmos.staking.v1beta1.Query/Delegation"
	pathUnbonding  = "/cosmos.staking.v1beta1.Query/UnbondingDelegation"
	pathSigning    = "/cosmos.slashing.v1beta1.Query/SigningInfo"
	pathAccount    = "/cosmos.auth.v1beta1.Query/Account"
	pathBalance    = "/cosmos.bank.v1beta1.Query/Balance"
	pathNodeConfig = "/cosmos.base.node.v1beta1.Service/Config"
	// Every SDK application has this path; that of the gRPC service of the same
	// purpose is there only when a node has its gRPC or REST server on, and it
	// loses a refusal's code.
	pathSimulate = "/app/simulate"

	validatorsPerPage = 200
	maxValidatorPages = 100
)

// query asks the application of one node; height 0 means its latest state. It
// returns the height of the state that answered.
func (a *Adapter) query(ctx context.Context, e chain.Endpoint, path string, request message, height int64) ([]byte, int64, error) {
	q, err := a.rpc.ABCIQuery(ctx, e, path, request, height)
	if err != nil {
		return nil, 0, err
	}
	if q.Code != 0 {
		stage := StageQuery
		if path == pathSimulate {
			stage = StageSimulate
		}
		return nil, q.Height, (&Refusal{Stage: stage, What: path, Codespace: q.Codespace, Code: q.Code, Log: q.Log}).fault()
	}
	return q.Value, q.Height, nil
}

// ask is query with a parser for the answer.
func ask[T any](ctx context.Context, a *Adapter, e chain.Endpoint, path string, request message, height int64, parse func([]byte) (T, error)) (T, int64, error) {
	raw, at, err := a.query(ctx, e, path, request, height)
	if err != nil {
		var none T
		return none, at, err
	}
	v, err := parse(raw)
	if err != nil {
		return v, at, fault.New(fault.Chain, "%s %w (%s): %w", name(e), comet.ErrGarbage, path, err).
			Do("check that the endpoint is a node of a Cosmos SDK chain")
	}
	return v, at, nil
}

// Bond statuses (cosmos.staking.v1beta1.BondStatus).
const (
	bondUnbonded  = 1
	bondUnbonding = 2
	bondBonded    = 3
)

// validator is a record of x/staking.
type validator struct {
	operator string
	pubKey   []byte // of an ed25519 consensus key; nil for another type
	jailed   bool
	status   uint64
	tokens   *big.Int
	minSelf  *big.Int
	moniker  string
}

func parseValidator(raw []byte) (validator, error) {
	v := validator{tokens: new(big.Int), minSelf: new(big.Int)}
	err := fields(raw, func(f field) (err error) {
		switch {
		case f.is(1, protowire.BytesType):
			v.operator = string(f.bytes)
		case f.is(2, protowire.BytesType):
			v.pubKey, err = ed25519Any(f.bytes)
		case f.is(3, protowire.VarintType):
			v.jailed = f.varint != 0
		case f.is(4, protowire.VarintType):
			v.status = f.varint
		case f.is(5, protowire.BytesType):
			v.tokens, err = number(f.bytes)
		case f.is(7, protowire.BytesType):
			var moniker []byte
			moniker, err = sub(f.bytes, 1)
			v.moniker = string(moniker)
		case f.is(11, protowire.BytesType):
			v.minSelf, err = number(f.bytes)
		}
		return err
	})
	if err == nil && (v.operator == "" || v.status < bondUnbonded || v.status > bondBonded) {
		err = fmt.Errorf("%w: a validator without address or status", errWire)
	}
	return v, err
}

// ed25519Any unpacks an Any with an ed25519 key.
func ed25519Any(raw []byte) ([]byte, error) {
	url, value, err := unpackAny(raw)
	if err != nil || url != urlEd25519 {
		return nil, err
	}
	return sub(value, 1)
}

func unpackAny(raw []byte) (url string, value []byte, err error) {
	err = fields(raw, func(f field) error {
		switch {
		case f.is(1, protowire.BytesType):
			url = string(f.bytes)
		case f.is(2, protowire.BytesType):
			value = f.bytes
		}
		return nil
	})
	return url, value, err
}

func parseValidatorResponse(raw []byte) (validator, error) {
	v, err := sub(raw, 1)
	if err != nil {
		return validator{}, err
	}
	return parseValidator(v)
}

type validatorPage struct {
	validators []validator
	next       []byte
}

func parseValidatorsResponse(raw []byte) (p validatorPage, err error) {
	err = fields(raw, func(f field) (err error) {
		switch {
		case f.is(1, protowire.BytesType):
			var v validator
			v, err = parseValidator(f.bytes)
			p.validators = append(p.validators, v)
		case f.is(2, protowire.BytesType):
			p.next, err = sub(f.bytes, 1)
		}
		return err
	})
	return p, err
}

// validators returns every record of x/staking at a height.
func (a *Adapter) validators(ctx context.Context, e chain.Endpoint, height int64) ([]validator, error) {
	var all []validator
	var next []byte
	for range maxValidatorPages {
		request := message(nil).sub(2, message(nil).bytes(1, next).uint(3, validatorsPerPage))
		p, _, err := ask(ctx, a, e, pathValidators, request, height, parseValidatorsResponse)
		if err != nil {
			return nil, err
		}
		all = append(all, p.validators...)
		if next = p.next; len(next) == 0 {
			return all, nil
		}
	}
	return nil, fault.New(fault.Chain, "%s lists more than %d validators", name(e), maxValidatorPages*validatorsPerPage)
}

// params are those of x/staking.
type params struct {
	unbondingTime time.Duration
	maxValidators int
	maxEntries    int
	denom         string
	minCommission *big.Rat
}

func parseParams(raw []byte) (p params, err error) {
	p.minCommission = new(big.Rat)
	inner, err := sub(raw, 1)
	if err != nil {
		return p, err
	}
	err = fields(inner, func(f field) (err error) {
		switch {
		case f.is(1, protowire.BytesType):
			var t time.Time
			// A Duration has the fields of a Timestamp.
			t, err = timestamp(f.bytes)
			p.unbondingTime = time.Duration(t.Unix())*time.Second + time.Duration(t.Nanosecond())
		case f.is(2, protowire.VarintType):
			p.maxValidators = int(min(f.varint, 1<<31))
		case f.is(3, protowire.VarintType):
			p.maxEntries = int(min(f.varint, 1<<31))
		case f.is(5, protowire.BytesType):
			p.denom = string(f.bytes)
		case f.is(6, protowire.BytesType):
			var n *big.Int
			if n, err = number(f.bytes); err == nil {
				p.minCommission.SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(18), nil))
			}
		}
		return err
	})
	if err == nil && (p.denom == "" || p.maxValidators == 0) {
		err = fmt.Errorf("%w: parameters without bond_denom or max_validators", errWire)
	}
	return p, err
}

// parseDelegation returns the tokens that a delegation stands for.
func parseDelegation(raw []byte) (*big.Int, error) {
	response, err := sub(raw, 1)
	if err != nil {
		return nil, err
	}
	balance, err := sub(response, 2)
	if err != nil {
		return nil, err
	}
	if balance == nil {
		return nil, fmt.Errorf("%w: a delegation without balance", errWire)
	}
	amount, err := readAmount(balance)
	return amount, err
}

// parseUnbonding returns the completion time of each entry.
func parseUnbonding(raw []byte) (ends []time.Time, err error) {
	inner, err := sub(raw, 1)
	if err != nil {
		return nil, err
	}
	err = fields(inner, func(f field) error {
		if !f.is(3, protowire.BytesType) {
			return nil
		}
		end, err := sub(f.bytes, 2)
		if err != nil {
			return err
		}
		t, err := timestamp(end)
		ends = append(ends, t)
		return err
	})
	return ends, err
}

// signing is a validator's account in x/slashing.
type signing struct {
	jailedUntil time.Time
	tombstoned  bool
}

func parseSigning(raw []byte) (s signing, err error) {
	inner, err := sub(raw, 1)
	if err != nil {
		return s, err
	}
	err = fields(inner, func(f field) (err error) {
		switch {
		case f.is(4, protowire.BytesType):
			s.jailedUntil, err = timestamp(f.bytes)
		case f.is(5, protowire.VarintType):
			s.tombstoned = f.varint != 0
		}
		return err
	})
	return s, err
}

// account is what a signature needs to know of an account.
type account struct{ number, sequence uint64 }

// parseAccount unpacks an account: a BaseAccount, or one that embeds it in its
// first field, or one that embeds such a one (vesting and module accounts).
func parseAccount(raw []byte) (account, error) {
	packed, err := sub(raw, 1)
	if err != nil {
		return account{}, err
	}
	url, value, err := unpackAny(packed)
	if err != nil {
		return account{}, err
	}
	depth := 0
	switch {
	case url == "/cosmos.auth.v1beta1.BaseAccount":
	case url == "/cosmos.auth.v1beta1.ModuleAccount", url == "/cosmos.vesting.v1beta1.BaseVestingAccount":
		depth = 1
	case strings.HasPrefix(url, "/cosmos.vesting.v1beta1."):
		depth = 2
	default:
		return account{}, fmt.Errorf("accounts of type %q aren't supported", url)
	}
	for range depth {
		if value, err = sub(value, 1); err != nil {
			return account{}, err
		}
	}
	var out account
	var address bool
	err = fields(value, func(f field) error {
		switch {
		case f.is(1, protowire.BytesType):
			address = true
		case f.is(3, protowire.VarintType):
			out.number = f.varint
		case f.is(4, protowire.VarintType):
			out.sequence = f.varint
		}
		return nil
	})
	if err == nil && !address {
		err = fmt.Errorf("%w: an account without address", errWire)
	}
	return out, err
}

func (a *Adapter) account(ctx context.Context, e chain.Endpoint, address string) (account, error) {
	acc, _, err := ask(ctx, a, e, pathAccount, message(nil).str(1, address), 0, parseAccount)
	if isNotFound(err) {
		return account{}, fault.New(fault.Chain, "account %s doesn't exist on chain %s: %w", address, a.chainID, err).
			Do("send it funds")
	}
	return acc, err
}

func (a *Adapter) balance(ctx context.Context, e chain.Endpoint, address, denom string, height int64) (*big.Int, error) {
	amount, _, err := ask(ctx, a, e, pathBalance, message(nil).str(1, address).str(2, denom), height, func(raw []byte) (*big.Int, error) {
		balance, err := sub(raw, 1)
		if err != nil {
			return nil, err
		}
		amount, err := readAmount(balance)
		return amount, err
	})
	return amount, err
}

// price returns what gas costs: the option's, or what the node asks for. A node
// that doesn't say counts as one that asks for nothing; if it does ask, its
// refusal tells how much.
func (a *Adapter) price(ctx context.Context, e chain.Endpoint) (price, error) {
	if a.gasPrice != nil {
		return *a.gasPrice, nil
	}
	free := price{amount: new(big.Rat), denom: a.denom}
	text, _, err := ask(ctx, a, e, pathNodeConfig, nil, 0, func(raw []byte) (string, error) {
		b, err := sub(raw, 1)
		return string(b), err
	})
	if fault.Is(err, fault.Chain) {
		return free, nil
	}
	if err != nil {
		return free, err
	}
	return choosePrice(text, free), nil
}

// choosePrice picks one of the prices of a node's minimum-gas-prices, of which
// any one is enough: the one in the staking denomination, or else the first.
func choosePrice(list string, free price) price {
	chosen := free
	for _, text := range strings.Split(list, ",") {
		p, err := parsePrice(strings.TrimSpace(text))
		if err != nil {
			continue
		}
		if p.denom == free.denom {
			return p
		}
		if chosen.denom == free.denom {
			chosen = p
		}
	}
	return chosen
}

// parseSimulation returns the gas that a rehearsal used.
func parseSimulation(raw []byte) (uint64, error) {
	var r struct {
		Gas struct {
			Used string `json:"gas_used"`
		} `json:"gas_info"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return 0, fmt.Errorf("decode simulation: %w", err)
	}
	// 50 bits are far above any block's gas, and leave room for the adjustment.
	used, err := strconv.ParseUint(r.Gas.Used, 10, 50)
	if err != nil || used == 0 {
		return 0, fmt.Errorf("simulation without gas_used")
	}
	return used, nil
}
