// Command demo-chain is a small proof-of-stake chain on the Cosmos SDK: node,
// command line, and the tools that make and start a demo network.
package main

import (
	"fmt"
	"os"

	"github.com/rollcall-dev/rollcall/images/demo-chain/cli"
)

func main() {
	if err := cli.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "demo-chain:", err)
		os.Exit(1)
	}
}
