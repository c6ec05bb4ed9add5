#!/usr/bin/env bash
# Writes docs/steps.md, the reference of the steps, from what the program itself
# says (rollcall STEP --help) and from the steps' package documentation.
#
#   docs/generate.sh            writes it
#   docs/generate.sh --check    fails, and shows the difference, if it is not current
#
# ROLLCALL_BIN names a built program; without it one is built into a temporary folder.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
case "${1:-}" in
'' | --check) ;;
*)
	echo "usage: docs/generate.sh [--check]" >&2
	exit 2
	;;
esac

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bin=${ROLLCALL_BIN:-}
if [ -z "$bin" ]; then
	bin=$tmp/rollcall
	CGO_ENABLED=0 "$GO" build -trimpath -buildvcs=false -o "$bin" ./cmd/rollcall
fi
mapfile -t steps < <("$bin" --list-steps)
[ "${#steps[@]}" -gt 0 ] || { echo "generate.sh: $bin lists no steps" >&2; exit 1; }

# rows turns one of help's tables, whose columns are two or more spaces apart,
# into the rows of a Markdown table.
rows() {
	# shellcheck disable=SC2016 # the backticks are Markdown
	sed -E -e 1d -e 's/\|/\\|/g; s/^ +//; s/ {2,}/ | /g; s/^/| /; s/$/ |/' \
		-e 's/^\| ([A-Z0-9_]+) \|/| `\1` |/; s/ \| - \| / | | /'
}
for step in "${steps[@]}"; do
	"$bin" "$step" --help >"$tmp/$step.help"
	sed -n '/^VARIABLE /,/^$/p' "$tmp/$step.help" | sed '/^$/d' | rows >"$tmp/$step.vars"
	cat "$tmp/$step.vars" >>"$tmp/all.vars"
done
# What every step has is shown once.
awk -v n="${#steps[@]}" '++seen[$0] == n' "$tmp/all.vars" >"$tmp/common.vars"
grep -Fxf "$tmp/common.vars" "$tmp/${steps[0]}.vars" >"$tmp/common.ordered"

# promises STEP: the documentation of the step's package, without its first
# paragraph, which says the same as the step's summary.
promises() {
	"$GO" doc "./steps/${1//-/}" | awk '/^(const|var|func|type) /{exit} NR > 2' | awk 'body { print } /^$/ { body = 1 }' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
}

out=$tmp/steps.md
{
	cat <<'TEXT'
<!-- Written by docs/generate.sh from `rollcall STEP --help` and the steps' package documentation. Change those. -->
# The steps

Each step is a command of the `rollcall` image (`command: [stake]`) and of the program (`rollcall stake`). It takes no
arguments: everything comes in through environment variables and the cluster, and goes out to the cluster, to one file
per output in the folder `ROLLCALL_OUT`, and as one JSON object to the pod's termination message. Logs are JSON lines on
standard error; tables for people go to standard output.

| step | does |
|---|---|
TEXT
	for step in "${steps[@]}"; do
		# shellcheck disable=SC2016 # the backticks are Markdown
		printf '| [`%s`](#%s) | %s |\n' "$step" "$step" "$(sed -n "1s/^$step: //p" "$tmp/$step.help")"
	done
	cat <<'TEXT'

## Variables of every step

| variable | type | default | meaning |
|---|---|---|---|
TEXT
	cat "$tmp/common.ordered"
	cat <<'TEXT'
| `ROLLCALL_OUT` | string | | folder for the step's outputs, one file each; nothing is written when empty |
| `ROLLCALL_LOG_LEVEL` | word | info | debug, info, warn or error |
| `ROLLCALL_TERMINATION_LOG` | string | /dev/termination-log | file for the JSON object that ends a step, if it exists |
| `KUBECONFIG` | string | | outside of a pod: the cluster to work on, as for kubectl |

An empty variable counts as not set, except for `ROLLCALL_VALIDATORS`: there it is a mistake. Every problem of a
configuration is reported at once, with exit code 2, before anything is asked of the cluster.

## Exit codes

| code | reason | meaning |
|---|---|---|
TEXT
	sed -n '/^Exit codes:/,$p' "$tmp/${steps[0]}.help" | rows
	for step in "${steps[@]}"; do
		printf '\n## %s\n\n' "$step"
		sed -n "1s/^$step: \(.\)\(.*\)/\U\1\E\2./p" "$tmp/$step.help"
		if [ -d "steps/${step//-/}" ]; then
			text=$(promises "$step")
			[ -z "$text" ] || printf '\n%s\n' "$text"
		fi
		if grep -qvFxf "$tmp/common.vars" "$tmp/$step.vars"; then
			printf '\n| variable | type | default | meaning |\n|---|---|---|---|\n'
			grep -vFxf "$tmp/common.vars" "$tmp/$step.vars"
		fi
		if [ "$step" = run ]; then
			printf '\nIt reads the variables of the steps that it runs, too.\n'
		fi
	done
} >"$out"

if [ "${1:-}" = --check ]; then
	diff -u docs/steps.md "$out" || { echo "docs/steps.md is not current: run docs/generate.sh" >&2; exit 1; }
	exit
fi
cp "$out" docs/steps.md
