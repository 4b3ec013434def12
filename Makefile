# `make` alone lists the targets. Every target sets up what it needs and no more.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# So many processes run the tests: twice as many as two cores, since each waits half of its time. Each has servers of its
# own, and takes 3 GB.
TESTERS ?= 4
# So long `make soak` plays.
MINUTES ?= 60
TOOLS_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/slicebus/tools
export TOOLS_CACHE
# Some shells say that Python keeps no bytecode. Each tester would then compile every test anew, for 13 s of processor time.
unexport PYTHONDONTWRITEBYTECODE
READY := $(VENV)/.ready
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --custom-compile-command 'make lock'

.DEFAULT_GOAL := help
.PHONY: help demo sim soak recordings test newest-python test-peers lint unit bench proto fields reference docs metrics dashboards servers peers lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: $(READY) ## run a manager and two agents for half a minute and watch resizes come through
	$(BIN)/slicebus demo

sim: $(READY) ## simulate fleets from seeds until it is stopped; SEED=7 repeats one (SIM=--help: what else it can)
	cd tests && PYTHONHASHSEED=0 ../$(BIN)/python -m simulation $(if $(SEED),--seed $(SEED)) $(SIM)

soak: $(READY) servers ## run the tests that take long, then simulate fresh seeds until MINUTES=60 are over
	cd tests && ../$(BIN)/python -m simulation.soak --minutes $(MINUTES) --testers $(TESTERS) $(SOAK)

recordings: $(READY) ## record anew what tests/replays makes again; ONLY=eviction records one
	cd tests && PYTHONHASHSEED=0 ../$(BIN)/python -m simulation.record $(ONLY)

test: $(READY) servers ## set up what is missing and run every test
	@$(MAKE) --no-print-directory --jobs 2 lint newest-python
	$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder --durations 25

# Before the suite, whose closing line is the last one.
newest-python: $(READY)
	@tests/tools/newest-python.sh

test-peers: export KUBERAY_BINARY ?= $(TOOLS_CACHE)/bin/ray-operator
test-peers: export KUBERAY_CRDS ?= $(TOOLS_CACHE)/crds/kuberay
test-peers: export KUEUE_BINARY ?= $(TOOLS_CACHE)/bin/kueue
test-peers: export KUEUE_CRDS ?= $(TOOLS_CACHE)/crds/kueue
test-peers: $(READY) servers peers ## run the tests beside a real KubeRay and a real Kueue
	$(BIN)/python -m pytest tests/integration/ray tests/e2e/test_beside_kuberay.py tests/e2e/test_kueue_mode.py -k 'kuberay or kueue_mode'

lint: $(READY) ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(READY) ## run the tests that need no servers
	$(BIN)/python -m pytest tests/unit

bench: $(READY) servers ## run every benchmark, half an hour on a quiet machine (BENCH=--quick: small sizes)
	$(BIN)/python bench/all.py $(BENCH)

proto: $(READY) ## write the JSON Schemas and asyncapi.yaml from the message types
	$(BIN)/python proto/generate.py

fields: $(READY) ## write docs/fields.md from the definitions and the table of their fields
	cd tests && ../$(BIN)/python -m support.field_page

reference: $(READY) ## write docs/reference from the commands, the settings, the charts and the schemas
	cd tests && ../$(BIN)/python -m support.reference

docs: $(READY) ## build the site of the documents in .cache/site; a warning ends it
	$(BIN)/python site/build.py
	@echo "the site begins at .cache/site/index.html"

metrics: $(READY) ## write docs/metrics.md from what both roles register
	cd tests && ../$(BIN)/python -m support.metrics_page

dashboards: $(READY) ## write the Grafana dashboards of the manager's chart
	cd tests && ../$(BIN)/python -m support.dashboards

servers: ## install or build the servers that integration tests run; what cannot be had is skipped there
	@tests/tools/setup.sh

peers: ## build the operators that test-peers runs, a KubeRay and a Kueue: ten minutes the first time
	@tests/tools/build.sh peers >/dev/null

lock: $(READY) ## resolve the dependencies anew
	$(LOCK) --group dev --extra ledger --extra otlp pyproject.toml -o requirements.lock
	$(LOCK) --constraints requirements.lock pyproject.toml -o docker/requirements.lock
	$(LOCK) --constraints requirements.lock --extra ledger pyproject.toml -o docker/manager.lock
	$(LOCK) --constraints requirements.lock --group build -o docker/build.lock

clean: ## remove the environment and every cache of the checkout
	rm -rf $(VENV) .venv-newest dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
