// Package build makes container images from scratch, without a container
// engine: one file-system layer, a configuration and a manifest.
//
// It guarantees that the same [Spec] over the same file contents gives the same
// image digest, on any machine and at any time: entries are sorted by path,
// belong to root, carry the time in Spec.Created and one of two permission sets,
// and nothing is read from the host but the listed files. A digest therefore
// names what is in the image.
//
// It does not guarantee equal digests across Go releases, whose gzip encoder may
// compress the same bytes differently; the layer's uncompressed digest (diff ID)
// stays the same. It does not resolve a file's dynamic libraries: give it
// statically linked programs. It does not talk to registries and does not sign.
package build
