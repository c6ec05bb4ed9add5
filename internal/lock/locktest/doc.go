// Package locktest helps to test locks against real API servers: clients with
// an identity of their own, whose requests can be made to fail the way networks
// and API servers do.
//
// It guarantees that a fault happens to exactly the requests that a rule picks,
// and that a lost answer is the answer of a request that was executed. It is
// only for tests.
package locktest
