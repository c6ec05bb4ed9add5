package render

import (
	"fmt"
	"path/filepath"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/pki"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

// Names of certificates.
const (
	adminCert       = "admin"
	apiServerCert   = "apiserver"
	kubeletCert     = "kubelet"
	kubeletServing  = "kubelet-serving"
	apiToKubelet    = "apiserver-kubelet-client"
	frontProxyCert  = "front-proxy-client"
	kubeProxyCert   = "kube-proxy"
	schedulerCert   = "kube-scheduler"
	controllersCert = "kube-controller-manager"
)

// Certificates that a cluster of the mode needs.
func Certificates(s state.Spec) []pki.Cert {
	certs := []pki.Cert{
		{Name: adminCert, User: "admin", Groups: []string{"system:masters"}},
		{
			Name: apiServerCert, User: "kube-apiserver",
			DNS: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + Domain, "localhost", s.Name},
			IPs: []string{"127.0.0.1", ServiceIP, NodeIP},
		},
		{Name: frontProxyCert, User: "front-proxy-client"},
	}
	if s.Mode == state.ControlPlane {
		return certs
	}
	node := "system:node:" + s.Name
	return append(certs,
		pki.Cert{Name: kubeletCert, User: node, Groups: []string{"system:nodes"}},
		pki.Cert{Name: kubeletServing, User: node, Groups: []string{"system:nodes"}, DNS: []string{s.Name}, IPs: []string{NodeIP, "127.0.0.1"}},
		pki.Cert{Name: apiToKubelet, User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
		pki.Cert{Name: kubeProxyCert, User: "system:kube-proxy"},
		pki.Cert{Name: schedulerCert, User: "system:kube-scheduler"},
		pki.Cert{Name: controllersCert, User: "system:kube-controller-manager"},
	)
}

// Common are the files that both modes need, but for the kubeconfig, which
// needs the certificates to exist.
func Common(d state.Dir) (Files, error) {
	audit, err := AuditPolicy()
	if err != nil {
		return nil, err
	}
	admission, err := AdmissionConfig()
	if err != nil {
		return nil, err
	}
	return Files{
		auditPolicyFile(d): audit,
		admissionFile(d):   admission,
	}, nil
}

func auditPolicyFile(d state.Dir) string { return filepath.Join(d.Config(), "audit-policy.yaml") }
func admissionFile(d state.Dir) string   { return filepath.Join(d.Config(), "admission.yaml") }

func crt(d state.Dir, name string) string { return filepath.Join(d.PKI(), name+".crt") }
func key(d state.Dir, name string) string { return filepath.Join(d.PKI(), name+".key") }

// apiServerFlags are those that both modes share.
func apiServerFlags(d state.Dir) []string {
	return []string{
		"--tls-cert-file=" + crt(d, apiServerCert),
		"--tls-private-key-file=" + key(d, apiServerCert),
		"--client-ca-file=" + crt(d, pki.CA),
		"--service-account-issuer=https://kubernetes.default.svc." + Domain,
		"--service-account-key-file=" + filepath.Join(d.PKI(), pki.ServiceAccount+".pub"),
		"--service-account-signing-key-file=" + key(d, pki.ServiceAccount),
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--requestheader-client-ca-file=" + crt(d, pki.CA),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + crt(d, frontProxyCert),
		"--proxy-client-key-file=" + key(d, frontProxyCert),
		"--audit-policy-file=" + auditPolicyFile(d),
		"--audit-log-path=" + d.AuditLog(),
		// One file: whoever counts requests must not lose any to a rotation.
		"--audit-log-maxsize=4096",
		"--admission-control-config-file=" + admissionFile(d),
		"--profiling=false",
	}
}

// controllerManagerFlags are those that both modes share. The controllers run
// as the administrator: with credentials per controller the default service
// account of a new cluster takes five seconds more.
func controllerManagerFlags(d state.Dir) []string {
	return []string{
		"--service-account-private-key-file=" + key(d, pki.ServiceAccount),
		"--root-ca-file=" + crt(d, pki.CA),
		"--cluster-signing-cert-file=" + crt(d, pki.CA),
		"--cluster-signing-key-file=" + key(d, pki.CA),
		"--use-service-account-credentials=false",
		"--leader-elect=false",
		"--profiling=false",
	}
}

// ControlPlaneArgs is the command of a control plane in one process, without
// the program's path.
func ControlPlaneArgs(d state.Dir, s state.Spec) []string {
	args := []string{"controlplane", "--data-dir=" + d.Data("etcd")}
	add := func(component string, flags ...string) {
		for _, f := range flags {
			args = append(args, "--"+component+"="+f)
		}
	}
	add("apiserver", apiServerFlags(d)...)
	add("apiserver",
		fmt.Sprintf("--secure-port=%d", s.Port),
		"--bind-address=127.0.0.1",
		// The supervisor holds the port too (bound, not listening), so that
		// nobody else gets it while the server restarts.
		"--permit-port-sharing=true",
		// An address must be advertised and can't be a loopback one; nobody
		// will ever use it (TEST-NET-1, RFC 5737).
		"--advertise-address=192.0.2.1",
		"--endpoint-reconciler-type=none",
		"--authorization-mode=RBAC",
	)
	add("controller-manager", controllerManagerFlags(d)...)
	add("controller-manager", "--kubeconfig="+d.Kubeconfig(), "--secure-port=0")
	add("scheduler", "--kubeconfig="+d.Kubeconfig(), "--secure-port=0", "--leader-elect=false", "--profiling=false")
	return args
}
