# Rollcall. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
GO ?= go

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

demo: ## start the embedded cluster with a chain of 4 validators and scale it to 5
	@test/demo/demo.sh demo

up: ## only start the cluster, Argo, the chain and Rollcall
	@test/demo/demo.sh up

down: ## stop the embedded cluster and leave nothing behind
	@test/demo/demo.sh down

env: ## print shell settings: eval "$$(make -s env)"
	@test/demo/demo.sh env

build: ## build programs and images into bin/ and out/
	@test/demo/demo.sh build

.PHONY: help demo up down env build
