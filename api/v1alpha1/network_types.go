package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ChainSpec says which chain the validators belong to and how to speak to it.
type ChainSpec struct {
	// Adapter that speaks the chain's language.
	// +kubebuilder:validation:Enum=cosmos;cometbft;pocket;exec
	// +kubebuilder:default=cosmos
	Adapter string `json:"adapter,omitempty"`
	// ChainID that every node must report; an answer from another chain is refused.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ChainID string `json:"chainID"`
	// RPC is the URL of a validator's RPC; {pod}, {ordinal} and {namespace} stand
	// for the validator's own, for example http://{pod}.validator:26657.
	// +kubebuilder:validation:Pattern=`^https?://[^\s]+$`
	// +kubebuilder:validation:MaxLength=512
	RPC string `json:"rpc"`
	// Options of the adapter, for example bech32Prefix, denom, gasPrice (documented
	// with each adapter). Never secrets.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Options map[string]string `json:"options,omitempty"`
}

// WorkloadSpec names the objects that run the validators.
type WorkloadSpec struct {
	// StatefulSet whose pod <name>-<ordinal> runs validator <ordinal>.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default=validator
	StatefulSet string `json:"statefulSet,omitempty"`
}

// KeysSpec says where each validator's keys are. Keys themselves never enter
// this object.
type KeysSpec struct {
	// Secret name per validator; {pod} and {ordinal} stand for the validator's own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default="{pod}-keys"
	Secret string `json:"secret,omitempty"`
	// ConsensusEntry of the Secret holds the consensus key (priv_validator_key.json).
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default="priv_validator_key.json"
	ConsensusEntry string `json:"consensusEntry,omitempty"`
	// OperatorEntry of the Secret holds the operator key (mnemonic or hex).
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default="operator.mnemonic"
	OperatorEntry string `json:"operatorEntry,omitempty"`
}

// StakeSpec says what each new validator stakes.
type StakeSpec struct {
	// Amount with its denomination, for example 100000000stake.
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,38}[a-zA-Z][a-zA-Z0-9/:._-]{1,127}$`
	// +kubebuilder:validation:MaxLength=168
	Amount string `json:"amount"`
}

// SafetySpec bounds what Rollcall may do to the network.
type SafetySpec struct {
	// MinValidators is the floor of every scale-down; 4 survives one fault, fewer survive none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=4
	MinValidators int32 `json:"minValidators,omitempty"`
	// MaxValidators is the ceiling of every scale-up.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=16
	MaxValidators int32 `json:"maxValidators,omitempty"`
	// FaultBudget is how many of the strongest remaining validators may fail right after a removal.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=1
	FaultBudget *int32 `json:"faultBudget,omitempty"`
	// SignedBlocks is the number of consecutive commits that prove joining or leaving.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=5
	SignedBlocks int32 `json:"signedBlocks,omitempty"`
	// Unjail allows scale-up and reconcile to bring a jailed validator of the roster back.
	// +optional
	Unjail bool `json:"unjail,omitempty"`
}

// DriftPolicy is what reconcile does about a difference.
// +kubebuilder:validation:Enum=adopt;restore;report
type DriftPolicy string

// Drift policies.
const (
	// DriftAdopt takes the deployment as the truth: what runs is staked, what left is unstaked.
	DriftAdopt DriftPolicy = "adopt"
	// DriftRestore takes the recorded state as the truth.
	DriftRestore DriftPolicy = "restore"
	// DriftReport changes nothing.
	DriftReport DriftPolicy = "report"
)

// DriftSpec configures reconcile.
type DriftSpec struct {
	// +kubebuilder:default=adopt
	Policy DriftPolicy `json:"policy,omitempty"`
}

// ClustersSpec is the fixed membership of a deployment over several clusters.
// A majority of them decides, so that a minority may fail.
type ClustersSpec struct {
	// Names of the member clusters, this one included: contexts of the kubeconfig
	// that the steps are given (ROLLCALL_CLUSTERS_KUBECONFIG).
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Names []string `json:"names"`
	// Generation of the list: two lists can't both have a majority, since a lock
	// counts only in its own generation.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	Generation int64 `json:"generation,omitempty"`
}

// LockSpec configures the deployment's lock.
type LockSpec struct {
	// Name of the DeploymentLock; the network's name when empty.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// TTLSeconds, see DeploymentLock.
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=3600
	// +kubebuilder:default=180
	TTLSeconds int32 `json:"ttlSeconds,omitempty"`
}

// ValidatorNetworkSpec holds decisions only.
//
// +kubebuilder:validation:XValidation:rule="self.validators <= self.safety.maxValidators",message="validators must not be above safety.maxValidators"
// +kubebuilder:validation:XValidation:rule="self.validators >= self.safety.minValidators",message="validators must not be below safety.minValidators"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.token) || !has(self.token) || self.token >= oldSelf.token",message="fenced: a run with a higher token has changed this network since; start a new run"
type ValidatorNetworkSpec struct {
	// Validators wanted. kubectl scale sets it.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Validators int32 `json:"validators"`
	// +kubebuilder:validation:XValidation:rule="self.chainID == oldSelf.chainID",message="chainID is immutable: another chain is another ValidatorNetwork"
	Chain ChainSpec `json:"chain"`
	// +kubebuilder:default={}
	Workload WorkloadSpec `json:"workload,omitempty"`
	// +kubebuilder:default={}
	Keys  KeysSpec  `json:"keys,omitempty"`
	Stake StakeSpec `json:"stake"`
	// +kubebuilder:default={}
	Safety SafetySpec `json:"safety,omitempty"`
	// +kubebuilder:default={}
	Drift DriftSpec `json:"drift,omitempty"`
	// +kubebuilder:default={}
	Lock LockSpec `json:"lock,omitempty"`
	// Clusters that the lock must be held in; absent for one cluster.
	// +kubebuilder:validation:XValidation:rule="self.names == oldSelf.names || self.generation > oldSelf.generation",message="another list of clusters needs a higher generation"
	// +optional
	Clusters *ClustersSpec `json:"clusters,omitempty"`
	// Token of the run that last changed the spec. Written by runs only; people leave it alone.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Token int64 `json:"token,omitempty"`
}

// BondState is a validator's place on the chain, as last proven.
// +kubebuilder:validation:Enum=Unstaked;Waiting;Bonded;Unstaking;Jailed;Tombstoned;Unknown
type BondState string

// RosterEntry is one validator of this deployment.
type RosterEntry struct {
	// Ordinal of the validator's pod.
	// +kubebuilder:validation:Minimum=0
	Ordinal int32 `json:"ordinal"`
	// Address in consensus, uppercase hex.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Address string `json:"address,omitempty"`
	// Operator address on the chain.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Operator string `json:"operator,omitempty"`
	// State on the chain.
	// +optional
	State BondState `json:"state,omitempty"`
	// Signing is true when the validator signed the last commits that were looked at.
	// +optional
	Signing bool `json:"signing,omitempty"`
	// Power in consensus at the recorded height.
	// +optional
	Power int64 `json:"power,omitempty"`
	// JoinedHeight is the first height the validator is known to be in the set.
	// +optional
	JoinedHeight int64 `json:"joinedHeight,omitempty"`
	// LeftHeight is the first height the validator is known to be out of the set.
	// +optional
	LeftHeight int64 `json:"leftHeight,omitempty"`
	// Tx is the hash of the last transaction that Rollcall sent for the validator,
	// until its effect is proven; events tell the story afterwards.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Tx string `json:"tx,omitempty"`
}

// OperationPhase is where an operation stands.
// +kubebuilder:validation:Enum=Running;Succeeded;Failed
type OperationPhase string

// Operation phases.
const (
	OperationRunning   OperationPhase = "Running"
	OperationSucceeded OperationPhase = "Succeeded"
	OperationFailed    OperationPhase = "Failed"
)

// Operation is one run of Rollcall on the network.
type Operation struct {
	// Type, for example scale-up.
	// +kubebuilder:validation:MaxLength=64
	Type string `json:"type"`
	// Validators wanted by the operation.
	Validators int32 `json:"validators"`
	// +optional
	Phase OperationPhase `json:"phase,omitempty"`
	// Step reached.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Step string       `json:"step,omitempty"`
	Run  RunReference `json:"run"`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	User string `json:"user,omitempty"`
	// Token the run worked with.
	Token int64 `json:"token"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Message tells the outcome in one line.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// ValidatorNetworkStatus holds critical facts only.
type ValidatorNetworkStatus struct {
	// ObservedGeneration of the spec that the status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Token of the last writer; a writer with an older one is refused.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Token int64 `json:"token,omitempty"`
	// Height of the chain at which the facts were read.
	// +optional
	Height int64 `json:"height,omitempty"`
	// Validators that run (pods of the StatefulSet in the roster).
	// +optional
	Validators int32 `json:"validators"`
	// Bonded validators of the roster in the consensus set.
	// +optional
	Bonded int32 `json:"bonded"`
	// Signing validators of the roster.
	// +optional
	Signing int32 `json:"signing"`
	// Jailed validators of the roster, tombstoned ones included.
	// +optional
	Jailed int32 `json:"jailed"`
	// Selector of the validator pods, for the scale subresource.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Selector string `json:"selector,omitempty"`
	// LockHolder is "user operation" of the run at work, empty when nobody is.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	LockHolder string `json:"lockHolder,omitempty"`
	// Roster of this deployment's own validators, by ordinal. It is written as a
	// whole: who wrote which field of which entry would take half of its size again.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	// +optional
	Roster []RosterEntry `json:"roster,omitempty"`
	// LastOperation is the running or the last ended operation.
	// +optional
	LastOperation *Operation `json:"lastOperation,omitempty"`
	// History of ended operations, newest first, bounded.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	History []Operation `json:"history,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, Drifted.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Condition types of a ValidatorNetwork, in the manner of kstatus.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	ConditionDrifted     = "Drifted"
)

// ValidatorNetwork is a deployment of validators and what was done to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.validators,statuspath=.status.validators,selectorpath=.status.selector
// +kubebuilder:resource:shortName=vnet
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.spec.validators`
// +kubebuilder:printcolumn:name="Bonded",type=integer,JSONPath=`.status.bonded`
// +kubebuilder:printcolumn:name="Signing",type=integer,JSONPath=`.status.signing`
// +kubebuilder:printcolumn:name="Jailed",type=integer,JSONPath=`.status.jailed`
// +kubebuilder:printcolumn:name="Height",type=integer,JSONPath=`.status.height`
// +kubebuilder:printcolumn:name="Lock",type=string,JSONPath=`.status.lockHolder`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.token) || (has(self.status) && has(self.status.token) && self.status.token >= oldSelf.status.token)",message="fenced: a run with a higher token has written this network since; start a new run"
type ValidatorNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ValidatorNetworkSpec `json:"spec"`
	// +optional
	Status ValidatorNetworkStatus `json:"status,omitempty"`
}

// ValidatorNetworkList is a list of networks.
//
// +kubebuilder:object:root=true
type ValidatorNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ValidatorNetwork `json:"items"`
}
