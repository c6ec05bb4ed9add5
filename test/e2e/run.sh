#!/usr/bin/env bash
# run.sh [go test flags]: brings the demo up on a cluster of its own, runs the
# end-to-end suite on it, takes it down, and checks that nothing is left.
set -euo pipefail
cd "$(dirname "$0")/../.."
export ROLLCALL_CLUSTER=${ROLLCALL_CLUSTER:-rollcall-e2e}

up=0
down() {
	code=$?
	trap - EXIT
	[ "$up" = 0 ] || test/demo/demo.sh down || code=1
	exit "$code"
}
trap down EXIT
trap 'exit 130' INT TERM

up=1
test/demo/demo.sh demo
eval "$(test/demo/demo.sh env)"
CGO_ENABLED=0 go test -tags e2e -count=1 -timeout 45m -v "$@" ./test/e2e
test/demo/demo.sh down
up=0
echo "==> what a cluster leaves behind: nothing"
CGO_ENABLED=0 go -C test/cluster test -tags e2e -count=1 -timeout 15m -run 'TestUpDownLeavesNothing' ./e2e
