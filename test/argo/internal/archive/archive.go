// Package archive packs the Argo Workflows programs into container images.
//
// It guarantees images that run as Argo's own non-root user, hold one static
// program each, and carry a tag that changes when the programs do, so that a
// cluster never keeps running an older build under the same name. It does not
// guarantee certificates of public authorities or time zones: the images talk to
// the cluster they run in.
package archive

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rollcall-dev/rollcall/images/build"
	"github.com/rollcall-dev/rollcall/test/argo/internal/release"
)

// user is the non-root user of Argo's published images.
const user = "8737:8737"

// repository prefixes the images' names. They are not Argo's published images
// and must not pass for them; .test never resolves (RFC 6761), so that a missing
// image is not looked up on the Internet.
const repository = "rollcall.test/argo/"

// Image is one image archive in the cache.
type Image struct {
	// Ref is the image's name and tag, as pods refer to it.
	Ref string
	// File is the docker-archive.
	File string

	program string
}

// Set is the two images that an installation needs.
type Set struct {
	Controller, Executor Image
}

// Locate tells the images' names and where their archives are or will be.
func Locate(cache string, bins release.Binaries) Set {
	// The tag covers the programs and the recipe below.
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %+v", bins.Key, spec(release.Binaries{}, release.Controller))
	key := hex.EncodeToString(h.Sum(nil))[:8]
	image := func(program string) Image {
		return Image{
			Ref:     repository + program + ":" + release.Version + "-" + key,
			File:    filepath.Join(cache, "images", "argo-"+release.Version+"-"+key, program+".tar"),
			program: program,
		}
	}
	return Set{Controller: image(release.Controller), Executor: image(release.Executor)}
}

// Make writes the archives that are not in the cache yet.
func Make(cache string, bins release.Binaries) (Set, error) {
	set := Locate(cache, bins)
	for _, img := range []Image{set.Controller, set.Executor} {
		if err := img.make(bins); err != nil {
			return Set{}, fmt.Errorf("make image %s: %w", img.Ref, err)
		}
	}
	return set, nil
}

func (i Image) make(bins release.Binaries) error {
	if info, err := os.Stat(i.File); err == nil && info.Mode().IsRegular() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(i.File), 0o755); err != nil {
		return fmt.Errorf("make image cache: %w", err)
	}
	img, err := build.Image(spec(bins, i.program))
	if err != nil {
		return err
	}
	return build.WriteArchive(i.File, i.Ref, img)
}

// spec is the recipe; the paths are those of Argo's published images, because
// the executor finds itself through PATH when it copies itself into the pod.
func spec(bins release.Binaries, program string) build.Spec {
	return build.Spec{
		Architecture: runtime.GOARCH,
		User:         user,
		Files: []build.File{
			{Source: bins.Path(program), Target: "/bin/" + program, Executable: true},
		},
		Entrypoint: []string{program},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    program,
			"org.opencontainers.image.version":  release.Version,
			"org.opencontainers.image.source":   "https://github.com/argoproj/argo-workflows",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
}
