# The commands of this repository; `make help` lists them.
PYTHON ?= python3.11
VENV_PYTHON := .venv/bin/python
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup run stop compose-env up down image logs compose-test test lint format unit sweep mutants bench schemas docs ui pictures clean lock matrix

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install everything from the locks: .venv, the package, the jars
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: Python 3.11 is needed, and there is no \`$(PYTHON)\` on PATH" >&2; \
	  echo "  fix: Debian/Ubuntu: apt install python3.11 python3.11-venv; or make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@if [ -x $(VENV_PYTHON) ] && [ -f .venv/.setup-stamp.json ]; then $(VENV_PYTHON) -m tools.setup; else $(PYTHON) -m tools.setup; fi

run: setup ## start Kafka and Airflow, make data, let the example pipelines run twice, show the tables (STORE=s3: in a bucket)
	@STORE="$(STORE)" $(VENV_PYTHON) -m tools.demo run

stop: ## stop the servers of `make run`
	@if [ -x $(VENV_PYTHON) ]; then $(VENV_PYTHON) -m tools.demo stop; fi

# These five need Python's standard library alone: a machine that runs the services needs no .venv.
define COMPOSE_PYTHON
@command -v $(PYTHON) >/dev/null || { \
	  echo "error: there is no \`$(PYTHON)\` on PATH" >&2; \
	  echo "  fix: install Python 3.11, or name another from 3.9 on: make $@ PYTHON=python3" >&2; exit 1; }; $(PYTHON)
endef

compose-env: ## write .env with the secrets and sizes of docker-compose.yaml, or add what it lacks
	$(COMPOSE_PYTHON) -m tools.compose_env

up: ## build and start the services of docker-compose.yaml (PROFILES=core,kafka,cluster,s3; default: what .env says)
	$(COMPOSE_PYTHON) -m tools.compose up $(if $(PROFILES),--profiles "$(PROFILES)")

down: ## stop the services of docker-compose.yaml; the volumes stay
	$(COMPOSE_PYTHON) -m tools.compose down

image: ## build the image under a name, for a registry (TAG=registry.example.org/team/tidegate:1)
	$(COMPOSE_PYTHON) -m tools.compose image $(if $(TAG),--tag "$(TAG)")

logs: ## follow the logs of the services of docker-compose.yaml
	$(COMPOSE_PYTHON) -m tools.compose logs

test: setup ## everything: formatting, types, import rules, every test
	@$(VENV_PYTHON) -m tools.check all

compose-test: setup ## the services of docker-compose.yaml on a container engine: kills, full disks, upgrades (half an hour)
	@$(VENV_PYTHON) -m tools.compose_test

lint: setup ## formatting, types, import rules
	@$(VENV_PYTHON) -m tools.check lint

unit: setup ## the tests that need no JVM, in seconds
	@$(VENV_PYTHON) -m tools.check unit

format: setup ## let ruff format and fix what it can
	@$(VENV_PYTHON) -m ruff check --quiet --fix-only . && $(VENV_PYTHON) -m ruff format --quiet .

sweep: setup ## every test at every step and with more seeds (hours); `make test` takes a sample
	@TIDEGATE_SWEEP=all TIDEGATE_SEEDS=40 $(VENV_PYTHON) -m pytest tests --ignore=tests/compose

mutants: setup ## take protections out of the program one by one: does the model of the protocol notice? (half an hour)
	@$(VENV_PYTHON) -m tests.model.mutants

bench: setup ## the benchmarks, with their table in docs/benchmarks.md
	@$(VENV_PYTHON) -m benchmarks

matrix: setup ## the oldest and the newest versions that pyproject.toml allows: an environment of each, and chosen tests (an hour)
	@$(VENV_PYTHON) -m tools.matrix $(ENDS)

schemas: setup ## write the JSON Schemas of pipeline.yaml, tidegate.yaml and of what --json prints
	@$(VENV_PYTHON) -m tidegate.spec.json_schema
	@$(VENV_PYTHON) -m tidegate.cli.outputs

docs: setup ## write docs/reference from the code
	@$(VENV_PYTHON) -m tools.docs

ui: setup ## build the script and the styles of the pages in Airflow from ui/ (needs node)
	@$(VENV_PYTHON) -m tools.ui build

pictures: setup ## pictures of the pages in Airflow for the docs, of the demonstration that `make run` has started (needs Chromium)
	@$(VENV_PYTHON) -m tools.pictures

lock: setup ## resolve requirements.lock, docker/requirements.lock and tools/jars.lock again
	@$(VENV_PYTHON) -m tools.setup --lock
	@$(VENV_PYTHON) -m tools.jars lock

clean: stop ## remove what runs and tests leave behind (data, state, logs); .venv and jars stay
	@rm -rf data .airflow .kafka .s3 .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
