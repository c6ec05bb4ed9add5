// Command demo-chain-binary builds the demo chain's binary, unless the cache
// has it, and prints its path.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rollcall-dev/rollcall/test/localnet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	path, err := localnet.Binary(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-chain-binary:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
