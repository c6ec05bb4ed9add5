package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/yaml"
)

// Smoke runs one workflow in a namespace of its own that enforces Pod Security
// "restricted".
type Smoke struct {
	Kubectl Kubectl
	// CLI is the path of the argo command line.
	CLI string
	// ExecutorImage is used for the workflow's own containers too: it is on the
	// node in any case.
	ExecutorImage string
	// Timeout bounds everything but the clean-up, which has a minute.
	Timeout time.Duration
	Log     func(format string, args ...any)
}

// cleanUpLimit bounds the deletion of the namespace.
const cleanUpLimit = time.Minute

// Run submits the workflow, waits for its end and deletes the namespace. The
// workflow has two containers in one pod, the second after the first, that share
// a volume in memory, and an exit handler: the parts that Rollcall's own
// workflows are made of.
func (s Smoke) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("gave up after %s", s.Timeout))
	defer cancel()
	namespace := "argo-smoke-" + rand.String(5)
	objects, err := s.namespace(namespace)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
		defer cancel()
		_, cleanErr := s.Kubectl.Run(ctx, nil, "delete", "namespace", namespace, "--ignore-not-found")
		err = errors.Join(err, cleanErr)
	}()
	if _, err := s.Kubectl.Run(ctx, objects, "apply", "--server-side", "--field-manager="+fieldManager, "-f", "-"); err != nil {
		return fmt.Errorf("make namespace for the workflow: %w", err)
	}
	workflow, err := yaml.Marshal(s.workflow())
	if err != nil {
		return fmt.Errorf("write workflow: %w", err)
	}
	began := time.Now()
	_, submitErr := run(ctx, workflow, s.CLI, "--kubeconfig="+s.Kubectl.Kubeconfig, "-n", namespace, "submit", "--wait", "-")
	took := since(began)
	out, err := s.Kubectl.Run(context.WithoutCancel(ctx), nil, "-n", namespace, "get", "workflows", "-o", "json", "--request-timeout=10s")
	if err != nil {
		return errors.Join(submitErr, fmt.Errorf("read workflow: %w", err))
	}
	if err := judge(out); err != nil {
		return errors.Join(submitErr, err)
	}
	if submitErr != nil {
		return fmt.Errorf("submit workflow: %w", submitErr)
	}
	s.Log("workflow with two containers and an exit handler succeeded in %s under Pod Security restricted", took)
	return nil
}

// workflowList is what judge reads of the workflows.
type workflowList struct {
	Items []struct {
		Status struct {
			Phase   string
			Message string
			Nodes   map[string]struct{ DisplayName, Phase, Message string }
		}
	}
}

// judge returns an error unless there is one workflow and all of it succeeded.
func judge(list []byte) error {
	var l workflowList
	if err := json.Unmarshal(list, &l); err != nil {
		return fmt.Errorf("parse workflow: %w", err)
	}
	if len(l.Items) != 1 {
		return fmt.Errorf("read workflow: found %d, expected one", len(l.Items))
	}
	status := l.Items[0].Status
	if status.Phase == "Succeeded" {
		return nil
	}
	err := fmt.Errorf("workflow is %q: %s", status.Phase, status.Message)
	for _, n := range status.Nodes {
		if n.Phase != "Succeeded" {
			err = errors.Join(err, fmt.Errorf("node %s is %s: %s", n.DisplayName, n.Phase, n.Message))
		}
	}
	return err
}

const serviceAccount = "workflow"

// namespace returns the namespace, and the service account with the one right
// that the executor needs on a stock installation.
func (s Smoke) namespace(name string) ([]byte, error) {
	meta := metav1.ObjectMeta{Name: serviceAccount, Namespace: name}
	objects := []any{
		corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				"pod-security.kubernetes.io/enforce": "restricted",
			}},
		},
		corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta},
		rbacv1.Role{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}, ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"argoproj.io"}, Resources: []string{"workflowtaskresults"}, Verbs: []string{"create", "patch"}}},
		},
		rbacv1.RoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}, ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: serviceAccount},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: serviceAccount, Namespace: name}},
		},
	}
	var out []byte
	for _, o := range objects {
		doc, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write namespace: %w", err)
		}
		out = append(append(out, "---\n"...), doc...)
	}
	return out, nil
}

// object is free-form YAML: Argo's Go types would bring all of Argo along.
type object = map[string]any

func (s Smoke) workflow() object {
	security := object{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
		"capabilities": object{"drop": []string{"ALL"}},
	}
	container := func(name string, more object) object {
		c := object{
			"name": name, "image": s.ExecutorImage, "imagePullPolicy": "IfNotPresent", "command": []string{"argoexec", "version"},
			"securityContext": security,
			"resources":       object{"requests": object{"cpu": "10m", "memory": "32Mi"}},
		}
		for k, v := range more {
			c[k] = v
		}
		return c
	}
	return object{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
		"metadata": object{"generateName": "smoke-"},
		"spec": object{
			"entrypoint": "main", "onExit": "exit", "serviceAccountName": serviceAccount,
			"activeDeadlineSeconds": int(s.Timeout.Seconds()),
			"securityContext": object{
				"runAsNonRoot": true, "runAsUser": 8737, "seccompProfile": object{"type": "RuntimeDefault"},
			},
			"templates": []object{
				{
					"name":    "main",
					"volumes": []object{{"name": "shared", "emptyDir": object{"medium": "Memory", "sizeLimit": "1Mi"}}},
					"containerSet": object{
						"volumeMounts": []object{{"name": "shared", "mountPath": "/shared"}},
						"containers":   []object{container("first", nil), container("second", object{"dependencies": []string{"first"}})},
					},
				},
				{"name": "exit", "container": container("main", nil)},
			},
		},
	}
}
