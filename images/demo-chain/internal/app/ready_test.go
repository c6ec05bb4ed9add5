package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	coretypes "github.com/cometbft/cometbft/rpc/core/types"
	"github.com/stretchr/testify/require"
)

type fakeStatus struct {
	height     int64
	catchingUp bool
	err        error
}

func (f fakeStatus) Status(context.Context) (*coretypes.ResultStatus, error) {
	if f.err != nil {
		return nil, f.err
	}
	res := &coretypes.ResultStatus{}
	res.SyncInfo.LatestBlockHeight = f.height
	res.SyncInfo.CatchingUp = f.catchingUp
	return res, nil
}

func TestReadyHandler(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		client any
		code   int
		body   string
	}{
		"a synced node is ready":                 {fakeStatus{height: 7}, http.StatusOK, `{"ready":true,"height":"7"}`},
		"a node that catches up is not ready":    {fakeStatus{height: 7, catchingUp: true}, 503, `{"ready":false,"height":"7","reason":"catching up"}`},
		"a node without blocks is not ready":     {fakeStatus{}, 503, `{"ready":false,"height":"0","reason":"no block yet"}`},
		"a failing RPC is not ready, with cause": {fakeStatus{err: errors.New("boom")}, 503, `{"ready":false,"height":"0","reason":"the node's RPC gives no status: boom"}`},
		"a missing RPC client is not ready":      {nil, 503, `{"ready":false,"height":"0","reason":"the node's RPC client is not up yet"}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := httptest.NewRecorder()
			newReadyHandler(tc.client).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, ReadyPath, nil))
			require.Equal(t, tc.code, rec.Code)
			require.JSONEq(t, tc.body, rec.Body.String())
		})
	}
}
