package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and version of the API, and the resources it serves.
var (
	GroupVersion    = schema.GroupVersion{Group: "rollcall.dev", Version: "v1alpha1"}
	NetworkResource = GroupVersion.WithResource("validatornetworks")
	LockResource    = GroupVersion.WithResource("deploymentlocks")
	NetworkKind     = GroupVersion.WithKind("ValidatorNetwork")
	LockKind        = GroupVersion.WithKind("DeploymentLock")
)

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ValidatorNetwork{}, &ValidatorNetworkList{}, &DeploymentLock{}, &DeploymentLockList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
