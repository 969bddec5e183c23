# The tasks of this project. `make help` lists them.
# A distribution's build is optimised (PGO, LTO): the operator and the tests take less CPU time than on a plain build.
PYTHON  ?= $(firstword $(foreach p,/usr/bin/python3.11 python3.11,$(if $(shell $(p) -c "import ensurepip, venv" 2>&1 || echo no),,$(p))) python3.11)
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
AIC     := .venv-aic
ROUTER  := .venv-router
export PYTHONPATH := operator/src:e2e
NAME    ?= dev

.PHONY: help deps browser network-tools binaries cluster cluster-down demo test test-unit test-cluster fuzz lint generate check-generated \
        bench-scale bench-plan bench-autoscaler bench-autoscaler-quick accuracy accuracy-memory fit router bench-router aic second-opinion lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(STAMP): requirements/dev.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "needs $(PYTHON) on PATH"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing locked dependencies into $(VENV)" >&2
	@$(BIN)/python -m pip install -q --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

deps: $(STAMP)  ## create .venv with the locked dependencies

demo: $(STAMP)  ## real control plane, three services planned and placed, one that cannot fit
	@$(BIN)/python e2e/demo.py

browser:  ## Debian's Chromium for the tests of the page (root; nothing to do where there is one)
	@command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; }
	@chromium --version

network-tools:  ## iproute2 for the tests with network namespaces (root; nothing to do where there is one)
	@command -v ip >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends iproute2 >/dev/null; }
	@ip -Version

binaries: $(STAMP)  ## build the local control plane's programs into the cache
	@$(BIN)/python -m harness build

test: lint binaries  ## everything that CI runs
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile tests e2e

lint: $(STAMP)  ## ruff, mypy, import rules, generated files in step
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) -s check-generated

test-unit: $(STAMP)  ## tests that need no cluster
	@$(BIN)/python -m pytest -q -n 2 tests

fuzz: $(STAMP)  ## property tests on inputs that no run has seen; repeat until it finds nothing
	@HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q -n 2 -p no:cacheprovider $$(grep -rl "from hypothesis" tests)

test-cluster: binaries  ## tests on the real control plane
	@$(BIN)/python -m pytest -q e2e

cluster: $(STAMP)  ## start a local control plane with GPU nodes (NAME=dev); prints what a shell has to export
	@$(BIN)/python -m harness --name $(NAME) up --pool demo

cluster-down: $(STAMP)  ## stop it
	@$(BIN)/python -m harness --name $(NAME) down

bench-scale: $(STAMP)  ## 1000 services on the real API server, as JSON
	@$(BIN)/python benchmarks/bench_scale.py

bench-plan: $(STAMP)  ## one decision over 5 products and 128 GPUs, and memory over 10,000, as JSON; fails above its bars
	@$(BIN)/python benchmarks/bench_plan.py

bench-autoscaler: $(STAMP)  ## our autoscaler, its rivals and the clairvoyant on three traces; fails when a bar is missed
	@$(BIN)/python benchmarks/bench_autoscaler.py

bench-autoscaler-quick: $(STAMP)  ## the same on the chat trace and two hours of the mixed day, for CI
	@$(BIN)/python benchmarks/bench_autoscaler.py --quick

accuracy-memory: $(STAMP)  ## memory model against measured vLLM starts
	@$(BIN)/python benchmarks/memory_accuracy.py

accuracy: $(STAMP)  ## latency model against measured serving rows, held out; fails under its bar
	@$(BIN)/python benchmarks/serving_accuracy.py

fit: $(STAMP)  ## refit the latency model's constants and report their errors (writes nothing)
	@$(BIN)/python benchmarks/fit_performance.py

$(ROUTER)/.installed: requirements/router.lock
	@test -x $(ROUTER)/bin/python || $(PYTHON) -m venv $(ROUTER)
	@echo "installing vllm-router (130 MB) into $(ROUTER)"
	@$(ROUTER)/bin/python -m pip install -q --require-hashes -r requirements/router.lock
	@touch $@

router: $(ROUTER)/.installed  ## the real router for tests with traffic, in an environment of its own

bench-router: $(STAMP) $(ROUTER)/.installed network-tools  ## its policies before four simulated engines (root); writes benchmarks/results
	@$(BIN)/python benchmarks/bench_router.py --write

$(AIC)/.installed: requirements/aic.lock
	@test -x $(AIC)/bin/python || $(PYTHON) -m venv $(AIC)
	@echo "installing aiconfigurator-core (600 MB) into $(AIC)"
	@$(AIC)/bin/python -m pip install -q --require-hashes -r requirements/aic.lock
	@touch $@

aic: $(AIC)/.installed  ## the library behind `estimate --second-opinion`, in an environment of its own

second-opinion: $(STAMP) $(AIC)/.installed  ## its TPOT beside ours on measured rows; writes benchmarks/results
	@$(BIN)/python benchmarks/second_opinion.py --python $(AIC)/bin/python --write

generate: $(STAMP)  ## CRD, API reference and reasons from the models
	@$(BIN)/python -m shardwright.cli.docs

check-generated: $(STAMP)
	@$(BIN)/python -m shardwright.cli.docs --check

lock: $(STAMP)  ## refresh the lock files (versions and hashes only)
	@$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 \
		pyproject.toml -o requirements/runtime.lock
	@$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 \
		pyproject.toml --group dev -c requirements/runtime.lock -o requirements/dev.lock
	@$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
		requirements/aic.in -o requirements/aic.lock
	@$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
		requirements/router.in -o requirements/router.lock

clean:  ## remove the virtual environment and caches of this checkout
	rm -rf $(VENV) $(AIC) $(ROUTER) .mypy_cache .ruff_cache .pytest_cache .hypothesis
