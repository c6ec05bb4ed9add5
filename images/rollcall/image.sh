#!/bin/sh
# image.sh BIN_DIR [flags of "image build"]
#
# The one recipe of the rollcall image, used by the Dockerfile and by builds
# without a container engine alike. BIN_DIR holds the static program rollcall, which
# itself tells which links there are: one for each step.
set -eu
bin=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
steps=$("$bin/rollcall" --list-steps)
[ -n "$steps" ] || { echo "image.sh: $bin/rollcall --list-steps printed no steps" >&2; exit 1; }
for step in $steps; do
	set -- "$@" --link "/usr/bin/$step=rollcall"
done
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
go -C "$here/../build" build -trimpath -buildvcs=false -o "$tool/image" ./cmd/image
# The last value of a label wins, so that callers can override these.
"$tool/image" build \
	--entrypoint /usr/bin/rollcall \
	--user 65532:65532 \
	--env PATH=/usr/bin \
	--file "$bin/rollcall:/usr/bin/rollcall" \
	--label org.opencontainers.image.description="Scales a validator set on Kubernetes, one step at a time" \
	"$@"
