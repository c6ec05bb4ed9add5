package lock

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// kind of an operation.
type kind string

const (
	acquire kind = "acquire" // output: the token
	confirm kind = "confirm" // a Check or renewal that said yes
	release kind = "release"
	force   kind = "force-unlock"
	kill    kind = "kill" // the run's object is deleted
	effect  kind = "effect"
)

// input of an operation.
type input struct {
	Lock  string
	Kind  kind
	Token int64 // of the holding; of an acquire: the same run's earlier holding, if any
}

// output of an operation.
type output struct {
	Token int64 // that an acquire got
	// Renewed is when the holding's TTL began, by the time of the history.
	Renewed time.Duration
	// Returned is when the operation returned.
	Returned time.Duration
	Refused  bool // an effect, by its receiver
	// Unknown is true when nobody can tell whether it happened, now or later.
	Unknown bool
}

// never is the return of an operation that may still happen at any time.
const never = math.MaxInt64

// state of one lock and of what it protects.
type state struct {
	Token   int64 // of the last holding
	Held    bool
	Over    bool          // the run of the holding is gone
	Renewed time.Duration // when the holding's TTL began
	Applied int64         // the highest token of an effect
}

// model of a lock with that TTL. An operation whose outcome is unknown is
// applied if it could be: it may be ordered last, where that changes nothing.
func model(ttl time.Duration) porcupine.Model {
	return porcupine.Model{
		Partition: partition,
		Init:      func() any { return state{} },
		Step: func(s, in, out any) (bool, any) {
			ok, next := step(s.(state), in.(input), out.(output), ttl)
			return ok, next
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return describe(in.(input), out.(output)) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}

func step(s state, in input, out output, ttl time.Duration) (bool, state) {
	ours := s.Held && s.Token == in.Token
	switch in.Kind {
	case acquire:
		// A run may replace its own holding, which is fenced like any other then.
		free := !s.Held || ours || s.Over || out.Returned-s.Renewed >= ttl
		return free && out.Token > s.Token, state{Token: out.Token, Held: true, Renewed: out.Renewed, Applied: s.Applied}
	case confirm:
		s.Renewed = max(s.Renewed, out.Renewed)
		return ours, s
	case release:
		s.Held = s.Held && !ours
		return ours || out.Unknown, s
	case force:
		// Of a higher token, nobody recorded the acquisition: its run died during it.
		if in.Token >= s.Token {
			s.Token, s.Held = in.Token, false
		}
		return true, s
	case kill:
		s.Over = s.Over || ours
		return true, s
	case effect:
		fits := in.Token >= s.Applied
		if fits && !out.Refused {
			s.Applied = in.Token
		}
		return fits != out.Refused || out.Unknown, s
	}
	return false, s
}

func describe(in input, out output) string {
	switch {
	case in.Kind == acquire:
		return fmt.Sprintf("acquire %d", out.Token)
	case out.Unknown:
		return fmt.Sprintf("%s %d ?", in.Kind, in.Token)
	case out.Refused:
		return fmt.Sprintf("%s %d refused", in.Kind, in.Token)
	default:
		return fmt.Sprintf("%s %d", in.Kind, in.Token)
	}
}

// partition splits a history by lock: locks don't know of each other.
func partition(history []porcupine.Operation) [][]porcupine.Operation {
	of := map[string]int{}
	var parts [][]porcupine.Operation
	for _, o := range history {
		name := o.Input.(input).Lock
		i, ok := of[name]
		if !ok {
			i = len(parts)
			of[name] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], o)
	}
	return parts
}
