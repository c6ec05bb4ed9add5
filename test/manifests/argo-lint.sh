#!/usr/bin/env bash
# Lints what Argo will run, without a cluster: the base's templates together with
# the files that submit them, and every overlay. ARGO names the command; without
# it, the one on the PATH or the testbed's is taken.
set -euo pipefail
cd "$(dirname "$0")/../.."

argo=${ARGO:-$(command -v argo || true)}
if [ -z "$argo" ]; then
	mkdir -p bin
	CGO_ENABLED=0 go -C test/argo build -trimpath -buildvcs=false -o "$PWD/bin/argo-testbed" ./cmd/argo-testbed
	bin/argo-testbed build >/dev/null
	argo=$(bin/argo-testbed paths argo)
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

kubectl kustomize manifests/base >"$tmp/base.yaml"
"$argo" lint --offline --strict --no-color "$tmp/base.yaml" workflows/*.yaml
for dir in manifests/overlays/*/; do
	name=$(basename "$dir")
	kubectl kustomize "$dir" >"$tmp/$name.yaml"
	"$argo" lint --offline --strict --no-color "$tmp/$name.yaml"
done
