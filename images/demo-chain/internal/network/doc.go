// Package network makes a demo network: a consensus key, a node key and an
// operator account for every validator, and the genesis that the first of them
// start from, written either as node homes or as Kubernetes objects.
//
// Keys are random unless a seed is given. A seed makes everything reproducible
// and therefore public: it is for tests only.
//
// Secrets go into files with mode 0600 below the output folder and nowhere
// else. Every validator's secrets are in files of their own; the genesis and
// the summary hold public facts only.
package network
