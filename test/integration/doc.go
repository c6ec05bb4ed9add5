// Package integration tests the steps as processes: a real API server with the
// real custom resources and the rights of manifests/base/rbac.yaml, and a real
// chain where consensus matters. Two parts stand in for what isn't there: there
// is no kubelet, so the tests declare pods ready and start their nodes, and one
// HTTP gateway hands requests for /ORDINAL to that validator's real node, since
// the nodes have addresses of their own instead of pod names.
//
// It doesn't test workflows, images or the embedded cluster: test/e2e does.
package integration
