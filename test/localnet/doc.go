// Package localnet runs a demo-chain network as plain processes on loopback,
// for tests that need a real chain: real nodes, real consensus, nothing faked.
//
// It guarantees that
//   - networks of parallel tests and test binaries don't meet: each has its own
//     addresses in 127.0.0.0/8, held for as long as it exists;
//   - no node outlives the test: nodes are killed at its end, and by the kernel
//     if the test process dies;
//   - every wait is bounded and fails the test with what it saw last;
//   - when a test fails, the end of every node's log is in its output.
//
// It does not guarantee timing: a block takes at least Options.BlockTime, on a
// busy machine a lot longer. It needs Linux.
package localnet
