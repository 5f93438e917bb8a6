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
# Compiled modules are kept, or each of the tests' processes would compile all of them again.
unexport PYTHONDONTWRITEBYTECODE

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
test: gate live ## Everything that a change must pass

.PHONY: gate
gate: lint verify unit simulate test-chart test-guest ## Lint, types, unit, simulation, chart and guest tests

.PHONY: live
live: venv ## Tests on real servers: API server, browser, operator, node; what fails runs once more (SUITES=…)
	@$(BIN)/python -m dev.live --workers $(WORKERS) $(SUITES)

.PHONY: unit
unit: venv ## Tests without a cluster; under a minute
	@$(BIN)/pytest tests/unit -q -n $(WORKERS)

.PHONY: unit-random
unit-random: venv ## The same with other generated inputs at each run
	@$(BIN)/pytest tests/unit -q -n $(WORKERS) --hypothesis-profile=random

.PHONY: simulate
simulate: venv ## The operator under virtual time: every life, with a sixth of the faults at every write
	@$(BIN)/python -m tests.simulation --workers $(WORKERS)

.PHONY: simulate-long
simulate-long: venv ## The same with all faults, in several schedules (SEEDS=…)
	@$(BIN)/python -m tests.simulation --workers $(WORKERS) --every 1 --seeds $(or $(SEEDS),3)

.PHONY: test-chart
test-chart: venv ## Tests of the Helm chart by the real Helm, without a cluster
	@$(BIN)/pytest tests/chart -q -n $(WORKERS)

.PHONY: test-install
test-install: earlier ## Charts and images on a real node: install, upgrade from the release before, air gap, restore (root, Linux)
	@$(BIN)/pytest tests/install -q --timeout=1200

.PHONY: test-guest
test-guest: venv ## Tests of the Go program for enclaves, in network namespaces of their own
	@$(BIN)/pytest tests/guest -q -n $(WORKERS) --dist loadfile

.PHONY: test-api
test-api: venv ## Tests against a real API server on which no operator runs
	@$(BIN)/python -m dev.live --workers $(WORKERS) api

.PHONY: test-operator
test-operator: venv ## Tests of the operator against a real API server
	@$(BIN)/python -m dev.live --workers $(WORKERS) operator

.PHONY: test-browser
test-browser: venv ## The dashboard in a real Chromium: what people do, axe, widths, keyboard
	@$(BIN)/python -m dev.live --workers $(WORKERS) browser

.PHONY: screenshots
screenshots: venv ## Pictures of the dashboard's pages, into docs/dashboard
	@CLOISTER_SCREENSHOTS=docs/dashboard $(BIN)/pytest tests/browser/test_pictures.py -q

.PHONY: test-tenant
test-tenant: venv ## A tenant tries 2,000 generated steps to reach another organization (STEPS=…, SEED=…)
	@CLOISTER_WALK_STEPS=$(or $(STEPS),2000) CLOISTER_WALK_SEED=$(or $(SEED),1) $(BIN)/pytest tests/api/operator/test_tenant_walk.py -q

.PHONY: schemathesis
schemathesis: venv ## Generated requests against a real facade, ten minutes with a key and ten without (SECONDS=…)
	@CLOISTER_SCHEMATHESIS_SECONDS=$(or $(SECONDS),600) $(BIN)/pytest tests/api/facade/test_schemathesis.py -q

.PHONY: test-cluster
test-cluster: venv ## Tests on a real node, where Pods really run (root, Linux)
	@$(BIN)/python -m dev.live --workers $(WORKERS) cluster

.PHONY: test-nightly
test-nightly: venv ## The cases of these suites that are too slow for each change
	@$(BIN)/python -m dev.live --workers $(WORKERS) --nightly $(SUITES)

.PHONY: test-enclave
test-enclave: venv ## The inside of enclaves in full: packets over 30 files and 40 plans, every escape (root, Linux)
	@cd operator/guest && go test -count=1 . -plans 40
	@CLOISTER_MATRIX_FILES=30 $(BIN)/pytest tests/cluster/test_guest_networks.py tests/cluster/test_guest_escapes.py tests/cluster/test_guest_containers.py tests/cluster/test_guest_restarts.py -q

.PHONY: test-gateway
test-gateway: venv ## Ten updates in a row through the real Envoy Gateway, without a failed request (root, Linux)
	@CLOISTER_TEST_GATEWAY=envoy-gateway CLOISTER_GATEWAY_UPDATES=10 $(BIN)/pytest tests/cluster/test_gateway.py -q -s --timeout=1800

.PHONY: test-policies
test-policies: venv ## NetworkPolicies of enclaves, enforced by the real kube-router (root, Linux)
	@CLOISTER_TEST_CLUSTER=policies CLOISTER_TEST_POLICIES=kube-router $(BIN)/pytest tests/cluster/test_policies.py -q --timeout=1800

# Apart: the operator deletes Enclaves of other tests, which have no Container.
.PHONY: test-versions
test-versions: venv ## Kinds, policies and clients against API servers of Kubernetes 1.35 and 1.37 (KUBERNETES=…)
	@for release in $(or $(KUBERNETES),1.35 1.37); do \
	  echo "Kubernetes $$release"; \
	  CLOISTER_KUBERNETES=$$release CLOISTER_SEQUENCES=1000 $(BIN)/pytest tests/api/crds tests/api/kube -q -n $(WORKERS); \
	  CLOISTER_KUBERNETES=$$release $(BIN)/pytest tests/api/operator/test_schema_walk.py -q; \
	done

.PHONY: test-gitops
test-gitops: venv ## docs/gitops followed with Flux's and Argo CD's own controllers
	@$(BIN)/pytest tests/gitops -q --timeout=900

.PHONY: test-kind
test-kind: venv ## Clusters of kind in a Docker of their own: `kind load`, chart, Container, demo (root, Linux)
	@$(BIN)/pytest tests/kind -q -s --timeout=1800

.PHONY: test-images
test-images: venv ## Build the images twice, and start each without rights (root, Linux)
	@$(BIN)/pytest tests/images -q

.PHONY: test-supply
test-supply: images ## Signatures of images, chart and bills by the real cosign, and what is refused
	@$(BIN)/pytest tests/release/supply -q

.PHONY: test-release
test-release: venv ## Release twice, the same bytes; then install the result by README's lines (root, Linux)
	@$(BIN)/pytest tests/release/whole -q -s --timeout=3600

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

.PHONY: lock
lock: $(UV) ## Renew uv.lock after a change of pyproject.toml
	@$(UV) lock --quiet

.PHONY: audit
audit: venv ## Known vulnerabilities of what is locked; needs pypi.org and vuln.go.dev (or GOVULNDB=…)
	@UV_PROJECT_ENVIRONMENT=.venv-audit $(UV) sync --quiet --frozen --no-install-project --only-group audit
	@$(UV) export --quiet --frozen --all-extras --no-default-groups --no-emit-project | \
	  .venv-audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off --requirement /dev/stdin
	@cd operator/guest && go tool -modfile=../../dev/audit/go.mod govulncheck $(if $(GOVULNDB),-db $(GOVULNDB)) ./...

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

.PHONY: chart
chart: venv ## Package the chart with the digests of `make images`, into dist
	@$(BIN)/python -m dev.chart package

.PHONY: kind-load
kind-load: venv ## Load the images of this checkout into a cluster of kind, and package the chart for them (CLUSTER=…)
	@$(BIN)/python -m dev.chart load --cluster $(or $(CLUSTER),kind)

.PHONY: install-yaml
install-yaml: venv ## One manifest of the chart for those without Helm, dist/install.yaml (VALUES=file, NAMESPACE=…)
	@$(BIN)/python -m dev.chart manifest --values $(or $(VALUES),$(error name your values: make install-yaml VALUES=values.yaml)) $(if $(NAMESPACE),--namespace $(NAMESPACE))

.PHONY: cluster-up
cluster-up: venv ## Start the local cluster (NAME=…)
	@$(BIN)/python -m dev.cluster up $(if $(NAME),--name $(NAME))

.PHONY: cluster-down
cluster-down: venv ## Stop the local cluster (NAME=…)
	@$(BIN)/python -m dev.cluster down $(if $(NAME),--name $(NAME))

.PHONY: docs
docs: venv ## The documentation as a site, into dist/site (SOURCE=address of the files on a forge)
	@$(BIN)/python -m dev.docs --uv $(UV) $(if $(SOURCE),--source $(SOURCE))

.PHONY: images
images: venv ## Build the container images into dist/images (REGISTRY=host/path: and push them; SOURCE=the repository's address)
	@$(BIN)/python -m dev.images build --uv $(UV) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(SOURCE),--source $(SOURCE))

.PHONY: earlier
earlier: venv ## Build chart and images of the release that tests upgrade from (tests/install/release.toml), once
	@$(BIN)/python -m dev.images earlier >/dev/null

.PHONY: images-lock
images-lock: venv ## Renew images/base.lock, the Debian packages of the images' base
	@$(BIN)/python -m dev.images lock

.PHONY: release
release: venv ## A release into a registry and a folder (VERSION=…, REGISTRY=host/path, OUTPUT=folder, DOWNLOADS=its address, SOURCE=the repository's; signed by COSIGN_KEY)
	@$(BIN)/python -m dev.release $(or $(VERSION),$(error name the version: make release VERSION=0.3.0-rc.1 REGISTRY=host/path)) --uv $(UV) --registry $(or $(REGISTRY),$(error name the registry: make release VERSION=$(VERSION) REGISTRY=host/path)) $(if $(OUTPUT),--output $(OUTPUT)) $(if $(DOWNLOADS),--downloads $(DOWNLOADS)) $(if $(SOURCE),--source $(SOURCE))

.PHONY: bench
bench: venv ## Run the benchmarks; results as ratios
	@$(BIN)/python -m dev.bench

.PHONY: clean
clean: ## Remove what the commands created in the checkout
	@rm -rf .venv .venv-audit .venv-docs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
