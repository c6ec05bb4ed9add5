// Package comet reads consensus facts from, and sends transactions through, the
// JSON-RPC of one CometBFT 0.38 node at a time.
//
// Guarantees:
//   - Every request has a deadline of its own and a size limit on the answer;
//     redirects aren't followed.
//   - An answer is either complete and plausible or an error: missing fields,
//     negative numbers, keys that don't belong to their address, and pages that
//     don't add up are refused.
//   - A commit's signatures are mapped to validators by index, as the protocol
//     defines, in a set whose Merkle root is the validators hash of that very
//     block's header (for ed25519 and secp256k1 keys; other types are taken as
//     the node gives them).
//   - A signature that counts is one that the validator's key made for this
//     chain id, height, round and block (ed25519 keys): no node can make up that
//     a validator takes part.
//   - Errors carry a fault code: Transient when nobody answered, Chain when the
//     answer isn't CometBFT's or is a refusal. They name the node's URL, without
//     a password that may be in it.
//   - A Client may be used by several goroutines.
//
// Not guaranteed: that a node tells the truth about the rest. A header isn't
// checked against the block id that was signed, so which set decides a block, or
// that a validator was absent, is the node's word: ask nodes that you run, and
// more than one. Nothing is retried here.
package comet

// ChangeDelay is how many blocks after its cause a change of the consensus set
// takes effect: updates returned for block H decide block H+2 (CometBFT's ABCI
// specification, validator updates).
const ChangeDelay = 2
