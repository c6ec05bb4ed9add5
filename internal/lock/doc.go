// Package lock is the fenced lock on one deployment: one run at a time, in one
// cluster or in several, and nobody stuck behind a dead one.
//
// # What it guarantees
//
//   - Every acquisition has a token above every token before it. It is the
//     lock's version and the fencing token: what accepts effects (the API server
//     by CEL rules, the chain's memo, Check before a transaction) refuses an
//     older one.
//   - Two runs never hold the same token, and never a majority of the member
//     clusters at once: every write is a compare-and-swap on resourceVersion.
//   - A holder that renews is not robbed. Others take over only when the run's
//     Workflow, Job or Pod (by UID) is gone or finished, when the lock has stood
//     still for its whole TTL before their own eyes, measured on the monotonic
//     clock, or by force-unlock. Wall clocks are written for people and never read.
//   - A run that lost the lock learns of it: Check fails, and the context of Keep
//     is cancelled with the cause, at most one renewal period after the loss was
//     visible, or when two thirds of the TTL went by without a renewal.
//   - The same run UID always gets its own holding back, with the same token.
//   - Every way a holding ended is recorded by the write that ended it.
//   - Every API request is bounded below the renewal period.
//
// # What it doesn't
//
//   - It can't stop an effect that is already on its way when the lock is lost.
//     That is what the token is for: let the receiver refuse it.
//   - A deleted lock object forgets its token. Options.Floor brings it back from
//     the ValidatorNetwork, so a run must write its token there before its first
//     other effect.
//   - The clocks of two machines may disagree by any amount, but they must run at
//     about the same speed: a holder stops at two thirds of the TTL, others start
//     at the whole.
//   - A machine's monotonic clock may stand still while the machine is suspended.
//     Such a holder learns of its loss only by asking, at the next Check or renewal.
//   - Two member lists without any cluster in common know nothing of each other.
//
// # Several clusters
//
// A lock over n clusters is held by whoever holds floor(n/2)+1 of its objects
// with one token. The list of members has a generation. Whoever brings a new list
// must reach all of its clusters once, and hold a majority of the list before it;
// from then on, the old list is refused. A cluster that was away is brought back
// in by the next renewal.
package lock
