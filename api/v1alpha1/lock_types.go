package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RunReference names the Kubernetes object that a run belongs to. When that
// object is gone or finished, so is the run.
type RunReference struct {
	// APIVersion of the object, for example argoproj.io/v1alpha1, batch/v1 or v1.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the object: Workflow, Job or Pod. Empty for a run outside of a cluster.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the object.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the object; the lock's own when empty.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Cluster is the member cluster the object lives in; empty for the lock's own
	// cluster when that is the only one. Without it nobody can look the run up in
	// a lock over several clusters.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// UID of the run: the Workflow's, Job's or Pod's UID, or a random one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	UID string `json:"uid"`
}

// Holder is who works on a deployment.
type Holder struct {
	// Run that holds the lock. A lock is re-entrant for the same run UID.
	Run RunReference `json:"run"`
	// User who started the run.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	User string `json:"user,omitempty"`
	// Host (node or workstation) the run was last seen on.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Host string `json:"host,omitempty"`
	// Pod the run was last seen in.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Pod string `json:"pod,omitempty"`
	// Operation, for example scale-up.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Operation string `json:"operation,omitempty"`
	// Step that last renewed the lock.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Step string `json:"step,omitempty"`
	// Reason the user gave.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`
}

// DeploymentLockSpec is the lock itself. It is only written by compare-and-swap
// on resourceVersion.
//
// +kubebuilder:validation:XValidation:rule="self.token >= oldSelf.token",message="token must never go down: it is the fencing token of every run so far"
// +kubebuilder:validation:XValidation:rule="!has(self.holder) || (has(oldSelf.holder) && oldSelf.holder.run.uid == self.holder.run.uid) || self.token > oldSelf.token",message="a new holder needs a token above the last one"
// +kubebuilder:validation:XValidation:rule="!has(self.members) || !has(oldSelf.members) || self.members == oldSelf.members || (has(self.generation) && has(oldSelf.generation) && self.generation > oldSelf.generation)",message="changing the member clusters needs a higher generation"
type DeploymentLockSpec struct {
	// Holder is absent while the lock is free.
	// +optional
	Holder *Holder `json:"holder,omitempty"`
	// Token is the lock's version and the fencing token: one more at every
	// acquisition, never reset.
	// +kubebuilder:validation:Minimum=0
	Token int64 `json:"token"`
	// TTLSeconds is how long a holder may stay silent before others may take over.
	// Others judge it by the stillness that they see themselves, never by comparing clocks.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +kubebuilder:default=180
	TTLSeconds int32 `json:"ttlSeconds,omitempty"`
	// Renewals of this holding so far. It makes every renewal a change that others
	// see, even when the holder's clock stands still.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Renewals int64 `json:"renewals,omitempty"`
	// AcquiredAt is the holder's clock at acquisition; for people only.
	// +optional
	AcquiredAt *metav1.MicroTime `json:"acquiredAt,omitempty"`
	// RenewedAt is the holder's clock at the last renewal; for people only.
	// +optional
	RenewedAt *metav1.MicroTime `json:"renewedAt,omitempty"`
	// Generation of the member list; a lock counts only in its own generation.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Members are the names of the member clusters, sorted; empty for a single cluster.
	// +kubebuilder:validation:MaxItems=15
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	Members []string `json:"members,omitempty"`
}

// PreviousHolder is an ended holding, for people to read.
type PreviousHolder struct {
	Holder `json:",inline"`
	// Token of that holding.
	Token int64 `json:"token"`
	// AcquiredAt by that holder's clock.
	// +optional
	AcquiredAt *metav1.MicroTime `json:"acquiredAt,omitempty"`
	// EndedAt by the clock of the writer of this entry.
	// +optional
	EndedAt *metav1.MicroTime `json:"endedAt,omitempty"`
	// Ending tells how it ended.
	// +kubebuilder:validation:Enum=Released;Expired;RunGone;Forced
	Ending string `json:"ending"`
	// By is who ended the holding, when that wasn't its own run, and why.
	// +kubebuilder:validation:MaxLength=1400
	// +optional
	By string `json:"by,omitempty"`
}

// DeploymentLockStatus is the audit trail of the lock.
type DeploymentLockStatus struct {
	// Previous holders, newest first, bounded.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Previous []PreviousHolder `json:"previous,omitempty"`
}

// DeploymentLock serialises the work on one deployment. It is never deleted;
// its token is its version.
//
// It has no status subresource on purpose: a holding and the record of how the
// one before it ended are written by the same compare-and-swap, so that no
// takeover and no forced unlock is ever without its trace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=dlock
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.spec.holder.user`
// +kubebuilder:printcolumn:name="Operation",type=string,JSONPath=`.spec.holder.operation`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.spec.holder.step`
// +kubebuilder:printcolumn:name="Run",type=string,JSONPath=`.spec.holder.run.name`
// +kubebuilder:printcolumn:name="Token",type=integer,JSONPath=`.spec.token`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.spec.acquiredAt`
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.spec.renewedAt`
type DeploymentLock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DeploymentLockSpec `json:"spec"`
	// +optional
	Status DeploymentLockStatus `json:"status,omitempty"`
}

// DeploymentLockList is a list of locks.
//
// +kubebuilder:object:root=true
type DeploymentLockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DeploymentLock `json:"items"`
}
