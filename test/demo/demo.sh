#!/usr/bin/env bash
# The demo, step by step; the Makefile calls it. See --help.
#
# Everything it starts is the embedded cluster's or lies in the namespace
# rollcall-demo. Everything it builds lies in bin/ and in the cache folder.
set -euo pipefail
cd "$(dirname "$0")/../.."

NAME=${ROLLCALL_CLUSTER:-rollcall}    # name of the embedded cluster
CONTEXT=${KUBE_CONTEXT:-}             # a cluster of your own instead
NS=rollcall-demo
VERSION=$(git describe --tags --always --dirty 2>/dev/null || echo dev)

say() { printf '\033[1m==> %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
die() { echo "demo: $*" >&2; exit 1; }

usage() {
	cat <<'HELP'
Usage: test/demo/demo.sh COMMAND

  prepare  install packages; build Kubernetes, Argo and the demo chain
  build    build the programs and the images
  up       start the cluster, Argo, the chain of 4 validators and Rollcall
  run      the main job: scale from 4 to 5 validators and show who signs
  demo     up and run
  down     stop the embedded cluster and remove all that it left
  env      print the shell settings that make kubectl and argo speak to the cluster

Variables: KUBE_CONTEXT (use that cluster instead of the embedded one; it must
have Argo Workflows), LOAD (command that loads an image archive into that
cluster, for example "kind load image-archive"), ROLLCALL_CLUSTER (name).
HELP
}

# program NAME MODULE_DIR PACKAGE: builds bin/NAME.
program() {
	CGO_ENABLED=0 go -C "$2" build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/rollcall-dev/rollcall/internal/version.Version=$VERSION" -o "$PWD/bin/$1" "$3"
}

tools() {
	mkdir -p bin
	say "building the test cluster's tools"
	program cluster test/cluster ./cmd/cluster
	program argo-testbed test/argo ./cmd/argo-testbed
}

# prepare installs Debian's packages and builds what takes long, once: it is all
# kept in the cache folder.
prepare() {
	tools
	bin/cluster packages
	say "Kubernetes (about 10 minutes on 2 cores, the first time)"
	bin/cluster build
	say "Argo Workflows (about 8 minutes, the first time)"
	bin/argo-testbed build >/dev/null
	say "the demo chain (about 4 minutes, the first time)"
	go run ./test/localnet/cmd/demo-chain-binary
}

build() {
	say "building Rollcall"
	mkdir -p bin out
	program rollcall . ./cmd/rollcall
	program kubectl-rollcall . ./cmd/kubectl-rollcall
	images/rollcall/image.sh bin --tag local.test/rollcall:dev --output out/rollcall.tar >out/rollcall.image
	say "building the demo chain (some minutes the first time)"
	go run ./test/localnet/cmd/demo-chain-binary >out/demo-chain.path
	install -m 0755 "$(cat out/demo-chain.path)" bin/demo-chain
	images/demo-chain/image.sh bin/demo-chain --tag local.test/rollcall-demo-chain:dev --output out/demo-chain.tar >out/demo-chain.image
}

cluster() { bin/cluster --name "$NAME" "$@"; }

# target sets kubectl's and argo's cluster.
target() {
	if [ -n "$CONTEXT" ]; then
		mkdir -p out
		kubectl config view --minify --flatten --context "$CONTEXT" >out/kubeconfig
		export KUBECONFIG=$PWD/out/kubeconfig
		return
	fi
	eval "$(cluster env)"
	PATH=$(dirname "$(bin/argo-testbed paths argo)"):$PATH
	export PATH
}

load() {
	if [ -z "$CONTEXT" ]; then
		cluster load "$@"
	elif [ -n "${LOAD:-}" ]; then
		for f in "$@"; do $LOAD "$f"; done
	else
		say "not loading images: set LOAD to the command that loads an archive into $CONTEXT"
	fi
}

up() {
	if [ -z "$CONTEXT" ]; then
		tools
		say "starting the embedded cluster (the first time builds Kubernetes: about 10 minutes on 2 cores)"
		cluster up
		say "building and installing Argo Workflows (the first time: about 8 minutes)"
		bin/argo-testbed build >/dev/null
		# shellcheck disable=SC2046 # one archive a word
		cluster load $(bin/argo-testbed images)
		target
		bin/argo-testbed install --kubeconfig "$KUBECONFIG"
	else
		target
		kubectl get crd workflows.argoproj.io >/dev/null || die "the cluster $CONTEXT has no Argo Workflows"
	fi
	build
	load "$PWD/out/rollcall.tar" "$PWD/out/demo-chain.tar"
	say "applying the custom resources, the chain and Rollcall"
	kubectl apply --server-side --force-conflicts -k manifests/crds
	kubectl apply --server-side -f manifests/overlays/demo/namespace.yaml
	# So that "argo submit" and "kubectl get vnet" need no -n.
	kubectl config set-context --current --namespace=$NS >/dev/null
	if ! kubectl -n $NS get configmap chain-genesis >/dev/null 2>&1; then
		keys=$(mktemp -d)
		trap 'rm -rf "$keys"' EXIT
		bin/demo-chain network --validators 4 --accounts 16 --chain-id rollcall-demo-1 --format kubernetes --output "$keys/net"
		kubectl apply --server-side -n $NS -f "$keys/net" >/dev/null
		rm -rf "$keys"
	fi
	# Numbers that Rollcall has changed since stay as they are: applying the
	# manifest's 4 again would stop validators that are still in consensus.
	kubectl kustomize manifests/overlays/demo |
		sed "s/^  replicas: 4\$/  replicas: $(number statefulset/validator .spec.replicas)/
			s/^  validators: 4\$/  validators: $(number vnet/demo .spec.validators)/" |
		kubectl apply --server-side --force-conflicts -f -
	say "waiting for the validators"
	kubectl -n $NS rollout status statefulset/validator --timeout=5m
}

# number OBJECT PATH: a number of the demo as it is, or 4 for a new one.
number() { kubectl -n $NS get "$1" -o jsonpath="{$2}" 2>/dev/null | grep . || echo 4; }

# follow WORKFLOW: shows what its steps say, in plain words.
follow() {
	local pods="workflows.argoproj.io/workflow=$1"
	kubectl -n $NS wait --for=create pod -l "$pods" --timeout=60s >/dev/null || return 0
	kubectl -n $NS wait --for=condition=PodReadyToStartContainers pod -l "$pods" --timeout=2m >/dev/null || return 0
	kubectl -n $NS logs -f -l "$pods" --all-containers --prefix --max-log-requests 20 --tail=-1 2>/dev/null |
		sed -unE 's/^\[pod[^ ]*\/([a-z-]+)\] \{.*"msg":"(([^"\\]|\\.)*)".*"for":"(([^"\\]|\\.)*)".*/    \1: \2 (\4)/p; t
			s/^\[pod[^ ]*\/([a-z-]+)\] \{.*"level":"[A-Z]*","msg":"(([^"\\]|\\.)*)".*/    \1: \2/p'
}

# roll prints who is in consensus, from a Job that runs one step.
roll() {
	kubectl -n $NS delete job roll-call --ignore-not-found >/dev/null
	kubectl -n $NS create job roll-call --from=cronjob/verify >/dev/null
	kubectl -n $NS wait --for=condition=Complete --timeout=4m job/roll-call >/dev/null ||
		{ kubectl -n $NS logs job/roll-call >&2; die "the roll call failed"; }
	kubectl -n $NS logs job/roll-call | grep -v '^{'
}

run() {
	target
	local wanted workflow
	wanted=$(number statefulset/validator .spec.replicas)
	[ "$wanted" -ge 5 ] || wanted=5
	say "argo submit workflows/scale-up.yaml -p validators=$wanted"
	workflow=$(argo submit -n $NS -o name workflows/scale-up.yaml -p validators="$wanted" -p user="${SUDO_USER:-${USER:-demo}}" -p reason="make demo")
	follow "$workflow"
	argo wait -n $NS "$workflow" || { argo get -n $NS "$workflow" >&2; die "the scale-up failed"; }
	say "the network's record"
	kubectl -n $NS get vnet
	say "roll call: signatures in the last 10 blocks"
	roll
}

down() {
	[ -z "$CONTEXT" ] || { kubectl --context "$CONTEXT" delete namespace $NS --ignore-not-found; return; }
	[ -x bin/cluster ] || program cluster test/cluster ./cmd/cluster
	cluster down
	rm -rf out
}

case "${1:-}" in
prepare | build | up | run | down) "$1" ;;
demo) up && run ;;
env)
	if [ -n "$CONTEXT" ]; then
		[ -e out/kubeconfig ] || die "run make demo first"
		printf "export KUBECONFIG='%s'\n" "$PWD/out/kubeconfig"
		exit 0
	fi
	[ -x bin/argo-testbed ] || die "run make demo first"
	cluster env
	printf "export PATH='%s:%s':\$PATH\n" "$PWD/bin" "$(dirname "$(bin/argo-testbed paths argo)")"
	;;
-h | --help | help) usage ;;
*) usage >&2; exit 2 ;;
esac
