package kubetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
)

// AuditEvent is a request that the API server answered: the part of
// audit.k8s.io/v1 Event that tests look at. Bodies are never recorded.
type AuditEvent struct {
	AuditID    string    `json:"auditID"`
	Stage      string    `json:"stage"`
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	User       AuditUser `json:"user"`
	UserAgent  string    `json:"userAgent"`
	// ObjectRef is zero for requests that aren't for a resource.
	ObjectRef      AuditObject `json:"objectRef"`
	ResponseStatus AuditStatus `json:"responseStatus"`
	// Received is when the server got the request, by the machine's clock,
	// in microseconds.
	Received time.Time `json:"requestReceivedTimestamp"`
}

// AuditUser is who asked.
type AuditUser struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// AuditObject is what was asked about.
type AuditObject struct {
	APIGroup    string `json:"apiGroup"`
	APIVersion  string `json:"apiVersion"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
}

// AuditStatus is the answer.
type AuditStatus struct {
	// Code is the HTTP status.
	Code int `json:"code"`
}

// flushLimit bounds the wait for the log to hold a request that was answered.
const flushLimit = 10 * time.Second

// Requests returns the requests that the server received since a time and for
// which keep (nil: any) is true, in the order of the log. A watch counts once,
// from when it was accepted. Requests whose answers were complete before the
// call are in the result.
//
// The log has the requests of everybody, Kubernetes' own controllers included;
// tell yours by rest.Config's UserAgent, by user, or by namespace.
func (cp *ControlPlane) Requests(t testing.TB, since time.Time, keep func(AuditEvent) bool) []AuditEvent {
	t.Helper()
	require.NoError(t, cp.flushAudit(), "wait for the audit log (is the API server running?)")
	raw, err := os.ReadFile(cp.AuditLog())
	require.NoError(t, err, "read audit log")
	events, err := parseAudit(raw)
	require.NoError(t, err)
	var kept []AuditEvent
	for _, e := range events {
		// The log has microseconds, the caller's time nanoseconds.
		if e.Received.Before(since.Truncate(time.Microsecond)) || (keep != nil && !keep(e)) {
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// parseAudit reads the log's lines, one event per request. A line that is
// still being written, the last, is left out.
func parseAudit(raw []byte) ([]AuditEvent, error) {
	if end := bytes.LastIndexByte(raw, '\n'); end >= 0 {
		raw = raw[:end]
	} else {
		raw = nil
	}
	var events []AuditEvent
	seen := map[string]bool{}
	s := bufio.NewScanner(bytes.NewReader(raw))
	s.Buffer(nil, len(raw)+1)
	for s.Scan() {
		var e AuditEvent
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("parse audit log: %w", err)
		}
		if seen[e.AuditID] { // a later stage of a long request
			continue
		}
		seen[e.AuditID] = true
		events = append(events, e)
	}
	return events, nil
}

// flushAudit makes a request of its own and waits until the log has it: the
// server logs a request after it has answered it.
func (cp *ControlPlane) flushAudit() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	mark := fmt.Sprintf("kubetest-mark=%016x", rand.Uint64())
	config := cp.Config()
	config.UserAgent = "kubetest"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := client.RESTClient().Get().RequestURI("/version?" + mark).Do(ctx).Error(); err != nil {
		return fmt.Errorf("ask API server: %w", err)
	}
	return poll(ctx, func(context.Context) error {
		raw, err := os.ReadFile(cp.AuditLog())
		if err != nil {
			return err
		}
		if !bytes.Contains(raw, []byte(mark)) {
			return errors.New("the audit log lags behind")
		}
		return nil
	})
}
