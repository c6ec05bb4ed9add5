package workload_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/workload"
)

func TestOrdinalIsTheInverseOfPodName(t *testing.T) {
	t.Parallel()
	for _, o := range []int{0, 1, 9, 10, 999} {
		got, ok := workload.Ordinal("validator", workload.PodName("validator", o))
		require.True(t, ok)
		require.Equal(t, o, got)
	}
	for name, pod := range map[string]string{
		"another StatefulSet's pod":               "full-0",
		"a pod of a StatefulSet with a like name": "validator-full-0",
		"no ordinal":                        "validator-",
		"only the name":                     "validator",
		"a leading zero":                    "validator-01",
		"a sign":                            "validator-+1",
		"a negative number":                 "validator--1",
		"a hash, as a Deployment's pod has": "validator-7d9f8-x2x4z",
		"a number beyond int":               "validator-99999999999999999999",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ok := workload.Ordinal("validator", pod)
			require.False(t, ok, pod)
		})
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"http://{pod}.validator.{namespace}:26657": "http://val-7.validator.net:26657",
		"{ordinal}-{pod}-{ordinal}":                "7-val-7-7",
		"fixed":                                    "fixed",
		"{unknown} {POD} {pod":                     "{unknown} {POD} {pod",
		"":                                         "",
	} {
		require.Equal(t, want, workload.Expand(template, "val", "net", 7), template)
	}
	require.Equal(t, "{ordinal}-0", workload.Expand("{pod}", "{ordinal}", "net", 0), "a replacement is not expanded again")
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, workload.Replicas(&appsv1.StatefulSet{}), "Kubernetes' default")
	zero := int32(0)
	require.Equal(t, 0, workload.Replicas(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &zero}}))
}

func TestReady(t *testing.T) {
	t.Parallel()
	pod := func(s corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: s},
		}}}
	}
	ending := pod(corev1.ConditionTrue)
	ending.DeletionTimestamp = &metav1.Time{}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"no pod isn't ready":                   {nil, false},
		"a pod without conditions isn't ready": {&corev1.Pod{}, false},
		"ready containers aren't a ready pod":  {pod(corev1.ConditionFalse), false},
		"a ready pod is ready":                 {pod(corev1.ConditionTrue), true},
		"a pod that is ending isn't ready":     {ending, false},
		"a pod nobody heard of lately is not":  {pod(corev1.ConditionUnknown), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, workload.Ready(c.pod))
		})
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "node", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	pod := func(change func(*corev1.PodStatus)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "validator-4"}}
		if change != nil {
			change(&p.Status)
		}
		return p
	}
	container := func(c corev1.ContainerStatus) *corev1.Pod {
		return pod(func(s *corev1.PodStatus) { s.ContainerStatuses = []corev1.ContainerStatus{c} })
	}
	crashed := waiting("CrashLoopBackOff", "back-off 10s")
	crashed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: "key of another chain\n"}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"no pod has no trouble":                      {nil, ""},
		"a new pod has no trouble":                   {pod(nil), ""},
		"a pod that is being started has none":       {container(waiting("ContainerCreating", "")), ""},
		"a pod that initialises has none":            {container(waiting("PodInitializing", "")), ""},
		"a running container has none":               {container(corev1.ContainerStatus{Name: "node"}), ""},
		"an image that can't be pulled":              {container(waiting("ErrImagePull", "not found")), "pod validator-4, container node: ErrImagePull: not found"},
		"an image that still can't be pulled":        {container(waiting("ImagePullBackOff", "Back-off")), "pod validator-4, container node: ImagePullBackOff: Back-off"},
		"an image name that can't be":                {container(waiting("InvalidImageName", "bad")), "pod validator-4, container node: InvalidImageName: bad"},
		"a Secret that is missing":                   {container(waiting("CreateContainerConfigError", `secret "x" not found`)), `pod validator-4, container node: CreateContainerConfigError: secret "x" not found`},
		"a crashing container shows its own message": {container(crashed), "pod validator-4, container node: CrashLoopBackOff: key of another chain"},
		"an init container counts": {pod(func(s *corev1.PodStatus) {
			s.InitContainerStatuses = []corev1.ContainerStatus{waiting("ErrImageNeverPull", "no")}
		}), "pod validator-4, container node: ErrImageNeverPull: no"},
		"a pod that no node takes": {pod(func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes"}}
		}), "pod validator-4 can't be scheduled: 0/1 nodes"},
		"a scheduled pod has none": {pod(func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, workload.Trouble(c.pod))
		})
	}
}
