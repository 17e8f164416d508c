# Every target creates the virtual environment if it is missing, and updates it when the dependencies
# or the kernel sources change.

PYTHON ?= python3
PORT ?= 3000
ARGS ?=
MINUTES ?=
ROWS ?=
# One more than cores: tests that drive a browser or a daemon mostly wait.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Dagster release to test with. WEBSERVER selects another release of the web server, if the registry
# does not have the same one yet.
DAGSTER ?= 1.13.0
WEBSERVER ?= $(DAGSTER)
RELEASE := .dagster-releases/$(DAGSTER)
INSTANCE := .dagster_home/dagster.yaml
KERNEL_SOURCES := $(wildcard shardline/kernel/*.pyx shardline/kernel/*.pxd shardline/kernel/*.h shardline/kernel/*.py)

export DAGSTER_HOME := $(CURDIR)/.dagster_home

# Without bytecode, each process that a test starts compiles every module.
unexport PYTHONDONTWRITEBYTECODE

# Both names: up to pip 25.2, the first also pins the build environment; from 25.3 on, only the second.
PINS := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run demo-fault test sample test-dagster replay torture fuzz check bench ui clean

help: ## Show this help
	@echo "Shardline: versioned TFRecord datasets on Dagster"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 selects the interpreter. ARGS=... is passed to pytest, the replay or the benchmarks, PORT=... to the web server."

run: $(STAMP) $(INSTANCE) ## Run the demo: append, check, rebuild, extend and combine digits, then train a model (ROWS=400000 for more rows)
	@$(BIN)/python -m dagster_project.demo $(if $(ROWS),--extra-rows $(ROWS))

demo-fault: $(STAMP) $(INSTANCE) ## Append corrupt and invalid files that must be rejected, after make run
	@$(BIN)/python -m dagster_project.demo_fault

test: $(STAMP) ## Run the tests (ARGS="-k salvage" selects some)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not sweep" $(ARGS)

sample: $(STAMP) ## Run the long tests: the daemon, and a daily sample of races, kills, faults and large property tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m sweep $(ARGS)

test-dagster: $(RELEASE)/.installed ## Run the Dagster tests with another release (DAGSTER=1.13.0)
	@$(RELEASE)/bin/python -c 'import dagster, dagster_webserver as web; print("dagster", dagster.__version__, "with web server", web.__version__)'
	@$(if $(filter-out $(DAGSTER),$(WEBSERVER)),PYTHONWARNINGS='ignore:Found version mismatch') \
		$(RELEASE)/bin/python -m pytest -n $(WORKERS) --dist loadgroup tests/dagster $(ARGS)

replay: $(STAMP) ## Compare the commands with their recordings (ARGS=--record records again)
	@$(BIN)/python -m tests.replay $(ARGS)

torture: $(STAMP) ## Run every case of every sweep: kills, faults, flipped bits, stress (long, MINUTES=60 limits it)
	@SHARDLINE_TORTURE=all SHARDLINE_TORTURE_MINUTES=$(MINUTES) $(BIN)/python -m pytest -n auto -m sweep $(ARGS)

fuzz: $(STAMP) ## Run the operations on mutated files (MINUTES=10, ARGS="parquet" selects targets)
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(ARGS)

check: $(STAMP) ## Check lint, formatting, layers and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports
	@$(BIN)/mypy

bench: $(STAMP) ## Compare the speed with TensorFlow and with the limit of the machine
	@$(BIN)/python -m benchmarks $(ARGS)

ui: $(STAMP) $(INSTANCE) ## Serve the Dagster web page on http://127.0.0.1:3000 (PORT=...)
	@$(BIN)/python -m shardline.dagster.web.ui --port $(PORT)

clean: ## Remove the virtual environment, built files, caches and demo data
	@rm -rf $(VENV) build dist *.egg-info .demo .dagster_home .mypy_cache .pytest_cache .ruff_cache .hypothesis .fuzz .dagster-releases
	@rm -f shardline/kernel/*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Clean."

$(STAMP): pyproject.toml setup.py constraints.txt $(KERNEL_SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: $(PYTHON) is older than Python 3.11; hint: run make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Creating the virtual environment $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing Shardline and its dependencies (minutes the first time, then seconds)"
	@rm -f $(VENV)/install.log
	@$(PINS) $(BIN)/python -m pip install -q --progress-bar off --disable-pip-version-check --log $(VENV)/install.log -e ".[platform,lineage,demo,dev]" || { \
		echo "error: the install failed, see $(VENV)/install.log" >&2; exit 1; }
	@grep -o 'shardline: WARNING: .*' $(VENV)/install.log | sort -u >&2 || true
	@$(BIN)/python -m shardline.kernel
	@touch $@

# Another Dagster release on top of the packages of $(VENV), which saves gigabytes.
$(RELEASE)/.installed: $(STAMP)
	@echo "Installing Dagster $(DAGSTER) into $(RELEASE)"
	@rm -rf $(RELEASE)
	@$(BIN)/python -m venv $(RELEASE)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir({!r})".format(sysconfig.get_path("purelib")))' \
		> $$($(RELEASE)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shardline-base.pth
	@$(RELEASE)/bin/python -m pip install -q --progress-bar off --disable-pip-version-check --no-deps \
		$(foreach name,dagster dagster-graphql dagster-pipes dagster-shared,$(name)==$(DAGSTER)) dagster-webserver==$(WEBSERVER)
	@$(RELEASE)/bin/python -m pip check || test $(WEBSERVER) != $(DAGSTER)
	@printf '#!/bin/sh\nexec "$${0%%/*}/python" -m shardline "$$@"\n' > $(RELEASE)/bin/shardline
	@chmod +x $(RELEASE)/bin/shardline
	@touch $@

$(INSTANCE): dagster.yaml
	@mkdir -p $(@D)
	@cp dagster.yaml $@
