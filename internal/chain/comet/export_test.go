package comet

import (
	"context"

	"github.com/rollcall-dev/rollcall/internal/chain"
)

// Raw posts a request and returns the answer as it came.
func Raw(ctx context.Context, endpoint, request string) ([]byte, error) {
	u, err := URL(chain.Endpoint(endpoint))
	if err != nil {
		return nil, err
	}
	body, _, err := New().post(ctx, u, "raw", []byte(request))
	return body, err
}
