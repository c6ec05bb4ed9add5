package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/api"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/archive"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/gobuild"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/packages"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/render"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/sandbox"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/supervisor"
)

//go:embed addons/dns.yaml
var dnsManifest string

var dnsTemplate = template.Must(template.New("dns").Parse(dnsManifest))

// registry is the host part of the names of the cluster's own images. It is
// never asked: the images are imported.
const registry = "rollcall.internal"

const (
	importLimit  = 5 * time.Minute
	kubectlLimit = 60 * time.Second
)

// ErrNeedRoot is returned when a full cluster is asked for without rights.
var ErrNeedRoot = errors.New("a full cluster needs root (namespaces, mounts, control groups): use sudo, or --control-plane")

// prepareNode finds or makes what a node needs beside Kubernetes.
func (c *Cluster) prepareNode(ctx context.Context, source string, spec *state.Spec) error {
	if os.Geteuid() != 0 {
		return ErrNeedRoot
	}
	spec.ProxyMode = c.opts.ProxyMode
	var err error
	if spec.CgroupVersion = c.opts.CgroupVersion; spec.CgroupVersion == 0 {
		if spec.CgroupVersion, err = sandbox.CgroupVersion(); err != nil {
			return err
		}
	}
	if spec.Programs, err = packages.Find(ctx, c.opts.Log); err != nil {
		return err
	}
	spec.Images = map[string]string{}
	for _, t := range []gobuild.Target{pauseTarget(source), corednsTarget(source)} {
		program, _, err := c.builder().Build(ctx, t)
		if err != nil {
			return err
		}
		// The program's file name ends with the hash of its sources.
		hash := program[strings.LastIndexByte(program, '-')+1:]
		spec.Images[t.Name] = registry + "/" + t.Name + ":" + hash
		if err := c.archive(program, spec.Images[t.Name]); err != nil {
			return err
		}
	}
	return nil
}

// archivePath is where the archive of an image of the cluster's own is kept.
func (c *Cluster) archivePath(image string) string {
	base := strings.NewReplacer("/", "-", ":", "-").Replace(image)
	return filepath.Join(c.opts.CacheDir, "images", base+".tar")
}

func (c *Cluster) archive(program, image string) error {
	path := c.archivePath(image)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	c.pruneArchives(image)
	return archive.Write(path, image, program)
}

// pruneArchives removes older archives of an image that weren't made lately;
// one that is needed after all is made again in a second.
func (c *Cluster) pruneArchives(image string) {
	const keep = 14 * 24 * time.Hour
	name, _, _ := strings.Cut(image, ":")
	old, err := filepath.Glob(strings.TrimSuffix(c.archivePath(name+":x"), "x.tar") + "*.tar")
	if err != nil {
		return // the cache is only larger
	}
	for _, path := range old {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > keep {
			_ = os.Remove(path)
		}
	}
}

// awaitNode waits until the node takes pods.
func (c *Cluster) awaitNode(ctx context.Context, spec state.Spec) error {
	client, err := api.New(c.dir.PKI(), spec.Port)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := api.WaitFor(ctx, "the node", nodeLimit, client.Condition(nodePath(spec), "Ready")); err != nil {
		return err
	}
	c.opts.Log("node ready after %.1f s more", time.Since(began).Seconds())
	return nil
}

const dnsDeployment = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"

// importOwn imports the cluster's own images that it doesn't have yet.
func (c *Cluster) importOwn(ctx context.Context, spec state.Spec) error {
	present, err := c.images(ctx, spec)
	if err != nil {
		return err
	}
	for _, image := range spec.Images {
		if !present[image] {
			if err := c.importArchive(ctx, spec, c.archivePath(image)); err != nil {
				return err
			}
		}
	}
	return nil
}

// applyAddons applies CoreDNS and the StorageClass.
func (c *Cluster) applyAddons(ctx context.Context, spec state.Spec) error {
	var manifest bytes.Buffer
	values := map[string]string{"Image": spec.Images["coredns"], "IP": render.DNSIP, "Domain": render.Domain}
	if err := dnsTemplate.Execute(&manifest, values); err != nil {
		return fmt.Errorf("render manifests: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, addonLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.dir.Bin(), "kubectl"), "--kubeconfig", c.dir.Kubeconfig(),
		"apply", "--server-side", "--force-conflicts", "--field-manager=cluster", "--request-timeout="+kubectlLimit.String(), "-f", "-")
	cmd.Stdin = &manifest
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply manifests: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// awaitAddons waits until names are resolved.
func (c *Cluster) awaitAddons(ctx context.Context, spec state.Spec) error {
	client, err := api.New(c.dir.PKI(), spec.Port)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := api.WaitFor(ctx, "CoreDNS", addonLimit, client.Condition(dnsDeployment, "Available")); err != nil {
		return err
	}
	c.opts.Log("DNS ready after %.1f s more", time.Since(began).Seconds())
	return nil
}

// ctr returns the command of containerd's client for the cluster's containerd.
// The socket is reached through the sandbox's file system.
func (c *Cluster) ctr(ctx context.Context, spec state.Spec, args ...string) (*exec.Cmd, error) {
	run, err := c.dir.Run()
	if err != nil {
		return nil, err
	}
	socket := fmt.Sprintf("/proc/%d/root%s", run.Init.PID, render.ContainerdSocket)
	return exec.CommandContext(ctx, spec.Programs["ctr"], append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...), nil
}

// images lists the names of the images in the cluster.
func (c *Cluster) images(ctx context.Context, spec state.Spec) (map[string]bool, error) {
	present := map[string]bool{}
	err := api.WaitFor(ctx, "containerd", nodeLimit, func(ctx context.Context) error {
		cmd, err := c.ctr(ctx, spec, "images", "ls", "-q")
		if err != nil {
			return err
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("list images: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
		}
		for _, n := range strings.Fields(string(out)) {
			present[n] = true
		}
		return nil
	})
	return present, err
}

func (c *Cluster) importArchive(ctx context.Context, spec state.Spec, path string) error {
	ctx, cancel := context.WithTimeout(ctx, importLimit)
	defer cancel()
	cmd, err := c.ctr(ctx, spec, "images", "import", path)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import %s: %w: %s", path, err, bytes.TrimSpace(out))
	}
	return nil
}

// errNoNode is returned for what only a full cluster can do.
var errNoNode = errors.New("this is a control plane: it has no node")

// Load imports image archives (docker or OCI format), replacing images of the
// same names.
func (c *Cluster) Load(ctx context.Context, archives []string) error {
	spec, _, err := c.running()
	if err != nil {
		return err
	}
	if spec.Mode != state.Full {
		return fmt.Errorf("load images: %w", errNoNode)
	}
	for _, a := range archives {
		began := time.Now()
		if _, err := os.Stat(a); err != nil {
			return fmt.Errorf("load image: %w", err)
		}
		if err := c.importArchive(ctx, spec, a); err != nil {
			return err
		}
		c.opts.Log("loaded %s in %.1f s", a, time.Since(began).Seconds())
	}
	return nil
}

// Exec returns a command that runs in the cluster's namespaces, with
// KUBECONFIG set. There, /run, /tmp, /var/lib and /var/log are the cluster's
// own.
func (c *Cluster) Exec(ctx context.Context, args []string) (*exec.Cmd, error) {
	spec, run, err := c.running()
	if err != nil {
		return nil, err
	}
	if spec.Mode != state.Full {
		return nil, fmt.Errorf("run command: %w", errNoNode)
	}
	cmd := exec.CommandContext(ctx, spec.Programs["nsenter"], append([]string{
		"--target", fmt.Sprint(run.Init.PID), "--mount", "--net", "--pid", "--uts", "--",
	}, args...)...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+render.InnerKubeconfig(c.dir),
		"CONTAINERD_ADDRESS="+render.ContainerdSocket, "CONTAINERD_NAMESPACE=k8s.io",
		"PATH="+c.dir.Bin()+":"+os.Getenv("PATH"))
	return cmd, nil
}

// Reach lets the cluster's pods connect to a port of the machine's 127.0.0.1,
// at the same port of the node's address, until the cluster goes down. The
// address is returned. It is how pods of one cluster reach the API server of
// another.
func (c *Cluster) Reach(ctx context.Context, port int) (string, error) {
	spec, _, err := c.running()
	if err != nil {
		return "", err
	}
	if spec.Mode != state.Full {
		return "", fmt.Errorf("reach port %d: %w", port, errNoNode)
	}
	if err := supervisor.NewClient(c.dir.ControlSocket()).Order(ctx, reachOrder, strconv.Itoa(port)); err != nil {
		return "", fmt.Errorf("reach port %d: %w", port, err)
	}
	return net.JoinHostPort(render.NodeIP, strconv.Itoa(port)), nil
}
