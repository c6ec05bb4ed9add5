// Command coredns is CoreDNS with just the plugins that a cluster's resolver
// needs. It answers for cluster.local and forwards nothing: the embedded
// cluster has no way out, so every other name doesn't exist (see the Corefile
// beside the manifests).
//
// It is a module of its own because its dependencies' versions differ from
// those that Kubernetes is built and tested with.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order is CoreDNS's own: it decides which plugin sees a query first.
	dnsserver.Directives = []string{"ready", "health", "errors", "cache", "template", "kubernetes"}
	coremain.Run()
}
