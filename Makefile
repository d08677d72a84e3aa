# Every target works from a fresh clone; `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BROKER ?= embedded
ROWS ?= 1000000,10000000,50000000
PYTEST ?= $(BIN)/python -m pytest
IN_CI := $(filter 1 true yes,$(CI))
# Containers often switch it on; tests start hundreds of processes, and compiling is a third of what a short one does.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
DRAWN ?= 200
.PHONY: coverage mutants model fuzz failover help setup demo test test-spark test-stress test-nightly test-packages test-fast test-pythons test-lake test-lowest lint lock format conformance chaos simulate benchmark-audit load-ids load-sql load-lag load-dead load-losses load-many screenshots docs site sbom release clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# Each lock is complete, so pip resolves nothing: with --no-deps no release of tomorrow is looked at, and `pip check` says
# whether a lock lacks something. Modules are compiled when they are imported: most never are.
LOCKED := -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes --no-deps --no-build-isolation

setup: $(VENV)/.stamp ## virtual environment with everything the tests need, by the hashes of requirements/ci.lock

# PySpark comes as source: half a gigabyte of jars is packed, and unpacked at once. To compress it takes 13 s of a processor.
# Setuptools reads the file that DIST_EXTRA_CONFIG names.
$(VENV)/.stamp: requirements/ci.lock $(VENV)/.fast
	DIST_EXTRA_CONFIG=$(CURDIR)/requirements/wheels.cfg $(BIN)/python $(LOCKED) --requirement requirements/ci.lock
	$(BIN)/python -m pip check
	@touch $@

# PySpark is half a gigabyte: who only wants to look, or to run the fast tests, does not wait for it.
$(VENV)/.fast: requirements/fast.lock $(VENV)/.demo
	$(BIN)/python $(LOCKED) --requirement requirements/fast.lock
	$(BIN)/python -m pip check
	@touch $@

$(VENV)/.demo: pyproject.toml requirements/build.lock requirements/demo.lock $(VENV)/.created
	$(BIN)/python $(LOCKED) --requirement requirements/build.lock --requirement requirements/demo.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	$(BIN)/python -m pip check
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "The venv module is missing: install the package python3-venv (Debian, Ubuntu) and run make again."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.nightly: requirements/nightly.lock $(VENV)/.stamp
	$(BIN)/python $(LOCKED) --requirement requirements/nightly.lock
	$(BIN)/python -m pip check
	@touch $@

demo: $(VENV)/.demo ## lost messages found and repaired, everything embedded
	$(BIN)/reconciler demo

STRESS := tests/chaos tests/failover tests/fuzz tests/model tests/simulation
PACKAGED := tests/packages

# CI lands often, and tries other examples of properties each time.
FEWER := $(if $(IN_CI),--hypothesis-profile=fast)

# Three workers on two cores: they also wait, for brokers, grace periods and leases. FAST=elsewhere leaves
# out what `make test-fast` runs on another Python.
test: setup ## everything but test-spark, test-stress and test-nightly; a missing service is skipped on a laptop and fails with CI=true
	$(PYTEST) -n 3 --dist loadgroup -m "not spark and not nightly" $(STRESS:%=--ignore=%) --ignore=$(PACKAGED) $(FEWER) \
		$(FAST:%=--fast=%)

# Tests that hold verdicts, exit codes, states and sends: they pass although each sentence is its code. worded.txt names those
# of them that compare a sentence: one that is new, and fails here for its sentence alone, belongs there.
DECIDING := tests/unit/policy tests/unit/telling \
	$(patsubst %,tests/acceptance/test_%.py,commands exit_codes jobs redis_outage replay_and_sweep service_survives)
test-nightly: coverage test-lowest test-pythons test-lake $(VENV)/.nightly ## what repeats on more brokers, databases and rungs what CI shows; before, these four
	$(BIN)/python -m tests.services.spark_start $(PYTEST) -n 2 --dist loadgroup -m nightly tests
	PYTHONPATH=tests/without_words $(PYTEST) -n 2 --dist loadgroup $(DECIDING) @tests/without_words/worded.txt

# An environment for each, kept until a lock changes.
PYTHONS ?= 3.12 3.13
test-pythons: ## test, test-spark and test-stress on PYTHONS=3.12 3.13, as far as this machine has them
	@for release in $(PYTHONS); do \
		python=$$($(PYTHON) -m tests.services.other_python $$release) || exit 1; \
		test -z "$$python" || $(MAKE) PYTHON=$$python VENV=$(VENV)-$$release test test-spark test-stress || exit 1; \
	done

# Neither format has artifacts for the PySpark of the other locks.
LAKE_BIN := $(VENV)-lake/bin
$(VENV)-lake/.stamp: requirements/lake.lock requirements/build.lock
	$(PYTHON) -m venv --clear $(VENV)-lake
	$(LAKE_BIN)/python $(LOCKED) --requirement requirements/build.lock
	$(LAKE_BIN)/python $(LOCKED) --requirement requirements/lake.lock
	$(LAKE_BIN)/python -m pip check
	@touch $@

test-lake: $(VENV)-lake/.stamp ## the judged tables in Iceberg and Delta tables, on the PySpark that both run on, in an environment of their own
	PYTHONPATH=$(CURDIR):$(CURDIR)/producers:$(CURDIR)/consumers $(LAKE_BIN)/python -m pytest -m nightly tests/lake

coverage: setup ## unit, contract and integration tests, measured: every branch of the policy, 87 % of the product
	$(PYTEST) -n 4 --dist loadgroup -m "not nightly" --cov --cov-report= tests/unit tests/contract tests/integration
	$(BIN)/python tests/coverage_gate.py

test-spark: setup ## the audit on PySpark: planted accidents, faults, a standalone cluster, the demo's last step, a tutorial
	$(BIN)/python -m tests.services.spark_start \
		$(PYTEST) -n 2 --dist loadgroup -m "spark and not nightly" \
		tests/acceptance/test_demo_audit.py tests/acceptance/test_pages.py tests/audit

test-stress: setup ## a short run each of chaos, failover, fuzz and model; simulated histories, planted bugs
	$(PYTEST) -n 2 --dist loadgroup -m "not nightly" $(STRESS) $(FEWER)

test-packages: setup ## deploy/: units, image, compose file and chart, as far as this machine has their programs
	$(PYTEST) -n 2 --dist loadgroup tests/unit/packages $(PACKAGED)

# Three workers on two cores: half of their time is waiting.
test-fast: $(VENV)/.fast ## unit and contract tests in memory; PYTHON and VENV name another Python and its environment
	$(PYTEST) -n 3 --hypothesis-profile=fast --fast=only -m "not nightly" tests/unit tests/contract

# Built from nothing each time. PySpark is left out: the audit's tests here need none. So is hatchling, which builds
# wheels. The folders are those whose product code loads packages.
LOWEST_BIN := $(VENV)-lowest/bin
LOADING := $(addprefix tests/unit/,consumers contract demo history instrumentation ledger metrics packages producers \
	rocketmq service shards sql testing web)
test-lowest: ## fast tests of what loads packages, on the oldest versions that pyproject.toml allows, in an environment of their own
	rm -rf $(VENV)-lowest && $(PYTHON) -m venv $(VENV)-lowest
	$(LOWEST_BIN)/python $(LOCKED) --requirement requirements/lowest.lock
	$(LOWEST_BIN)/python -m pip check
	PYTHONPATH=$(CURDIR):$(CURDIR)/producers:$(CURDIR)/consumers \
	$(LOWEST_BIN)/python -m pytest -n 3 --hypothesis-profile=fast -m "not slow and not redis and not sql and not broker" \
		$(LOADING) tests/audit/test_judge_against_reference.py tests/audit/test_statement_tampering.py \
		--ignore=tests/unit/packages/test_build_hook.py

# Each example stands alone, as its readers have it. Django and Celery have no types of their own.
TYPED := celery_shop fastapi_async fastapi_threads flask_shop
lint: setup ## ruff, mypy --strict also of docs/examples, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for example in $(TYPED); do (cd docs/examples/$$example && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml \
		--cache-dir $(CURDIR)/.mypy_cache --exclude '^migrations/|tasks\.py$$' .) || exit 1; done
	$(BIN)/lint-imports

format: setup ## ruff's formatter and fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

conformance: setup ## the client's suite against BROKER=embedded|all|5.3.3,... (tests/services/rocketmq.py has the versions)
	BROKER=$(BROKER) $(PYTEST) tests/conformance

MINUTES ?= 10
SEED ?= 1
RATE ?= 450
chaos: setup ## kills, lost calls, lost memory, stepped clocks against real services for MINUTES=10; SEED, RATE, BROKER=5.5.0
	$(if $(filter-out embedded,$(BROKER)),BROKER=$(BROKER)) $(BIN)/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED) --rate $(RATE)

FAILOVERS ?= 50
KIND ?= both
failover: setup ## FAILOVERS=50 of KIND=cluster|sentinel|both (real Redis) under load, about 10 s each; SEED
	$(BIN)/python -m tests.failover --failovers $(FAILOVERS) --seed $(SEED) --kind $(KIND)

HISTORIES ?= 1000
MUTANTS ?= 0
simulate: setup ## HISTORIES=1000 from SEED=1 in a simulated world, MUTANTS=1 plants bugs, CONDITIONS=1 tells what they reach; HISTORIES=1 tells the story
	$(BIN)/python -m tests.simulation.run --histories $(HISTORIES) --seed $(SEED) --mutants $(MUTANTS) \
		$(if $(TROUBLES),--troubles '$(TROUBLES)') $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(CONDITIONS),--conditions)

model: setup ## every reachable state of rounds, announcements and repair: no violation; the accident of each lesser design
	$(BIN)/python -m tests.model.whole

mutants: HISTORIES = 200
mutants: setup ## DRAWN=200 changes of the product by lot, tried by the tests of their lines, then by HISTORIES=200; PART=1/4, SEED
	$(BIN)/python -m tests.mutation.run --mutants $(DRAWN) --histories $(HISTORIES) $(if $(PART),--part $(PART)) \
		$(if $(filter command environment,$(origin SEED)),--seed $(SEED))

EXECUTIONS ?= 1000000
fuzz: setup ## EXECUTIONS=1000000 damaged announcements, frames, records, settings, arguments and requests; SEED
	$(BIN)/python -m tests.fuzz --executions $(EXECUTIONS) --seed $(SEED)

MESSAGES_AUDITED ?= 1000000
benchmark-audit: setup ## the audit of a PostgreSQL with MESSAGES_AUDITED=1000000; then against DuckDB and plain Spark SQL at ROWS=1000000,10000000; DATA keeps the histories
	$(BIN)/python -m benchmarks.audit_databases --rows $(MESSAGES_AUDITED) --out benchmarks/results/audit-databases.json
	$(BIN)/python benchmarks/audit.py --rows $(ROWS) $(if $(DATA),--data $(DATA)) --out benchmarks/results/audit.json

load-ids: SECONDS = 600
load-ids: RATE = 5000
load-ids: setup ## SECONDS=600 of RATE=5000 announced and consumed ids a second, one in a thousand lost
	$(BIN)/python -m benchmarks.load.ids --seconds $(SECONDS) --rate $(RATE) --out benchmarks/results/load-ids.json

# For throughput: large batches, few pulls, few shards, no SQLAlchemy. OPTIONS= is the way of the documentation.
OPTIONS ?= --shards 4 --threads 12 --consumer-threads 4 --batch 128 --pull-interval 0.25 --plain-driver
load-sql: SECONDS = 60
load-sql: setup ## the full path with PostgreSQL as fast as it goes, for SECONDS=60; OPTIONS= without what makes it fast
	$(BIN)/python -m benchmarks.load.sql --seconds $(SECONDS) $(OPTIONS) --out benchmarks/results/load-sql.json

load-many: SUBSCRIPTIONS = 5 50
load-many: RATE = 0
load-many: setup ## subscriptions at rest, SUBSCRIPTIONS='5 50', some minutes each: what nothing costs; RATE=1: ids per second of each; QUERIES=1: proved by queries
	$(BIN)/python -m benchmarks.load.many --subscriptions $(SUBSCRIPTIONS) --rate $(RATE) $(if $(QUERIES),--queries) \
		--out benchmarks/results/load-many$(if $(filter-out 0,$(RATE)),-ids)$(if $(QUERIES),-queries).json

load-dead: setup ## producers that die between commit and END, default settings: seconds from commit to effect
	$(BIN)/python -m benchmarks.load.dead --out benchmarks/results/load-dead.json

LOSSES ?= 100000
load-losses: BROKER = 5.3.3
load-losses: setup ## LOSSES=100000 committed by a producer that is dead, at BROKER=5.3.3 or embedded: breaker, then all repaired once
	$(BIN)/python -m benchmarks.load.losses --losses $(LOSSES) --broker $(BROKER) --out benchmarks/results/load-losses.json

IDS ?= 10000000
load-lag: SECONDS = 0
load-lag: BROKER = 5.3.3
load-lag: setup ## a group that stops while IDS=10000000 are announced; BROKER=5.3.3, embedded up to 2 million; SECONDS at least
	$(BIN)/python -m benchmarks.load.lag --ids $(IDS) --seconds $(SECONDS) --broker $(BROKER) \
		--out benchmarks/results/load-lag.json

screenshots: setup ## every page of the console in build/screenshots, two languages, light and dark, three widths; SHOTS='--page losses'
	$(BIN)/python -m tests.console.screenshots --folder build/screenshots $(SHOTS)

.PHONY: pictures
pictures: setup ## draws docs/explanation/pictures and takes the pictures of console and report that pages show
	$(BIN)/python -m docs.drawing
	$(BIN)/python -m tests.console.shown_pictures

docs: setup ## writes docs/reference and the dashboard from the code; lists Chinese pages that are behind
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/translation.py

site: setup ## the pages of docs as a site in build/site, which needs no network; a broken link or anchor fails it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# What only a release and new locks need has an environment of its own.
TOOLS := build/tools
$(TOOLS)/.stamp: requirements/tools.lock
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python $(LOCKED) --requirement requirements/tools.lock
	$(TOOLS)/bin/python -m pip check
	@touch $@

release: setup $(TOOLS)/.stamp ## dist/: sdist and wheel of this commit, checked, and the bill of materials; CONTRIBUTING.md tells the rest
	$(BIN)/python -m deploy.release_check
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build --directory dist --target sdist --target wheel
	unzip -jq dist/*.whl '*.dist-info/sboms/*' -d dist
	$(TOOLS)/bin/twine check --strict dist/*.tar.gz dist/*.whl
	cd dist && sha256sum -- *

EXTRAS := daemon demo audit postgres mysql compression metrics web otel
# What the image and the packages install: all but the demo and PySpark, for which `audit --engine here` stands in.
SERVED := daemon audit postgres mysql compression metrics web otel
LOWEST := --resolution lowest-direct --no-emit-package pyspark --no-emit-package py4j
LOCK := $(TOOLS)/bin/uv pip compile --quiet --generate-hashes --no-annotate --custom-compile-command 'make lock' $(UPGRADE) \
	--universal --python-version 3.11
# One version of each package: what is installed beside ci.lock, or before it, is not installed again.
SAME := --constraint requirements/ci.lock
lock: $(TOOLS)/.stamp ## requirements/*.lock from pyproject.toml; UPGRADE=--upgrade takes the newest of everything
	$(LOCK) pyproject.toml $(EXTRAS:%=--extra %) --group dev -o requirements/ci.lock
	$(LOCK) $(SAME) --group build -o requirements/build.lock
	$(LOCK) $(SAME) pyproject.toml --extra demo -o requirements/demo.lock
	$(LOCK) $(SAME) --no-emit-package pyspark --no-emit-package py4j pyproject.toml $(SERVED:%=--extra %) \
		-o requirements/service.lock
	$(LOCK) $(SAME) --no-emit-package pyspark --no-emit-package py4j pyproject.toml $(EXTRAS:%=--extra %) --group test \
		-o requirements/fast.lock
	$(LOCK) $(LOWEST) pyproject.toml $(EXTRAS:%=--extra %) --group test -o requirements/lowest.lock
	$(LOCK) pyproject.toml $(EXTRAS:%=--extra %) --group test --group lake -o requirements/lake.lock
	$(LOCK) --group tools -o requirements/tools.lock
	$(LOCK) $(SAME) --group nightly -o requirements/nightly.lock

clean: ## removes the virtual environment, what was built, and caches
	rm -rf dist build $(VENV) $(VENV)-lowest $(VENV)-lake $(PYTHONS:%=$(VENV)-%) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
