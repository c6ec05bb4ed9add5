package comet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

const (
	// DefaultTimeout is the deadline of one request.
	DefaultTimeout = 5 * time.Second
	// maxAnswer bounds an answer's size. The largest ones, blocks and their
	// results, are bounded by consensus at a few MiB.
	maxAnswer = 32 << 20
	// quoted is how much of an answer that makes no sense an error shows.
	quoted = 80
)

// Errors that callers decide on. They are always wrapped in a fault.Error.
var (
	// ErrGarbage means that the answer isn't one of CometBFT's.
	ErrGarbage = errors.New("answered what isn't CometBFT RPC")
	// ErrFutureHeight means that the node doesn't have the height yet.
	ErrFutureHeight = errors.New("the node has not reached that height")
	// ErrPruned means that the node doesn't have the height any more.
	ErrPruned = errors.New("the node no longer has that height")
	// ErrNoTx means that no block the node has indexed holds the transaction.
	ErrNoTx = errors.New("transaction not found")
	// ErrNoIndex means that the node can't look transactions up by hash.
	ErrNoIndex = errors.New("the node doesn't index transactions")
	// ErrInCache means that the node has seen exactly this transaction lately:
	// it waits in the mempool, or is in a block, or was refused.
	ErrInCache = errors.New("the node has seen this transaction already")
)

// Client speaks to any number of nodes.
type Client struct {
	http    *http.Client
	timeout time.Duration
	sets    *setCache
}

// Option changes a Client.
type Option func(*Client)

// WithTimeout sets the deadline of one request; DefaultTimeout otherwise.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// New returns a Client.
func New(options ...Option) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented by net/http
	transport.MaxIdleConnsPerHost = parallelCommits
	c := &Client{
		timeout: DefaultTimeout,
		sets:    newSetCache(),
		http: &http.Client{
			Transport: transport,
			// A redirect can only lead away from the node that was asked.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	for _, o := range options {
		o(c)
	}
	return c
}

// URL returns the endpoint's address for requests. It takes http, https, and
// tcp, which is how CometBFT's own tools write it.
func URL(e chain.Endpoint) (*url.URL, error) {
	u, err := url.Parse(string(e))
	if err != nil {
		// The parser's error quotes the text, which may hold a password.
		return nil, fault.New(fault.Config, "an RPC endpoint isn't a URL").Do("write it like http://validator-0.validator:26657")
	}
	if u.Scheme == "tcp" {
		u.Scheme = "http"
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(fault.Config, "RPC endpoint %q isn't an http URL", u.Redacted()).Do("write it like http://validator-0.validator:26657")
	}
	return u, nil
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    string `json:"data"`
}

func (e rpcError) text() string {
	if e.Data == "" {
		return clip(e.Message, 400)
	}
	return clip(e.Data, 400)
}

// call asks one node and hands a successful result to parse, whose error means
// that the result makes no sense.
func (c *Client) call(ctx context.Context, e chain.Endpoint, method string, params map[string]any, parse func([]byte) error) error {
	u, err := URL(e)
	if err != nil {
		return err
	}
	if params == nil {
		params = map[string]any{}
	}
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return fmt.Errorf("encode %s request: %w", method, err)
	}
	body, status, err := c.post(ctx, u, method, request)
	if err != nil {
		return err
	}
	result, refusal, err := parseEnvelope(body)
	switch {
	case err != nil && passing(status):
		return fault.New(fault.Transient, "ask %s for %s: HTTP status %d", u.Redacted(), method, status)
	case err != nil:
		return garbage(u, method, err, body)
	case refusal != nil:
		return refused(u, method, *refusal)
	}
	if err := parse(result); err != nil {
		return garbage(u, method, err, body)
	}
	return nil
}

// passing reports whether an HTTP status tells of something that may pass: a
// proxy's trouble, or too many requests.
func passing(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return true
	}
	return false
}

func (c *Client) post(ctx context.Context, u *url.URL, method string, request []byte) ([]byte, int, error) {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	fail := func(err error) error {
		if ctx.Err() != nil {
			return fmt.Errorf("ask %s for %s: %w", u.Redacted(), method, context.Cause(ctx))
		}
		if limited.Err() != nil {
			return fault.New(fault.Transient, "ask %s for %s: no answer within %s", u.Redacted(), method, c.timeout)
		}
		// url.Error repeats method and URL.
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fault.New(fault.Transient, "ask %s for %s: %w", u.Redacted(), method, err)
	}
	req, err := http.NewRequestWithContext(limited, http.MethodPost, u.String(), bytes.NewReader(request))
	if err != nil {
		return nil, 0, fmt.Errorf("make %s request: %w", method, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, fail(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, 0, fail(err)
	}
	if len(body) > maxAnswer {
		return nil, 0, garbage(u, method, fmt.Errorf("more than %d MiB", maxAnswer>>20), body)
	}
	return body, resp.StatusCode, nil
}

func garbage(u *url.URL, method string, why error, body []byte) error {
	return fault.New(fault.Chain, "%s %w (%s): %w; it began with %q", u.Redacted(), ErrGarbage, method, why, clip(string(body), quoted)).
		Do("check that the endpoint is the RPC port (usually 26657) of a CometBFT node")
}

// refused gives a node's error object its meaning. CometBFT has one code for
// everything (-32603), so it is known by its text.
func refused(u *url.URL, method string, r rpcError) error {
	text := r.text()
	known := func(code fault.Code, sentinel error) error {
		return fault.New(code, "ask %s for %s: %w (%s)", u.Redacted(), method, sentinel, text)
	}
	switch {
	case strings.Contains(text, "must be less than or equal to the current blockchain height"):
		return known(fault.Transient, ErrFutureHeight)
	case strings.Contains(text, "is not available, lowest height is"),
		strings.Contains(text, "could not find validator set for height"),
		strings.Contains(text, "could not find results for height"):
		return known(fault.Chain, ErrPruned)
	case method == "tx" && strings.Contains(text, "not found"):
		return known(fault.Transient, ErrNoTx)
	case strings.Contains(text, "transaction indexing is disabled"):
		return known(fault.Chain, ErrNoIndex)
	case strings.Contains(text, "tx already exists in cache"):
		return known(fault.Chain, ErrInCache)
	case strings.Contains(text, "ool is full"):
		return fault.New(fault.Transient, "ask %s for %s: %s", u.Redacted(), method, text)
	case strings.Contains(text, "Tx too large"):
		return fault.New(fault.Chain, "ask %s for %s: %s", u.Redacted(), method, text)
	case r.Code == -32601 || r.Code == -32602 || r.Code == -32600 || r.Code == -32700:
		return fault.New(fault.Chain, "%s refuses the RPC method %s: %s (%d)", u.Redacted(), method, text, r.Code).
			Do("check that the endpoint is a CometBFT 0.38 node that serves this method")
	}
	return fault.New(fault.Transient, "ask %s for %s: internal error: %s (%d)", u.Redacted(), method, text, r.Code)
}

// clip shortens foreign text for an error.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
