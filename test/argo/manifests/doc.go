// Package manifests renders the installation of Argo Workflows for a test
// cluster: the release's own kustomize bases with the overlay in this folder on
// top.
//
// It guarantees that everything but the documented patches is what the release
// ships, that the controller watches all namespaces as in the release's cluster
// install, and that the controller and the containers which the executor adds to
// each workflow pod satisfy Pod Security "restricted". It does not set defaults
// for the workflows' own containers: what a workflow needs to run under
// "restricted" it must say itself, as it would have to on its user's cluster.
package manifests
