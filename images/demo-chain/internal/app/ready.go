package app

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	coretypes "github.com/cometbft/cometbft/rpc/core/types"
)

// ReadyPath answers 200 while the node has blocks and is not catching up,
// and 503 with the reason otherwise.
//
// It says nothing about the chain: on a halted chain every node stays ready,
// so that nothing restarts or cuts off validators that are needed to resume.
// It does not prove that the node is at the head either: CometBFT may report
// catching_up=false some blocks too early after a restart.
const ReadyPath = "/readyz"

// readyTimeout is below the one or two seconds a probe usually allows.
const readyTimeout = 800 * time.Millisecond

// statusClient is the part of the node's RPC client that readiness needs.
type statusClient interface {
	Status(ctx context.Context) (*coretypes.ResultStatus, error)
}

type readiness struct {
	Ready  bool   `json:"ready"`
	Height int64  `json:"height,string"`
	Reason string `json:"reason,omitempty"`
}

func newReadyHandler(client any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		state := readinessOf(ctx, client)
		code := http.StatusOK
		if !state.Ready {
			code = http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		// The probe may have hung up; nobody is left to tell.
		_ = json.NewEncoder(w).Encode(state)
	})
}

func readinessOf(ctx context.Context, client any) readiness {
	status, ok := client.(statusClient)
	if !ok {
		return readiness{Reason: "the node's RPC client is not up yet"}
	}
	res, err := status.Status(ctx)
	if err != nil {
		return readiness{Reason: "the node's RPC gives no status: " + err.Error()}
	}
	height := res.SyncInfo.LatestBlockHeight
	switch {
	case height < 1:
		return readiness{Reason: "no block yet"}
	case res.SyncInfo.CatchingUp:
		return readiness{Height: height, Reason: "catching up"}
	default:
		return readiness{Ready: true, Height: height}
	}
}
