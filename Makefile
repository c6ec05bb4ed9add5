# Rollcall. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
GO ?= go

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'

demo: ## start the embedded cluster with a chain of 4 validators and scale it to 5
	@test/demo/demo.sh demo

up: ## only start the cluster, Argo, the chain and Rollcall
	@test/demo/demo.sh up

down: ## stop the embedded cluster and leave nothing behind
	@test/demo/demo.sh down

env: ## print shell settings for eval: KUBECONFIG and PATH
	@test/demo/demo.sh env

build: ## build programs and images into bin/ and out/
	@test/demo/demo.sh build

test: prepare docs-check test-unit ## run every test: unit, API server, chain, end to end
	$(call say,side by side: tests on real API servers and on a real chain)
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-api test-chain
	@$(MAKE) --no-print-directory test-e2e

prepare: ## build what the tests need (Kubernetes, Argo, the demo chain); quick when cached
	@test/demo/demo.sh prepare

test-unit: ## unit tests of every module
	$(call say,unit tests)
	@CGO_ENABLED=0 $(GO) test ./...
	@for m in images/build images/demo-chain test/argo test/cluster; do \
		echo "--- $$m"; CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false" $(GO) -C $$m test ./...; done

test-integration: ## tests against real API servers
	$(call say,integration tests on real API servers)
	@CGO_ENABLED=0 $(GO) test -tags integration -count=1 -p 1 -timeout 20m ./api/... ./internal/... ./steps/... ./test/kubetest/... ./test/integration/... ./test/manifests/...

test-api:
	@$(MAKE) --no-print-directory test-integration
	@$(MAKE) --no-print-directory test-lock-sample

test-chain: ## the chain adapter against a real chain
	$(call say,chain adapter on a real chain)
	@CGO_ENABLED=0 $(GO) test -tags chain -count=1 -p 1 -parallel 3 -timeout 20m ./internal/chain/... ./test/localnet/...

test-lock: ## lock histories in full: at least 10,000 operations, checked for linearizability
	$(call say,lock histories in full)
	@LOCK_OPS=10000 CGO_ENABLED=0 $(GO) test -tags integration -timeout 120m -count=1 -v ./test/lock/... ./internal/lock/...

test-lock-sample:
	$(call say,a sample of the lock histories)
	@CGO_ENABLED=0 $(GO) test -tags integration -count=1 -timeout 20m ./test/lock/...

test-e2e: ## the demo, then 5 to 7 to 4 to 7 validators, bad input, lock, secrets, and make down
	$(call say,end to end on the embedded cluster)
	@test/e2e/run.sh

test-e2e-all: ## the same with every scene, and the embedded cluster's own tests
	$(call say,end to end on the embedded cluster: every scene)
	@test/e2e/run.sh -whole
	@CGO_ENABLED=0 $(GO) -C test/cluster test -tags e2e -count=1 -timeout 30m ./e2e

generate: ## make the CRDs, deep copies and the reference of the steps from the code
	@$(GO) -C tools/controller-gen build -o $(CURDIR)/bin/controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen
	@bin/controller-gen object crd paths=./api/... output:crd:dir=manifests/crds
	@docs/generate.sh

docs-check: ## fail if the reference of the steps is not current
	@docs/generate.sh --check

lint: docs-check ## gofmt, go vet, golangci-lint, shellcheck, yamllint, argo lint
	$(call say,lint)
	@test -z "$$(gofmt -l api cmd internal steps test images)" || { gofmt -l api cmd internal steps test images; exit 1; }
	@CGO_ENABLED=0 $(GO) vet -tags integration,e2e,chain ./...
	@mkdir -p bin && $(GO) -C tools/lint build -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@CGO_ENABLED=0 bin/golangci-lint run ./...
	@shellcheck $$(git ls-files '*.sh' .ci/run)
	@yamllint -c .yamllint manifests workflows
	@test/manifests/argo-lint.sh

say = @printf '\n==> %(%H:%M:%S)T %s\n' -1 "$(1)"

.PHONY: help demo up down env build test prepare test-unit test-integration test-api test-chain test-lock test-lock-sample test-e2e test-e2e-all generate docs-check lint ci
