// Package v1alpha1 holds Rollcall's custom resources: ValidatorNetwork, the
// deployment's recorded state, and DeploymentLock, the fenced lock on it.
//
// What enters a ValidatorNetwork: decisions (spec) and critical facts that
// can't be derived from the StatefulSet or the manifests (status). What never
// does: log levels, user preferences, secrets, anything derivable.
//
// The types and their CEL rules are the guarantee that the API server gives:
// a token never goes down, and a writer with an older token is refused. They
// don't guarantee that the status is fresh; facts come from the chain.
//
// +kubebuilder:object:generate=true
// +groupName=rollcall.dev
package v1alpha1
