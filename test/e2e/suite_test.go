//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// whole asks for every scene; without it, those that only repeat a point of
// another one at length are left out.
var whole = flag.Bool("whole", false, "run every scene")

// TestDemo runs the scenarios in order.
func TestDemo(t *testing.T) {
	d := connect(t)
	t.Cleanup(func() { d.results.print() })
	for _, s := range []struct {
		name string
		run  func(*testing.T, *demo)
	}{
		{"main story", mainStory},
		{"without Argo", withoutArgo},
		{"bad input", badInput},
		{"lock", locks},
		{"secrets", secrets},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(t, d) })
	}
}

// results is the table that a run prints at its end.
type results struct {
	mu   sync.Mutex
	rows [][4]string
}

func (r *results) add(ok bool, name, seen string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mark := "ok"
	if !ok {
		mark = "FAILED"
	}
	r.rows = append(r.rows, [4]string{mark, name, seen, took.Round(100 * time.Millisecond).String()})
}

func (r *results) print() {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := tabwriter.NewWriter(os.Stdout, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\nRESULT\tCASE\tSEEN\tTIME")
	for _, row := range r.rows {
		fmt.Fprintln(w, strings.Join(row[:], "\t"))
	}
	_ = w.Flush()
}

// scene runs one case as a subtest and adds its row to the table: what f
// returns is what was seen.
func (d *demo) scene(t *testing.T, name string, f func(t *testing.T) (seen string)) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) {
		start := time.Now()
		seen := "see the log above"
		defer func() {
			_, theme, _ := strings.Cut(t.Name(), "/")
			theme, _, _ = strings.Cut(theme, "/")
			d.results.add(!t.Failed(), strings.ReplaceAll(theme, "_", " ")+": "+name, seen, time.Since(start))
		}()
		seen = f(t)
		t.Log(seen)
	})
}
