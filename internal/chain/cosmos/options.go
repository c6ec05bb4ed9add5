package cosmos

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

// The names of the options, with the defaults.
var defaults = map[string]string{
	"bech32Prefix":            "cosmos",  // addresses are PREFIX1..., PREFIXvaloper1..., PREFIXvalcons1...
	"denom":                   "stake",   // what is staked
	"coinType":                "118",     // SLIP-44 number in the path m/44'/N'/0'/0/0 of a mnemonic's key
	"gasPrice":                "",        // e.g. 0.025stake; empty: what the node asks for
	"gasAdjustment":           "1.5",     // gas limit = simulated gas times this
	"powerReduction":          "1000000", // tokens for one unit of voting power
	"commissionRate":          "0.1",
	"commissionMaxRate":       "0.2",
	"commissionMaxChangeRate": "0.01",
	"minSelfDelegation":       "1",  // in tokens; for a validator that is created
	"txTimeoutBlocks":         "20", // a transaction is valid for this many blocks
	"haltAfter":               "1m", // without a block for this long, a wait ends: the chain has halted
}

var (
	denomForm  = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9/:._-]{2,127}$`)
	prefixForm = regexp.MustCompile(`^[a-z][a-z0-9]{0,39}$`)
	priceForm  = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([a-zA-Z][a-zA-Z0-9/:._-]{2,127})$`)
	amountForm = regexp.MustCompile(`^([0-9]{1,77})([a-zA-Z][a-zA-Z0-9/:._-]{2,127})?$`)
	decForm    = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,18})?$`)
)

// price is what one unit of gas costs; it may be a fraction.
type price struct {
	amount *big.Rat
	denom  string
}

type settings struct {
	prefix, denom  string
	coinType       uint32
	gasPrice       *price // nil: what the node asks for
	gasAdjustment  *big.Rat
	powerReduction *big.Int
	commission     commission
	minSelf        *big.Int
	timeoutBlocks  int64
	haltAfter      time.Duration
}

// commission holds shares of the rewards, 0 to 1.
type commission struct{ rate, maxRate, maxChange *big.Rat }

// parseSettings reports every problem at once.
func parseSettings(options map[string]string) (settings, error) {
	var problems []string
	bad := func(name, want string) {
		problems = append(problems, fmt.Sprintf("%s %q is not %s", name, value(options, name), want))
	}
	known := slices.Sorted(maps.Keys(defaults))
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if _, ok := defaults[name]; !ok {
			problems = append(problems, fmt.Sprintf("unknown option %q (there are %s)", name, strings.Join(known, ", ")))
		}
	}
	s := settings{prefix: value(options, "bech32Prefix"), denom: value(options, "denom")}
	if !prefixForm.MatchString(s.prefix) {
		bad("bech32Prefix", "a prefix such as cosmos")
	}
	if !denomForm.MatchString(s.denom) {
		bad("denom", "a denomination such as stake")
	}
	coinType, err := strconv.ParseUint(value(options, "coinType"), 10, 31)
	if err != nil {
		bad("coinType", "a number from 0 to 2147483647")
	}
	s.coinType = uint32(coinType)
	if text := value(options, "gasPrice"); text != "" {
		p, err := parsePrice(text)
		if err != nil {
			bad("gasPrice", "a price such as 0.025stake")
		}
		s.gasPrice = &p
	}
	number := func(name string, low, high int64) *big.Rat {
		r, ok := parseDec(value(options, name))
		if !ok || r.Cmp(big.NewRat(low, 1)) < 0 || r.Cmp(big.NewRat(high, 1)) > 0 {
			bad(name, fmt.Sprintf("a number from %d to %d", low, high))
			return new(big.Rat)
		}
		return r
	}
	s.gasAdjustment = number("gasAdjustment", 1, 10)
	s.commission = commission{
		rate: number("commissionRate", 0, 1), maxRate: number("commissionMaxRate", 0, 1), maxChange: number("commissionMaxChangeRate", 0, 1),
	}
	if s.commission.rate.Cmp(s.commission.maxRate) > 0 {
		bad("commissionRate", "at most commissionMaxRate")
	}
	if s.commission.maxChange.Cmp(s.commission.maxRate) > 0 {
		bad("commissionMaxChangeRate", "at most commissionMaxRate")
	}
	whole := func(name string) *big.Int {
		n, ok := parseInt(value(options, name))
		if !ok || n.Sign() == 0 {
			bad(name, "a whole number above 0")
			return big.NewInt(1)
		}
		return n
	}
	s.powerReduction, s.minSelf = whole("powerReduction"), whole("minSelfDelegation")
	s.timeoutBlocks, err = strconv.ParseInt(value(options, "txTimeoutBlocks"), 10, 64)
	if err != nil || s.timeoutBlocks < 2 || s.timeoutBlocks > 10000 {
		bad("txTimeoutBlocks", "a number from 2 to 10000")
	}
	s.haltAfter, err = time.ParseDuration(value(options, "haltAfter"))
	if err != nil || s.haltAfter < time.Second || s.haltAfter > 24*time.Hour {
		bad("haltAfter", "a duration from 1s to 24h")
	}
	if problems != nil {
		return settings{}, fault.New(fault.Config, "chain options: %s", strings.Join(problems, "; "))
	}
	return s, nil
}

func value(options map[string]string, name string) string {
	if v, ok := options[name]; ok {
		return strings.TrimSpace(v)
	}
	return defaults[name]
}

func parseDec(s string) (*big.Rat, bool) {
	if !decForm.MatchString(s) {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// parseInt reads a whole number of at most 77 digits, which is what the chain's
// 256 bits hold.
func parseInt(s string) (*big.Int, bool) {
	if len(s) == 0 || len(s) > 77 || strings.Trim(s, "0123456789") != "" {
		return nil, false
	}
	return new(big.Int).SetString(s, 10)
}

func parsePrice(s string) (price, error) {
	m := priceForm.FindStringSubmatch(s)
	if m == nil {
		return price{}, fmt.Errorf("%q isn't a price", s)
	}
	r, ok := parseDec(m[1])
	if !ok {
		return price{}, fmt.Errorf("%q isn't a price", s)
	}
	return price{amount: r, denom: m[2]}, nil
}

// amount reads a stake, with or without the denomination.
func (s settings) amount(text string) (*big.Int, error) {
	m := amountForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return nil, fault.New(fault.Config, "stake amount %q isn't a whole number with or without a denomination", text).
			Do("write it like 100000000%s", s.denom)
	}
	if m[2] != "" && m[2] != s.denom {
		return nil, fault.New(fault.Config, "stake amount %q has the denomination %s, but the chain option denom is %s", text, m[2], s.denom)
	}
	n, _ := parseInt(m[1])
	if n.Sign() == 0 {
		return nil, fault.New(fault.Config, "stake amount %q is zero", text)
	}
	return n, nil
}

// power is the voting power that tokens stand for.
func (s settings) power(tokens *big.Int) int64 {
	p := new(big.Int).Quo(tokens, s.powerReduction)
	if !p.IsInt64() {
		return 0
	}
	return p.Int64()
}

// Power returns the voting power that a stake stands for, by the chain option
// powerReduction. The error is a fault.Config.
func (s settings) Power(amount string) (int64, error) {
	tokens, err := s.amount(amount)
	if err != nil {
		return 0, err
	}
	return s.power(tokens), nil
}

// dec18 writes a share the way the SDK encodes decimals: times 10^18.
func dec18(r *big.Rat) string {
	scaled := new(big.Rat).Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(18), nil)))
	return new(big.Int).Quo(scaled.Num(), scaled.Denom()).String()
}
