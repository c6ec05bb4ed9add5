// Package api asks an API server the few questions that bringing a cluster up
// needs: is it ready, is the node, is there a service account. It is an HTTPS
// client with the administrator's certificate; client-go would be most of the
// tool's size and build time.
package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sethvargo/go-retry"
)

// requestLimit bounds one request.
const requestLimit = 5 * time.Second

// pollEvery is the pause between two looks at a condition.
const pollEvery = 100 * time.Millisecond

// Client asks one API server.
type Client struct {
	base string
	http *http.Client
}

// New returns a client for https://127.0.0.1:port with the authority and the
// administrator's certificate from the folder pki.
func New(pki string, port int) (*Client, error) {
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("read certificate authority: no certificate in ca.crt")
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("read administrator's certificate: %w", err)
	}
	return &Client{
		base: fmt.Sprintf("https://127.0.0.1:%d", port),
		http: &http.Client{
			Timeout: requestLimit,
			Transport: &http.Transport{
				TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
				DisableKeepAlives: true,
			},
		},
	}, nil
}

// Get returns the body of a resource; anything but 200 is an error.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s: %.300s", path, res.Status, body)
	}
	return body, nil
}

// Ready is nil once /readyz answers 200, which includes the built-in roles.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.Get(ctx, "/readyz")
	return err
}

// Exists is nil once the resource is there.
func (c *Client) Exists(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Get(ctx, path)
		return err
	}
}

// Condition is nil once the object at path has a status condition of the type
// with status True.
func (c *Client) Condition(path, kind string) func(context.Context) error {
	return func(ctx context.Context) error {
		body, err := c.Get(ctx, path)
		if err != nil {
			return err
		}
		var o struct {
			Status struct {
				Conditions []struct{ Type, Status, Reason, Message string }
			}
		}
		if err := json.Unmarshal(body, &o); err != nil {
			return fmt.Errorf("parse %s: %w", path, err)
		}
		for _, cond := range o.Status.Conditions {
			if cond.Type == kind && cond.Status == "True" {
				return nil
			} else if cond.Type == kind {
				return fmt.Errorf("%s is not %s: %s: %s", path, kind, cond.Reason, cond.Message)
			}
		}
		return fmt.Errorf("%s is not %s yet", path, kind)
	}
}

// WaitFor looks at a condition until it holds; after the limit it returns the
// condition's last error.
func WaitFor(ctx context.Context, what string, limit time.Duration, cond func(context.Context) error) error {
	var last error
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := retry.Do(ctx, retry.NewConstant(pollEvery), func(ctx context.Context) error {
		err := cond(ctx)
		if err == nil {
			return nil
		}
		// What a cancelled request says is less than what the one before said.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return retry.RetryableError(err)
	})
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("wait for %s: not within %s: %w", what, limit, last)
	}
	return fmt.Errorf("wait for %s: %w", what, err)
}
