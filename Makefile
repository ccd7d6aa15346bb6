# Switchtower. `make run` and `make test` are all a newcomer needs; both set everything up by themselves.

PYTHON ?= python3
BIN := .venv/bin
TESTS ?=

# The tests and the bench start daemons by the hundred; what Python compiled once is to be found again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup web webtest run test check format bench schemas reference map pictures clean

help: ## What can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: .venv/.ready ## Create .venv with everything; quick when nothing changed

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; hint: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Creating .venv" >&2; $(PYTHON) -m venv .venv; }
	@echo "Installing into .venv (about a minute the first time)" >&2
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable ".[all]" --group dev
	@touch $@

PAGE := src/switchtower/web_dist/index.html
PAGE_SOURCES := $(shell find web/src web/public web/build -type f 2>/dev/null) $(wildcard web/*.json web/*.ts web/*.js web/*.html)

web: $(PAGE) ## Build the page, when Node is there; quick when nothing changed

web/node_modules/.ready: web/package-lock.json
	@if command -v npm >/dev/null; then echo "Installing the page's tools into web/node_modules" >&2; \
		cd web && npm ci --silent --no-progress && touch node_modules/.ready; fi

$(PAGE): web/node_modules/.ready $(PAGE_SOURCES)
	@if command -v npm >/dev/null; then echo "Building the page" >&2; cd web && npm run --silent build -- --logLevel warn && touch ../$@; \
		else echo "There is no Node, so the page is not built; all else works" >&2; fi

webtest: web ## Check and test the page's own parts
	@if command -v npm >/dev/null; then cd web && npm run --silent check && npm test --silent; fi

run: setup web ## Start the daemon in the foreground, with the demo model
	@$(BIN)/tower serve

test: setup web ## Run the whole suite, offline (TESTS=path narrows it)
	@[ -n "$(TESTS)" ] || $(MAKE) --no-print-directory webtest
	$(BIN)/pytest -n 3 --dist worksteal $(TESTS)

test-postgres: setup ## Run the conformance suites with daemons on PostgreSQL
	TOWER_TESTS_STORE=postgres $(BIN)/pytest -n 3 --dist worksteal tests/conformance

check: setup ## Lint, strict types, import contracts, and the rules for names and words
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.style.names
	$(BIN)/python -m tests.style.words

format: setup ## Put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup ## Measure against bare baselines in the same run; results in bench/results
	$(BIN)/python -m bench

schemas: setup ## Write the JSON Schemas and the TypeScript types from the wire types
	$(BIN)/python -m switchtower.protocols.push.schemas documents/schemas
	@mkdir -p documents/typescript
	$(BIN)/python -m switchtower.protocols.minicodex.schemas > documents/typescript/minicodex.ts
	$(BIN)/python -m switchtower.protocols.relay.schemas > documents/typescript/relay.ts
	$(BIN)/python -m switchtower.engines.flow.ir.publish documents/flow-ir

reference: setup ## Write a page for each command, from the commands themselves
	$(BIN)/python -m switchtower.cli.reference docs/commands

map: setup ## Write docs/develop/map.md: which section of each protocol document lives in which file
	$(BIN)/python -m tests.conformance.section_map docs/develop/map.md

pictures: setup ## Draw the pictures of the terminal UI for the README anew
	$(BIN)/python -m tests.tui.readme docs/images

clean: ## Remove what was made
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
