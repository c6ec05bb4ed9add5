package render

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"text/template"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/pki"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

// Paths inside a full cluster's mount namespace. They are the usual ones, and
// short: state folders may be deep, Unix sockets' paths may not.
const (
	KubeletRoot      = "/var/lib/kubelet"
	ContainerdRoot   = "/var/lib/containerd"
	containerdState  = "/run/containerd"
	ContainerdSocket = "/run/containerd/containerd.sock"
	PodLogs          = "/var/log/pods"
	// HostpathVolumes is where the controller manager's hostpath provisioner
	// puts volumes; it can't be set.
	HostpathVolumes = "/tmp/hostpath_pv"
	volumePlugins   = "/var/lib/kubelet/volume-plugins"
)

//go:embed files/containerd.toml.tmpl
var files embed.FS

var containerdTemplate = template.Must(template.ParseFS(files, "files/*.tmpl"))

// CgroupRoot is the control group that holds a full cluster's pods, below the
// root of each hierarchy. The state folder is in it because two clusters of
// one name may have different ones.
func CgroupRoot(d state.Dir, s state.Spec) string {
	return "rollcall-" + s.Name + "-" + shortHash(string(d))
}

func kubeconfigOf(d state.Dir, user string) string {
	return filepath.Join(d.Config(), user+".kubeconfig")
}

// InnerKubeconfig is the administrator's, for use inside the cluster's
// namespaces.
func InnerKubeconfig(d state.Dir) string { return kubeconfigOf(d, adminCert) }

// Node adds a full cluster's configuration to the files. The certificates must
// exist.
func Node(d state.Dir, s state.Spec, f Files) error {
	server := fmt.Sprintf("https://127.0.0.1:%d", InnerPort)
	for _, user := range []string{adminCert, kubeletCert, kubeProxyCert, schedulerCert, controllersCert} {
		raw, err := Kubeconfig(s.Name, server, d.PKI(), user)
		if err != nil {
			return err
		}
		f[kubeconfigOf(d, user)] = raw
	}
	for path, make := range map[string]func(state.Dir, state.Spec) ([]byte, error){
		containerdConfig(d): containerdTOML,
		cniConfig(d):        cniJSON,
		kubeletConfig(d):    kubeletYAML,
		kubeProxyConfig(d):  kubeProxyYAML,
	} {
		raw, err := make(d, s)
		if err != nil {
			return err
		}
		f[path] = raw
	}
	// No resolver: the cluster has no way out.
	f[podResolvConf(d)] = []byte("# names outside of the cluster don't resolve\n")
	return nil
}

func containerdConfig(d state.Dir) string { return filepath.Join(d.Config(), "containerd.toml") }
func cniConfig(d state.Dir) string        { return filepath.Join(d.Config(), "cni", "10-pods.conflist") }
func kubeletConfig(d state.Dir) string    { return filepath.Join(d.Config(), "kubelet.yaml") }
func kubeProxyConfig(d state.Dir) string  { return filepath.Join(d.Config(), "kube-proxy.yaml") }
func podResolvConf(d state.Dir) string    { return filepath.Join(d.Config(), "resolv.conf") }

func containerdTOML(d state.Dir, s state.Spec) ([]byte, error) {
	var b bytes.Buffer
	err := containerdTemplate.ExecuteTemplate(&b, "containerd.toml.tmpl", map[string]string{
		"Root":       ContainerdRoot,
		"State":      containerdState,
		"Socket":     ContainerdSocket,
		"PauseImage": s.Images["pause"],
		"CNIBin":     s.Programs["cni"],
		"CNIConf":    filepath.Dir(cniConfig(d)),
		"Runc":       s.Programs["runc"],
	})
	if err != nil {
		return nil, fmt.Errorf("render containerd's configuration: %w", err)
	}
	return b.Bytes(), nil
}

// cniJSON connects each pod by a point-to-point link: all traffic between pods
// is routed, so Services work whether or not the kernel filters bridged
// packets.
func cniJSON(state.Dir, state.Spec) ([]byte, error) {
	raw, err := json.MarshalIndent(object{
		"cniVersion": "0.4.0",
		"name":       "pods",
		"plugins": []object{
			{"type": "ptp", "ipam": object{
				"type": "host-local",
				// In memory: pods don't outlive a restart of the cluster.
				"dataDir": "/run/cni-ipam",
				"ranges":  [][]object{{{"subnet": NodePodCIDR}}},
				"routes":  []object{{"dst": "0.0.0.0/0"}},
			}},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render network configuration: %w", err)
	}
	return raw, nil
}

func kubeletYAML(d state.Dir, s state.Spec) ([]byte, error) {
	return marshal(object{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"failCgroupV1":             false,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + CgroupRoot(d, s),
		"containerRuntimeEndpoint": "unix://" + ContainerdSocket,
		"podLogsDir":               PodLogs,
		"volumePluginDir":          volumePlugins,
		"clusterDNS":               []string{DNSIP},
		"clusterDomain":            Domain,
		"resolvConf":               podResolvConf(d),
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": crt(d, pki.CA)},
		},
		"authorization":     object{"mode": "Webhook"},
		"tlsCertFile":       crt(d, kubeletServing),
		"tlsPrivateKeyFile": key(d, kubeletServing),
		// A full disk is the machine's trouble, not a reason to evict.
		"evictionHard": object{
			"memory.available": "100Mi",
			"nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		// Images come from archives; a collected one couldn't be pulled again.
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"enforceNodeAllocatable":      []string{},
		"nodeStatusUpdateFrequency":   "5s",
		"syncFrequency":               "10s",
		"maxPods":                     110,
		"serializeImagePulls":         false,
		"failSwapOn":                  false,
	})
}

func kubeProxyYAML(d state.Dir, s state.Spec) ([]byte, error) {
	sync := object{"syncPeriod": "10s", "minSyncPeriod": "0.1s"}
	return marshal(object{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             s.ProxyMode,
		"clientConnection": object{"kubeconfig": kubeconfigOf(d, kubeProxyCert)},
		"clusterCIDR":      PodCIDR,
		"hostnameOverride": s.Name,
		// 0 leaves a value as it is: the machine's limit is read-only in a
		// network namespace.
		"conntrack": object{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
		"nftables":  sync,
		"iptables":  sync,
	})
}

// Command is a component's command line; Args[0] is the component's name.
type Command struct {
	Name string
	Path string
	Args []string
}

// NodeCommands are the components of a full cluster in the order of their
// start.
func NodeCommands(d state.Dir, s state.Spec) []Command {
	kube := func(name string, args ...string) Command {
		return Command{Name: name, Path: s.Kube, Args: append([]string{name}, args...)}
	}
	as := func(user string) []string {
		f := kubeconfigOf(d, user)
		return []string{"--kubeconfig=" + f, "--authentication-kubeconfig=" + f, "--authorization-kubeconfig=" + f}
	}
	const etcd, etcdPeer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return []Command{
		{Name: "containerd", Path: s.Programs["containerd"], Args: []string{"containerd", "--config", containerdConfig(d)}},
		kube("etcd",
			"--data-dir="+d.Data("etcd"), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
			"--listen-peer-urls="+etcdPeer, "--initial-advertise-peer-urls="+etcdPeer,
			"--initial-cluster=default="+etcdPeer),
		kube("kube-apiserver", append(apiServerFlags(d),
			"--etcd-servers="+etcd,
			fmt.Sprintf("--secure-port=%d", InnerPort),
			"--advertise-address="+NodeIP,
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--kubelet-client-certificate="+crt(d, apiToKubelet),
			"--kubelet-client-key="+key(d, apiToKubelet),
			"--kubelet-certificate-authority="+crt(d, pki.CA),
			"--kubelet-preferred-address-types=InternalIP",
		)...),
		kube("kubelet",
			"--config="+kubeletConfig(d), "--kubeconfig="+kubeconfigOf(d, kubeletCert),
			"--root-dir="+KubeletRoot, "--cert-dir="+filepath.Join(KubeletRoot, "pki"),
			"--node-ip="+NodeIP, "--hostname-override="+s.Name),
		kube("kube-controller-manager", append(append(controllerManagerFlags(d), as(adminCert)...),
			"--enable-hostpath-provisioner=true",
			"--flex-volume-plugin-dir="+volumePlugins,
			"--allocate-node-cidrs=true",
			"--cluster-cidr="+PodCIDR,
			"--service-cluster-ip-range="+ServiceCIDR,
		)...),
		kube("kube-scheduler", append(as(schedulerCert), "--leader-elect=false", "--profiling=false")...),
		kube("kube-proxy", "--config="+kubeProxyConfig(d)),
	}
}
