#!/usr/bin/env bash
# run.sh [go test flags]: brings the demo up on a cluster of its own, runs the
# end-to-end suite on it, takes it down, and checks that nothing is left.
set -euo pipefail
cd "$(dirname "$0")/../.."
export ROLLCALL_CLUSTER=${ROLLCALL_CLUSTER:-rollcall-e2e}

up=0
before=$(mktemp)
down() {
	code=$?
	trap - EXIT
	[ "$up" = 0 ] || test/demo/demo.sh down || code=1
	rm -f "$before" "$before.after"
	exit "$code"
}
trap down EXIT
trap 'exit 130' INT TERM

# left prints all that a cluster might leave on the machine.
left() {
	echo "mounts:"; cut -d' ' -f3- /proc/self/mountinfo | sort
	echo "interfaces:"; ip -brief link | cut -d' ' -f1 | sort
	echo "rules:"; nft --stateless list ruleset; ip rule; ip route show table all
	echo "processes:"
	pgrep -af 'kube|etcd|containerd|runc|coredns|argo|workflow-controller|demo-chain' | cut -d' ' -f2- | sort || true
	echo "control groups:"; find /sys/fs/cgroup -type d -name 'rollcall-*' 2>/dev/null | sort || true
	echo "paths:"
	ls -d /var/lib/kubelet /var/lib/cni /var/lib/etcd /var/log/pods /run/netns /run/containerd \
		"$HOME/.cache/rollcall/clusters/$ROLLCALL_CLUSTER" 2>/dev/null || true
}

test/demo/demo.sh prepare # installs packages too, which may bring folders along
left >"$before"
up=1
test/demo/demo.sh demo
eval "$(test/demo/demo.sh env)"
CGO_ENABLED=0 go test -tags e2e -count=1 -timeout 45m -v ./test/e2e "$@"
test/demo/demo.sh down
up=0
echo "==> what the cluster leaves behind"
left >"$before.after"
diff "$before" "$before.after" || { echo "this is left, or gone (see above)" >&2; exit 1; }
echo "nothing: mounts, interfaces, rules, processes, control groups and folders are as before"
