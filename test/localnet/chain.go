package localnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
)

const requestTimeout = 5 * time.Second

// Status is the part of a node's status that tests need.
type Status struct {
	Height      int64
	CatchingUp  bool
	VotingPower int64
}

// Status asks node i for its status.
func (n *Network) Status(ctx context.Context, i int) (Status, error) {
	var res struct {
		SyncInfo struct {
			Height     int64 `json:"latest_block_height,string"`
			CatchingUp bool  `json:"catching_up"`
		} `json:"sync_info"`
		Validator struct {
			Power int64 `json:"voting_power,string"`
		} `json:"validator_info"`
	}
	if err := n.Call(ctx, i, "status", nil, &res); err != nil {
		return Status{}, err
	}
	return Status{Height: res.SyncInfo.Height, CatchingUp: res.SyncInfo.CatchingUp, VotingPower: res.Validator.Power}, nil
}

// Height is the latest block of node i.
func (n *Network) Height(i int) int64 {
	n.t.Helper()
	status, err := n.Status(n.t.Context(), i)
	require.NoError(n.t, err, "node %d", i)
	return status.Height
}

// WaitHeight waits until node i has block h and returns its latest height.
func (n *Network) WaitHeight(i int, h int64) int64 {
	n.t.Helper()
	var height int64
	n.Eventually(fmt.Sprintf("node %d reaches height %d", i, h), func(ctx context.Context) error {
		status, err := n.Status(ctx, i)
		if err != nil {
			return err
		}
		height = status.Height
		if height < h {
			return fmt.Errorf("height is %d", height)
		}
		return nil
	})
	return height
}

// WaitSynced waits until node i is within one block of node 0, or of node 1
// when i is 0, and not catching up. The node's own word alone is not enough: it
// may say so while it is many blocks behind.
func (n *Network) WaitSynced(i int) {
	n.t.Helper()
	other := 0
	if i == 0 {
		other = 1
	}
	n.Eventually(fmt.Sprintf("node %d is in sync with node %d", i, other), func(ctx context.Context) error {
		head, err := n.Status(ctx, other)
		if err != nil {
			return err
		}
		own, err := n.Status(ctx, i)
		if err != nil {
			return err
		}
		if own.CatchingUp || own.Height < 1 || own.Height < head.Height-1 {
			return fmt.Errorf("height %d of %d, catching up: %t", own.Height, head.Height, own.CatchingUp)
		}
		return nil
	})
}

// Eventually repeats a check until it returns nil; the limit is two minutes.
// What names the wished-for state; the failure shows the last error.
func (n *Network) Eventually(what string, check func(context.Context) error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), waitLimit)
	defer cancel()
	for {
		last := check(ctx)
		if last == nil {
			return
		}
		if pause(ctx, pollEvery) != nil {
			require.NoError(n.t, last, "waited %s until %s", waitLimit, what)
		}
	}
}

// Power returns the voting powers in the consensus set at a height by consensus
// address (upper case hex), as node i has it.
func (n *Network) Power(ctx context.Context, i int, height int64) (map[string]int64, error) {
	var res struct {
		Validators []struct {
			Address string `json:"address"`
			Power   int64  `json:"voting_power,string"`
		} `json:"validators"`
	}
	params := url.Values{"height": {strconv.FormatInt(height, 10)}, "per_page": {"100"}}
	if err := n.Call(ctx, i, "validators", params, &res); err != nil {
		return nil, err
	}
	powers := make(map[string]int64, len(res.Validators))
	for _, v := range res.Validators {
		powers[v.Address] = v.Power
	}
	return powers, nil
}

// flagCommit marks the signature of a vote for the block, in block_id_flag.
const flagCommit = 2

// Signers returns the consensus addresses that signed the block at a height,
// as node i has it. Ask for a height below the latest: only then is the answer
// the same on all nodes.
func (n *Network) Signers(ctx context.Context, i int, height int64) (map[string]bool, error) {
	var res struct {
		SignedHeader struct {
			Commit struct {
				Signatures []struct {
					Flag    int    `json:"block_id_flag"`
					Address string `json:"validator_address"`
				} `json:"signatures"`
			} `json:"commit"`
		} `json:"signed_header"`
	}
	if err := n.Call(ctx, i, "commit", url.Values{"height": {strconv.FormatInt(height, 10)}}, &res); err != nil {
		return nil, err
	}
	signers := make(map[string]bool)
	for _, s := range res.SignedHeader.Commit.Signatures {
		if s.Flag == flagCommit {
			signers[s.Address] = true
		}
	}
	return signers, nil
}

// Call makes one request to the CometBFT RPC of node i and decodes its result.
func (n *Network) Call(ctx context.Context, i int, method string, params url.Values, result any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.RPC(i)+"/"+method+"?"+params.Encode(), nil)
	if err != nil {
		return fmt.Errorf("ask node %d for %s: %w", i, method, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask node %d for %s: %w", i, method, err)
	}
	defer res.Body.Close()
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Message string `json:"message"`
			Data    string `json:"data"`
		} `json:"error"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return fmt.Errorf("decode %s of node %d: %w", method, i, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("ask node %d for %s: %w", i, method, errors.New(answer.Error.Message+": "+answer.Error.Data))
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("decode %s of node %d: %w", method, i, err)
	}
	return nil
}
