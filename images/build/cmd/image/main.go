// Command image builds container images without a container engine; see package
// build for what it guarantees.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/images/build"
)

func main() {
	root := &cobra.Command{Use: "image", Short: "Make container images without a container engine", SilenceUsage: true}
	root.AddCommand(buildCommand(os.Stdout))
	if err := root.Execute(); err != nil {
		os.Exit(1)
	}
}

// request is the command line before it is turned into a build.Spec.
type request struct {
	output, oci, root, tag, arch, user string
	files, links, dirs, env, labels    []string
	entrypoint, cmd                    []string
}

func buildCommand(out io.Writer) *cobra.Command {
	var r request
	c := &cobra.Command{
		Use:   "build --tag NAME:TAG --output FILE --entrypoint PROGRAM --file SOURCE:TARGET [flags]",
		Short: "Build one image from scratch; prints its digest and compressed size",
		Example: "  image build --tag rollcall:dev --output rollcall.tar --entrypoint /usr/bin/rollcall \\\n" +
			"    --file out/rollcall:/usr/bin/rollcall --link /usr/bin/stake=rollcall --dir /tmp:1777",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return r.run(out) },
	}
	f := c.Flags()
	f.StringVar(&r.output, "output", "", "docker-archive to write, for \"ctr images import\" or \"docker load\"")
	f.StringVar(&r.oci, "oci", "", "OCI image layout to write as well: a folder, or a file ending in .tar")
	f.StringVar(&r.root, "rootfs", "", "folder to write the image's file system into, e.g. within a Dockerfile")
	f.StringVar(&r.tag, "tag", "", "name and tag of the image")
	f.StringVar(&r.arch, "arch", runtime.GOARCH, "processor architecture of the programs, as Go names it")
	f.StringVar(&r.user, "user", fmt.Sprintf("%d:%d", build.NonRootUser, build.NonRootUser), "numeric UID:GID that containers run as")
	f.StringArrayVar(&r.entrypoint, "entrypoint", nil, "program that containers start; again for each fixed argument")
	f.StringArrayVar(&r.cmd, "cmd", nil, "default argument; may be repeated")
	f.StringArrayVar(&r.files, "file", nil, "SOURCE:TARGET, a file to copy in; may be repeated")
	f.StringArrayVar(&r.links, "link", nil, "PATH=TARGET, a symbolic link to a file of the image; may be repeated")
	f.StringArrayVar(&r.dirs, "dir", nil, "PATH[:MODE], a directory; may be repeated")
	f.StringArrayVar(&r.env, "env", nil, "NAME=value; may be repeated")
	f.StringArrayVar(&r.labels, "label", nil, "KEY=value; may be repeated; org.opencontainers.image.title and .version default to the tag's parts")
	for _, required := range []string{"tag", "entrypoint"} {
		cobra.CheckErr(c.MarkFlagRequired(required))
	}
	c.MarkFlagsOneRequired("output", "oci", "rootfs")
	return c
}

func (r request) run(out io.Writer) error {
	spec, err := r.spec()
	if err != nil {
		return err
	}
	if r.root != "" {
		if err := build.WriteRoot(r.root, spec); err != nil {
			return err
		}
		if r.output == "" && r.oci == "" {
			return nil
		}
	}
	img, err := build.Image(spec)
	if err != nil {
		return err
	}
	if r.output != "" {
		if err := build.WriteArchive(r.output, r.tag, img); err != nil {
			return err
		}
	}
	if r.oci != "" {
		if err := build.WriteOCI(r.oci, r.tag, img); err != nil {
			return err
		}
	}
	sum, err := build.Summarize(img)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "image=%s\ndigest=%s\ncompressed_bytes=%d\n", r.tag, sum.Digest, sum.CompressedBytes)
	return err
}

func (r request) spec() (build.Spec, error) {
	s := build.Spec{Architecture: r.arch, User: r.user, Entrypoint: r.entrypoint, Cmd: r.cmd, Env: r.env}
	var err error
	if s.Labels, err = withDefaultLabels(r.tag, r.labels); err != nil {
		return s, err
	}
	if s.Files, err = parseAll(r.files, build.ParseFile); err != nil {
		return s, err
	}
	if s.Links, err = parseAll(r.links, build.ParseLink); err != nil {
		return s, err
	}
	s.Dirs, err = parseAll(r.dirs, build.ParseDir)
	return s, err
}

func parseAll[T any](in []string, parse func(string) (T, error)) ([]T, error) {
	out := make([]T, 0, len(in))
	for _, s := range in {
		v, err := parse(s)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// withDefaultLabels reads labels and adds the two that the tag already tells.
func withDefaultLabels(tag string, labels []string) (map[string]string, error) {
	ref, err := name.NewTag(tag)
	if err != nil {
		return nil, fmt.Errorf("parse tag: %w", err)
	}
	repo := ref.RepositoryStr()
	out := map[string]string{
		"org.opencontainers.image.title":   repo[strings.LastIndex(repo, "/")+1:],
		"org.opencontainers.image.version": ref.TagStr(),
	}
	for _, l := range labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("parse label %q: want KEY=value", l)
		}
		out[k] = v // the last one wins, so that a script's labels can be overridden
	}
	return out, nil
}
