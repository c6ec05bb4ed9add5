package locktest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what happens to one request.
type Fault struct {
	// Status answers with this HTTP status without asking the server; zero asks it.
	Status int
	// Refuse fails the request as a server that doesn't listen does.
	Refuse bool
	// Hang keeps the request without sending it until its context ends.
	Hang bool
	// Before and After delay the request and its answer. A request whose context
	// ends during Before isn't sent; one that ends during After was executed.
	Before, After time.Duration
	// Lose executes the request and drops the answer.
	Lose bool
}

// Rule picks the fault of a request; nil means none.
type Rule func(*http.Request) *Fault

var (
	errLost    = errors.New("injected: the connection broke before the answer")
	errRefused = errors.New("injected: connection refused")
)

// Network is a transport between one client and one API server.
type Network struct {
	next http.RoundTripper
	rule atomic.Pointer[Rule]

	mu       sync.Mutex
	requests []string
}

// Set replaces the rule; nil ends all faults.
func (n *Network) Set(r Rule) {
	if r == nil {
		n.rule.Store(nil)
		return
	}
	n.rule.Store(&r)
}

// Requests are the method and the last part of the path of every request so
// far, watches marked as WATCH.
func (n *Network) Requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.requests...)
}

// WrappedRoundTripper lets client-go find what it wants to cancel.
func (n *Network) WrappedRoundTripper() http.RoundTripper { return n.next }

// RoundTrip implements http.RoundTripper.
func (n *Network) RoundTrip(r *http.Request) (*http.Response, error) {
	method := r.Method
	if IsWatch(r) {
		method = "WATCH"
	}
	n.mu.Lock()
	n.requests = append(n.requests, method+" "+r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
	n.mu.Unlock()
	var f *Fault
	if rule := n.rule.Load(); rule != nil {
		f = (*rule)(r)
	}
	if f == nil {
		return n.next.RoundTrip(r)
	}
	return n.fail(r, f)
}

func (n *Network) fail(r *http.Request, f *Fault) (*http.Response, error) {
	switch {
	case f.Refuse:
		return nil, errRefused
	case f.Hang:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case !sleep(r, f.Before):
		return nil, r.Context().Err()
	case f.Status != 0:
		return answer(r, f.Status), nil
	}
	if f.Lose || f.After > 0 {
		// The server must finish what it began even when the client leaves.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishLimit)
		resp, err := n.next.RoundTrip(r.Clone(ctx))
		if err == nil && (f.Lose || !sleep(r, f.After)) {
			err = errLost
			_ = resp.Body.Close()
		}
		if err != nil {
			cancel()
			return nil, err
		}
		resp.Body = body{resp.Body, cancel}
		return resp, nil
	}
	return n.next.RoundTrip(r)
}

// finishLimit bounds a request whose client doesn't wait for it any more.
const finishLimit = 20 * time.Second

// body frees the context of its request when it is closed.
type body struct {
	io.ReadCloser
	cancel func()
}

// Close ends the request, too.
func (b body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

func sleep(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-t.C:
		return true
	}
}

func answer(r *http.Request, status int) *http.Response {
	h := http.Header{"Content-Type": {"text/plain"}}
	if status == http.StatusTooManyRequests {
		h.Set("Retry-After", "1")
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Request: r, Body: io.NopCloser(strings.NewReader("injected: " + http.StatusText(status))),
	}
}

// IsWatch reports whether the request opens a watch.
func IsWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// IsWrite reports whether the request changes something.
func IsWrite(r *http.Request) bool { return r.Method != http.MethodGet }

// Times limits a fault to the next n requests that match.
func Times(n int, match func(*http.Request) bool, f Fault) Rule {
	var left atomic.Int64
	left.Store(int64(n))
	return func(r *http.Request) *Fault {
		if !match(r) || left.Add(-1) < 0 {
			return nil
		}
		return &f
	}
}

// Always applies the fault to every request that matches.
func Always(match func(*http.Request) bool, f Fault) Rule {
	return func(r *http.Request) *Fault {
		if match(r) {
			return &f
		}
		return nil
	}
}

// Any matches every request.
func Any(*http.Request) bool { return true }
