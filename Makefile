# Cloister: the commands of this repository. `make help` lists them.
# Each target sets up what it needs by itself and is quiet when there is nothing to do.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE ?= $(or $(CLOISTER_CACHE),$(HOME)/.cache/cloister)
PYTHON ?= python3
UV_VERSION := 0.13.9
UV := $(CACHE)/uv-$(UV_VERSION)/bin/uv
BIN := .venv/bin
WORKERS ?= 2

.PHONY: help
help: ## List the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	@echo "Setting up uv $(UV_VERSION) in $(CACHE)"
	@$(PYTHON) -m venv $(CACHE)/uv-$(UV_VERSION)
	@$(CACHE)/uv-$(UV_VERSION)/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r dev/uv-requirements.txt

.venv/.ready: pyproject.toml uv.lock | $(UV)
	@$(UV) sync --quiet --frozen --all-extras
	@touch $@

.PHONY: venv
venv: .venv/.ready ## Create the virtual environment from the locked versions

.PHONY: demo
demo: venv ## From nothing to a container that serves HTTP (CHECK=1: check each step, then tear down)
	@$(BIN)/python -m dev.demo up $(if $(CHECK),--check)

.PHONY: down
down: venv ## Stop what `make demo` left running
	@$(BIN)/python -m dev.demo down

.PHONY: test
test: lint verify unit test-guest test-api test-operator test-cluster test-chaos ## Everything: lint, types, unit, guest, API server, cluster and chaos tests

.PHONY: unit
unit: venv ## Tests without a cluster; under a minute
	@$(BIN)/pytest tests/unit -q -n $(WORKERS)

.PHONY: test-guest
test-guest: venv ## Tests of the Go program for enclaves, in network namespaces of their own
	@$(BIN)/pytest tests/guest -q

.PHONY: test-api
test-api: venv ## Tests against a real API server on which no operator runs
	@$(BIN)/pytest tests/api -q -n $(WORKERS) --ignore=tests/api/operator

.PHONY: test-operator
test-operator: venv ## Tests of the operator against a real API server
	@CLOISTER_OWN_CLUSTERS=1 $(BIN)/pytest tests/api/operator -q -n $(WORKERS)

.PHONY: test-tenant
test-tenant: venv ## A tenant tries 2,000 generated steps to reach another organization (STEPS=…, SEED=…)
	@CLOISTER_WALK_STEPS=$(or $(STEPS),2000) CLOISTER_WALK_SEED=$(or $(SEED),1) $(BIN)/pytest tests/api/operator/test_tenant_walk.py -q

.PHONY: schemathesis
schemathesis: venv ## Generated requests against a real facade, ten minutes with a key and ten without (SECONDS=…)
	@CLOISTER_SCHEMATHESIS_SECONDS=$(or $(SECONDS),600) $(BIN)/pytest tests/api/facade/test_schemathesis.py -q

.PHONY: test-cluster
test-cluster: venv ## Tests on a real node, where Pods really run (root, Linux)
	@CLOISTER_OWN_CLUSTERS=1 $(BIN)/pytest tests/cluster -q -n $(WORKERS) --dist loadfile

.PHONY: test-enclave
test-enclave: venv ## The inside of enclaves in full: packets over 30 files and 40 plans, every escape (root, Linux)
	@cd operator/guest && go test -count=1 . -plans 40
	@CLOISTER_MATRIX_FILES=30 $(BIN)/pytest tests/cluster/test_guest_networks.py tests/cluster/test_guest_escapes.py tests/cluster/test_guest_containers.py tests/cluster/test_guest_restarts.py -q

.PHONY: test-gateway
test-gateway: venv ## Ten updates in a row through a real gateway, without a failed request (root, Linux)
	@CLOISTER_GATEWAY_UPDATES=10 $(BIN)/pytest tests/cluster/test_gateway.py -q -s --timeout=1800

.PHONY: test-crashes
test-crashes: venv ## The operator killed after every single write of every step of a Container's life
	@CLOISTER_CRASH_POINTS=100 $(BIN)/pytest tests/api/operator/test_crash_points.py -q

.PHONY: test-chaos
test-chaos: venv ## Ninety random actions and faults, of one seed (root)
	@$(BIN)/pytest tests/chaos -q

.PHONY: chaos
chaos: venv ## Random actions and faults for 30 minutes (CLOISTER_CHAOS_SECONDS=…, CLOISTER_CHAOS_SEED=…)
	@CLOISTER_CHAOS_SECONDS=$${CLOISTER_CHAOS_SECONDS:-1800} $(BIN)/pytest tests/chaos -q -s

.PHONY: lint
lint: venv ## Format, rules, types, layers, dependencies, the house's own checks
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo >/dev/null || $(BIN)/lint-imports --no-logo
	@$(BIN)/deptry --no-ansi api operator crds 2>/dev/null || $(BIN)/deptry api operator crds
	@$(BIN)/deptry --no-ansi dev tests --non-dev-dependency-groups dev --ignore DEP002 2>/dev/null \
	  || $(BIN)/deptry dev tests --non-dev-dependency-groups dev --ignore DEP002
	@$(BIN)/python -m dev.house check

.PHONY: fmt
fmt: venv ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format --quiet .

.PHONY: crds
crds: venv ## Regenerate the manifests and the description of the API
	@$(BIN)/python -m dev.house generate

.PHONY: verify
verify: venv ## Fail when a generated file is out of date
	@$(BIN)/python -m dev.house verify

.PHONY: cluster-up
cluster-up: venv ## Start the local cluster (NAME=…)
	@$(BIN)/python -m dev.cluster up $(if $(NAME),--name $(NAME))

.PHONY: cluster-down
cluster-down: venv ## Stop the local cluster (NAME=…)
	@$(BIN)/python -m dev.cluster down $(if $(NAME),--name $(NAME))

.PHONY: bench
bench: venv ## Run the benchmarks; results as ratios
	@$(BIN)/python -m dev.bench

.PHONY: clean
clean: ## Remove what the commands created in the checkout
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
