// Package lock proves the lock: many clients work with it on real API servers
// while networks, processes and clocks fail, and a linearizability checker
// looks at everything they saw.
//
// # What is checked
//
// For every lock, the recorded history must be explainable by one order of its
// operations, consistent with real time, in which
//
//   - every acquisition has a higher token than all before,
//   - a token is confirmed only while it is the lock's,
//   - a holder that renewed within the TTL isn't replaced, unless it released,
//     was forced out, or its run was over,
//   - effects are applied in token order, and one is refused only when a higher
//     token was there before.
//
// # What isn't
//
// Liveness is only visible in the counts that a run prints: a lock that always
// refuses has no wrong history. And the proof is as good as the faults are: a
// history without violation shows that none was met.
//
// Locks that are broken on purpose, without fencing or with wall clocks, must
// fail the same check, so that it is known to see what it should.
//
// By default a sample of about a minute runs. LOCK_OPS=10000 asks for that many
// lock operations per history, LOCK_SEED repeats the choices of an earlier run.
package lock
