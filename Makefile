# Batchmerge: `make demo` shows it, `make test` proves it. All targets: `make help`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
DEMO ?= month
export DEMO

# The newest supported Python that can make a virtual environment: on PATH, or only under pyenv (whose shims answer
# for versions that are not active, so each candidate has to prove itself).
find_python = for version in 3.13 3.12 3.11; do \
	for candidate in python$$version python3 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version*/bin/python; do \
		"$$candidate" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" \
			>/dev/null 2>&1 && { echo "$$candidate"; break 2; }; \
	done; \
done

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: .venv/installed ## Make .venv and install everything into it (once)

.venv/installed: pyproject.toml constraints.txt tests/duckdb_destination/pyproject.toml
	@python=$$($(find_python)); \
	if [ -z "$$python" ]; then \
		echo "No Python 3.13, 3.12 or 3.11 with venv was found: install Python 3.13 (on Debian or Ubuntu python3-venv too), then run make again." >&2; \
		exit 1; \
	fi; \
	if ! [ -x $(BIN)/python ]; then echo "making .venv with $$($$python --version)"; "$$python" -m venv .venv; fi
	@echo "installing Batchmerge and what it needs into .venv (2 GB, a few minutes the first time)"
	@$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[local,dev]' \
		--editable tests/duckdb_destination \
		| { grep -vE '^(Requirement already|  (Using|Downloading|Preparing|Getting|Installing|Building)|Looking in)' || true; }; \
		exit $${PIPESTATUS[0]}
	@touch $@

.PHONY: demo
demo: setup ## Write real flights into three tables, and check the tables (DEMO=month, or DEMO=year for a million events)
	@$(BIN)/batchmerge demo

.PHONY: up
up: setup ## Start the local services
	@$(BIN)/batchmerge up

.PHONY: down
down: ## Stop the local services
	@if [ -x $(BIN)/batchmerge ]; then $(BIN)/batchmerge down; fi

.PHONY: test
# Three processes on two cores: half of the time a test waits for a service.
test: setup ## Lint, check the definitions, run the tests
	@$(MAKE) --no-print-directory --jobs=2 lint definitions
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 40 --durations-min 10 \
		-m "not slow and not bigquery_real and not production"

.PHONY: lint
lint: setup ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.PHONY: definitions
definitions: export VIRTUAL_ENV := $(CURDIR)/.venv
definitions: setup ## Check that Dagster can load every pipeline, and the YAML of each
	$(BIN)/dg check toml
	$(BIN)/dg check defs
	$(BIN)/dagster definitions validate -w workspace.yaml

.PHONY: crash
crash: setup ## Kill the real process at every boundary, many times (minutes)
	BATCHMERGE_KILLS=200 BATCHMERGE_KILL_ROWS=5000000 $(BIN)/python -m pytest tests/crash

# What reads or writes the lake: the behaviour suite of Iceberg, and in full the crash matrix, maintenance, the demo, a
# store that is busy or loses answers. S3: credentials that end, and copies of landed files that BigQuery loads. Google's:
# BigQuery loads landed files from there.
STORE_TESTS := tests/crash/test_every_boundary.py tests/crash/test_iceberg_crash.py tests/crash/test_two_runs.py \
	tests/orchestration/test_demo.py tests/integration/test_maintenance.py tests/integration/test_faulty_object_store.py
STORE_TESTS_s3 := tests/integration/test_vended_credentials.py tests/integration/test_bigquery_copied_files.py
STORE_TESTS_gcs := tests/integration/test_bigquery_files.py
.PHONY: s3 gcs
s3 gcs: setup ## What reads or writes the lake, with its files in an object store of this kind (an hour)
	BATCHMERGE_TEST_LAKE=$@ $(BIN)/python -m pytest tests/destinations -k iceberg
	BATCHMERGE_TEST_LAKE=$@ $(BIN)/python -m pytest $(STORE_TESTS) $(STORE_TESTS_$@)

.PHONY: soak
soak: setup ## Kill runs, the daemon and all services at random moments, 300 times (hours; KILLS=n, SEED=n)
	$(BIN)/python -m tests.soak --kills $(or $(KILLS),300) --seed $(or $(SEED),1)

.PHONY: thorough
thorough: setup ## The long tests that `make test` leaves out (the tutorial of docs too), beside those of the other targets
	$(BIN)/python -m pytest -m "slow and not bigquery_real" --ignore tests/crash --ignore tests/browser --ignore tests/cdc --ignore tests/production

.PHONY: cdc
cdc: setup ## Compare with a real PostgreSQL that Debezium captures (needs PostgreSQL: apt-get install postgresql)
	$(BIN)/python -m pytest tests/cdc

.PHONY: bench
bench: setup ## Measure speed and memory
	$(BIN)/python -m tests.benchmarks

.PHONY: production
production: setup ## Dagster on PostgreSQL, two code locations, a Spark cluster, systemd, Kubernetes, alert rules (needs PostgreSQL, promtool; minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'kubernetes-validate>=1.37'
	$(BIN)/python -m pytest -m production tests/production

.PHONY: screenshots
screenshots: setup ## Drive the Dagster UI with a browser (needs Chromium) and renew the pictures of README and docs
	SCREENSHOTS=docs/pictures $(BIN)/python -m pytest tests/browser

.PHONY: clean
clean: down ## Stop the services and remove their data and caches (.venv stays)
	rm -rf .batchmerge .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
