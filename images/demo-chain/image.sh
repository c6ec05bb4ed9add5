#!/bin/sh
# image.sh BINARY [flags of "image build"]
#
# The one recipe of the demo chain's image, used by the Dockerfile and by builds
# without a container engine alike: from scratch, with just the static program.
set -eu
binary=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")" && pwd)
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
go -C "$here/../build" build -trimpath -buildvcs=false -o "$tool/image" ./cmd/image
# The last value of a label wins, so that callers can override these.
"$tool/image" build \
	--entrypoint /usr/bin/demo-chain \
	--user 65532:65532 \
	--env PATH=/usr/bin \
	--file "$binary:/usr/bin/demo-chain" \
	--label org.opencontainers.image.description="A small proof-of-stake chain for demonstrations and tests" \
	"$@"
