package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Identity names a process beyond doubt: pids are reused, a pid together with
// its start time isn't.
type Identity struct {
	PID int `json:"pid"`
	// Start is the process's start time in clock ticks since boot, field 22
	// of /proc/PID/stat (proc(5)).
	Start uint64 `json:"start"`
}

// Identify reads the identity of a live process.
func Identify(pid int) (Identity, error) {
	_, start, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: start}, nil
}

// Alive reports whether that very process still runs; a zombie doesn't.
func (i Identity) Alive() bool {
	if i.PID <= 0 {
		return false
	}
	state, start, err := readStat(i.PID)
	return err == nil && start == i.Start && state != 'Z' && state != 'X'
}

// Signal sends a signal if that very process still runs.
func (i Identity) Signal(s syscall.Signal) error {
	if !i.Alive() {
		return nil
	}
	if err := syscall.Kill(i.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", i.PID, err)
	}
	return nil
}

// readStat returns state and start time of a process.
func readStat(pid int) (byte, uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	// The second field is the name in parentheses and may hold anything.
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("read process %d: malformed stat", pid)
	}
	const startField = 22 - 3 // fields after the name are counted from 3
	fields := strings.Fields(string(raw[end+1:]))
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("read process %d: short stat", pid)
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read process %d: parse start time: %w", pid, err)
	}
	return fields[0][0], start, nil
}

// FromNamespace finds the process that has the pid inner within the pid
// namespace of the process init, as seen from here.
func FromNamespace(init, inner int) (int, error) {
	want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", init))
	if err != nil {
		return 0, fmt.Errorf("read pid namespace of process %d: %w", init, err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err != nil || ns != want {
			continue
		}
		if innermost(pid) == inner {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("find process %d of the cluster's pid namespace: %w", inner, os.ErrNotExist)
}

// innermost is the pid of a process in its own pid namespace, 0 if unknown.
func innermost(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(rest)
			n, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}
