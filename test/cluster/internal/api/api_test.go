package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaitFor(t *testing.T) {
	t.Parallel()
	t.Run("returns once the condition holds", func(t *testing.T) {
		t.Parallel()
		looks := 0
		require.NoError(t, WaitFor(t.Context(), "it", time.Minute, func(context.Context) error {
			if looks++; looks < 3 {
				return errors.New("not yet")
			}
			return nil
		}))
	})
	t.Run("says after the limit what was missing", func(t *testing.T) {
		t.Parallel()
		err := WaitFor(t.Context(), "the moon", 10*time.Millisecond, func(context.Context) error { return errors.New("behind a cloud") })
		require.EqualError(t, err, "wait for the moon: not within 10ms: behind a cloud")
	})
	t.Run("keeps what was missing when the last look was cut short", func(t *testing.T) {
		t.Parallel()
		first := true
		err := WaitFor(t.Context(), "the moon", 200*time.Millisecond, func(ctx context.Context) error {
			if first {
				first = false
				return errors.New("behind a cloud")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorContains(t, err, "behind a cloud")
	})
	t.Run("ends with its context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := WaitFor(ctx, "it", time.Minute, func(context.Context) error { return errors.New("not yet") })
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestCondition(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		status int
		body   string
		want   string
	}{
		"true is fine":                          {200, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, ""},
		"false says why":                        {200, `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Slow","message":"no network"}]}}`, "/x is not Ready: Slow: no network"},
		"no condition is not yet":               {200, `{"status":{}}`, "/x is not Ready yet"},
		"a missing object says so":              {404, `not found`, "get /x: 404 Not Found: not found"},
		"an answer that isn't JSON is an error": {200, `<html>`, "parse /x: "},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			err := (&Client{base: server.URL, http: server.Client()}).Condition("/x", "Ready")(t.Context())
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestNewNeedsCertificates(t *testing.T) {
	t.Parallel()
	_, err := New(t.TempDir(), 1)
	require.ErrorContains(t, err, "read certificate authority")
}
