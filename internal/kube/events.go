package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Controller is the reporter of every event.
const Controller = "rollcall.dev/rollcall"

// Limits of the events API, in bytes.
const (
	maxNote     = 1024
	maxInstance = 128
)

// Event is one line of the story that kubectl describe tells about an object.
type Event struct {
	Regarding corev1.ObjectReference
	Type      string // Normal or Warning
	Reason    string // a word in camel case
	Action    string // what was being done, such as the step
	Note      string // for people; longer ones are cut
	Instance  string // which run reports; "rollcall" when empty
}

// Record writes the event in the clients' namespace at the given time. The
// name sorts by time: describe lists events that carry no legacy time stamp in
// the order of their names.
func (c *Clients) Record(ctx context.Context, e Event, now time.Time) error {
	if e.Instance == "" {
		e.Instance = "rollcall"
	}
	_, err := c.Kube.EventsV1().Events(c.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%016x", e.Regarding.Name, now.UnixNano()), Namespace: c.Namespace},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: Controller,
		ReportingInstance:   cut(e.Instance, maxInstance),
		Action:              e.Action,
		Reason:              e.Reason,
		Note:                cut(e.Note, maxNote),
		Type:                e.Type,
		Regarding:           e.Regarding,
	}, metav1.CreateOptions{})
	return Explain(err, "create", "events.events.k8s.io", c.Namespace, e.Regarding.Name)
}

// cut shortens s to at most n bytes, at the boundary of a character.
func cut(s string, n int) string {
	const more = " ..."
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len(more)], "") + more
}
