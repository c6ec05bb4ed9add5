// Command rollcall is every step in one binary: the image holds it once, with a
// link per step, as busybox does. The name it is called by, or its first
// argument, says which step runs.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/internal/version"
	"github.com/rollcall-dev/rollcall/steps"
)

func main() { os.Exit(realMain(os.Args)) }

func realMain(args []string) int {
	name, rest := filepath.Base(args[0]), args[1:]
	if _, ok := steps.Find(name); !ok && len(rest) > 0 {
		name, rest = rest[0], rest[1:]
	}
	if s, ok := steps.Find(name); ok {
		return step.Main(s, rest)
	}
	switch name {
	case "--list-steps":
		for _, s := range steps.All {
			fmt.Println(s.Name())
		}
	case "--version", "version":
		fmt.Println(version.String())
	case "--help", "-h", "help":
		usage(os.Stdout)
	default:
		if len(args) == 1 {
			usage(os.Stdout)
			break
		}
		fmt.Fprintf(os.Stderr, "rollcall: there is no step %q\n\n", name)
		usage(os.Stderr)
		return int(fault.Config)
	}
	return int(fault.OK)
}

func usage(w io.Writer) {
	fmt.Fprint(w, "rollcall runs the life of a validator set on Kubernetes, step by step.\n\nUsage: rollcall STEP [--help]\n\nSteps:\n")
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	for _, s := range steps.All {
		fmt.Fprintf(t, "  %s\t%s\n", s.Name(), s.Summary())
	}
	_ = t.Flush()
	fmt.Fprint(w, "\nOther: --list-steps, --version\n")
}
