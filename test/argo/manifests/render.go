package manifests

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"
)

//go:embed base fast
var overlay embed.FS

// CRDs selects the form of the custom resource definitions.
type CRDs string

// The two forms that the release ships.
const (
	// Minimal definitions accept any spec, as the release's install files do.
	Minimal CRDs = "minimal"
	// Full definitions let the API server check each field. They are 7 MB, and
	// applying them takes the API server seconds.
	Full CRDs = "full"
)

// Timing selects the controller's pace.
type Timing string

// The paces.
const (
	// Fast looks at a changed workflow within 200 ms.
	Fast Timing = "fast"
	// Stock leaves the release's defaults, to see what users see.
	Stock Timing = "stock"
)

// Options say what to render.
type Options struct {
	// Module is the folder of the Argo Workflows module.
	Module string
	// Namespace of the controller.
	Namespace string
	// ControllerImage and ExecutorImage are references with a tag. They must be
	// on the node already: they are not pulled.
	ControllerImage, ExecutorImage string
	CRDs                           CRDs
	Timing                         Timing
}

// where things lie in the in-memory file system that kustomize reads
const (
	root     = "/install"
	upstream = root + "/upstream"
)

// upstreamController is the image name in the release's Deployment.
const upstreamController = "quay.io/argoproj/workflow-controller"

// Render returns the manifests as a YAML stream in the order of application:
// the definitions and the namespace first.
func Render(o Options) ([]byte, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	definitions, err := o.definitions()
	if err != nil {
		return nil, err
	}
	disk := filesys.MakeFsInMemory()
	for _, base := range []string{"manifests/base/workflow-controller", "manifests/cluster-install-no-crds/workflow-controller-rbac"} {
		if err := copyTree(disk, os.DirFS(o.Module), base, upstream); err != nil {
			return nil, fmt.Errorf("read the release's manifests: %w", err)
		}
	}
	if err := copyTree(disk, overlay, ".", root); err != nil {
		return nil, fmt.Errorf("read overlay: %w", err)
	}
	top, err := o.kustomization()
	if err != nil {
		return nil, err
	}
	if err := disk.WriteFile(path.Join(root, "top", "kustomization.yaml"), top); err != nil {
		return nil, fmt.Errorf("write kustomization: %w", err)
	}
	opts := krusty.MakeDefaultOptions()
	opts.Reorder = krusty.ReorderOptionLegacy // the namespace comes first
	resources, err := krusty.MakeKustomizer(opts).Run(disk, path.Join(root, "top"))
	if err != nil {
		return nil, fmt.Errorf("run kustomize: %w", err)
	}
	out, err := resources.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("write manifests: %w", err)
	}
	return append(definitions, out...), nil
}

// definitions joins the release's custom resource definitions as they are.
// Kustomize would take seconds over the full ones and has nothing to change.
func (o Options) definitions() ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(o.Module, "manifests/base/crds", string(o.CRDs), "argoproj.io_*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list custom resource definitions: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("list custom resource definitions: none in %s", o.Module)
	}
	var out []byte
	for _, f := range files { // sorted by Glob
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read custom resource definition: %w", err)
		}
		out = append(append(out, data...), "\n---\n"...)
	}
	return out, nil
}

func (o Options) validate() error {
	var errs []error
	for what, v := range map[string]string{"module folder": o.Module, "namespace": o.Namespace, "controller image": o.ControllerImage, "executor image": o.ExecutorImage} {
		if v == "" {
			errs = append(errs, fmt.Errorf("%s: missing", what))
		}
	}
	if o.CRDs != Minimal && o.CRDs != Full {
		errs = append(errs, fmt.Errorf("definitions %q: want %s or %s", o.CRDs, Minimal, Full))
	}
	if o.Timing != Fast && o.Timing != Stock {
		errs = append(errs, fmt.Errorf("timing %q: want %s or %s", o.Timing, Fast, Stock))
	}
	return errors.Join(errs...)
}

// patchOp is one operation of a JSON patch (RFC 6902).
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// kustomization is the top level: what differs from one installation to the next.
func (o Options) kustomization() ([]byte, error) {
	name, tag, ok := cutTag(o.ControllerImage)
	if !ok {
		return nil, fmt.Errorf("controller image %q: want NAME:TAG", o.ControllerImage)
	}
	patch, err := json.Marshal([]patchOp{
		{Op: "replace", Path: "/spec/template/spec/containers/0/args", Value: []string{"--executor-image", o.ExecutorImage}},
		{Op: "add", Path: "/spec/template/spec/containers/0/imagePullPolicy", Value: "IfNotPresent"},
	})
	if err != nil {
		return nil, fmt.Errorf("write patch: %w", err)
	}
	k := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Namespace: o.Namespace,
		Resources: []string{"../base"},
		Images:    []types.Image{{Name: upstreamController, NewName: name, NewTag: tag}},
		Patches: []types.Patch{{
			Target: &types.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: "Deployment"}, Name: "workflow-controller"}},
			Patch:  string(patch),
		}},
	}
	if o.Timing == Fast {
		k.Components = []string{"../fast"}
	}
	out, err := yaml.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("write kustomization: %w", err)
	}
	return out, nil
}

// cutTag splits an image reference at its tag, not at a registry's port.
func cutTag(ref string) (name, tag string, ok bool) {
	i := strings.LastIndexByte(ref, ':')
	if i <= 0 || strings.Contains(ref[i:], "/") || i == len(ref)-1 {
		return "", "", false
	}
	return ref[:i], ref[i+1:], true
}

func copyTree(to filesys.FileSystem, from fs.FS, dir, target string) error {
	return fs.WalkDir(from, dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) != ".yaml" {
			return err
		}
		data, err := fs.ReadFile(from, p)
		if err != nil {
			return err
		}
		return to.WriteFile(path.Join(target, p), data)
	})
}
