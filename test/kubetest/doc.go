// Package kubetest gives integration tests real API servers: control planes
// of the embedded Kubernetes (etcd, API server, controller manager, scheduler;
// no node), with RBAC and Pod Security admission on and an audit log to count
// requests in.
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		cp := kubetest.Start(t)
//		ns := cp.NewNamespace(t)
//		client := kubernetes.NewForConfigOrDie(cp.Config())
//		...
//	}
//
// It guarantees that a control plane ends with the test binary, however that
// ends: it lives only as long as a pipe to the test binary is open. It does not
// give isolation between tests that share a control plane; use a namespace per
// test, or a control plane of one's own (Dedicated) for tests that stop, freeze
// or restart it.
//
// The first start on a machine builds Kubernetes, which takes longer than go
// test's default limit: run "go run ./cmd/cluster build" in test/cluster
// before (the Makefile does).
package kubetest
