# Needs python3 (3.11 or newer) and make, nothing else; `make postman` also npm. Everything lands in this folder.

PYTHON ?= python3
UV ?= uv
PYTEST_ARGS ?=
UPGRADE ?=
# One more than there are processors: every fourth test waits for a process or a server that it has started.
TESTERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')
SEEDS ?=
FROM ?= 0
CORPUS ?=
ITERATIONS ?=
ROWS ?=
ENGINE ?=
MERGE_ON_READ ?=
PUBLISH ?=
TABLES ?=

VENV := .venv
SAM := .sam
# No telemetry, no account, nothing in the user's home.
SAM_ENVIRONMENT := SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=eu-central-1 __SAM_CLI_APP_DIR=$(SAM)/home
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --retries 10 --timeout 60
# The lists are complete, so pip has nothing to resolve (--no-deps); `pip check` proves it afterwards. What comes as
# source is built by the pinned setuptools of build.txt, not by one that pip would fetch unhashed. Byte code is made in
# parallel, and only of what a command loads: where Python may not write it, each start would compile for five seconds.
LOADED := aws_lambda_powertools boto3 botocore click duckdb fsspec pyarrow pydantic pyiceberg rich sqlalchemy uvicorn
INSTALL := $(PIP) install --quiet --no-deps --no-build-isolation --no-compile --use-pep517
# An older pip gives up on a download that breaks off halfway; what has arrived is in its cache.
thrice = for try in 1 2 3; do $(1) && exit 0; echo "try $$try of 3 failed" >&2; done; exit 1
COMPILE := $(UV) --no-config pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --no-header
CUT := $(COMPILE) --generate-hashes --constraints requirements/constraints.txt

# Containers like to forbid byte code: then each of the hundreds of processes that the tests start compiles everything.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install setup-spark setup-mcp setup-peers demo demo-spark serve notebook lint test test-spark test-catalogs test-airflow test-mcp test-rie postman validate sim sim-mutations fleet-sim test-concurrency fuzz-filters fuzz-splice corpus lost-delete attack bench bench-spark bench-peers study dist golden index requirements clean

##@ Start

help: ## list these targets
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-18s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## make .venv from the pinned, hashed lists

$(VENV)/.requirements: requirements/build.txt requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python %d.%d is too old: make PYTHON=python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv --clear $(VENV)
	@$(call thrice,$(INSTALL) --require-hashes -r requirements/build.txt)
	@echo "installing requirements/dev.txt (a minute or so)"
	@$(call thrice,$(INSTALL) --require-hashes -r requirements/dev.txt)
	@touch $@

$(VENV)/.installed: $(VENV)/.requirements pyproject.toml
	$(INSTALL) --editable .
	$(PIP) check
	@$(BIN)/python -m compileall -q -j 0 src
	@cd $(VENV)/lib/python3*/site-packages && $(CURDIR)/$(BIN)/python -m compileall -q -j 0 $(LOADED)
	@touch $@

setup-spark: $(VENV)/.spark ## add Spark and a Java of its own to .venv (300 MB)

$(VENV)/.spark: $(VENV)/.installed requirements/spark.txt
	@echo "installing requirements/spark.txt (a minute or so)"
	@$(call thrice,$(INSTALL) --require-hashes -r requirements/spark.txt)
	@touch $@

setup-mcp: $(VENV)/.mcp ## add the SDK of the Model Context Protocol to .venv, for `regelate mcp`

$(VENV)/.mcp: $(VENV)/.installed requirements/mcp.txt
	@$(call thrice,$(INSTALL) --require-hashes -r requirements/mcp.txt)
	@touch $@

setup-peers: $(VENV)/.peers ## add Polars to .venv, for `make bench-peers` alone

$(VENV)/.peers: $(VENV)/.installed requirements/peers.txt
	@$(call thrice,$(INSTALL) --require-hashes -r requirements/peers.txt)
	@touch $@

demo: install ## heal a table of real flights before your eyes
	$(BIN)/regelate demo

demo-spark: setup-spark ## the same on Spark: small files made by micro-batches, shown, healed and proven (no Java needed)
	$(BIN)/regelate demo-spark --jars $(CURDIR)/.servers/ivy

serve: install ## the API on localhost
	$(BIN)/regelate serve

notebook: setup-spark ## execute notebooks/file_compaction.ipynb and keep its outputs
	$(BIN)/python notebooks/execute.py

##@ Test

lint: install ## ruff, mypy --strict on src, and the floors (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: install ## run the tests, all but the slow ones and those on Spark
	$(BIN)/python -m pytest -n $(TESTERS) -m "not slow and not spark and not rie and not catalogs and not airflow and not mcp" $(PYTEST_ARGS)

test-spark: setup-spark ## run the tests on Spark, in one session (a Java comes with setup-spark)
	$(BIN)/python -m pytest tests/pipeline -m spark $(PYTEST_ARGS)

test-catalogs: setup-spark ## both engines on real servers: Iceberg's REST catalog, Nessie (a JDK and mvn), Glue by moto
	$(BIN)/python -m pytest tests/catalogs -m catalogs $(PYTEST_ARGS)

test-airflow: setup-spark .airflow/.installed ## run both DAGs by Airflow itself (700 MB, in an environment of its own)
	$(BIN)/python -m pytest tests/airflow -m airflow $(PYTEST_ARGS)

# Airflow pins what we pin otherwise, so it has an environment of its own; nothing of ours is in it.
.airflow/.installed: requirements/airflow.txt
	$(PYTHON) -m venv --clear .airflow
	@echo "installing requirements/airflow.txt (two minutes or so)"
	@$(call thrice,.airflow/bin/python -m pip --disable-pip-version-check --retries 10 --timeout 60 install --quiet --no-deps --no-compile --require-hashes -r requirements/airflow.txt)
	@touch $@

test-mcp: setup-mcp ## the tools for AI assistants, by a real client of the Model Context Protocol
	$(BIN)/python -m pytest tests/entrypoints/test_mcp_client.py -m mcp $(PYTEST_ARGS)

test-rie: install $(SAM)/.installed ## every file of events/ through the real Lambda emulator
	$(BIN)/python -m pytest tests/entrypoints/test_rie.py $(PYTEST_ARGS)

postman: install postman/node_modules/.installed ## the Postman collection, by newman against a server of its own (needs npm)
	$(BIN)/python postman/run.py

postman/node_modules/.installed: postman/package.json postman/package-lock.json
	@command -v npm > /dev/null || { echo "npm is missing: install Node.js 18 or newer" >&2; exit 1; }
	@cd postman && $(call thrice,npm ci)
	@touch $@

validate: install $(SAM)/.installed ## template.yaml and the CronJob: sam validate, its linter, schemas, our own tests
	$(SAM_ENVIRONMENT) $(SAM)/bin/sam validate --template template.yaml
	$(SAM_ENVIRONMENT) $(SAM)/bin/sam validate --template template.yaml --lint
	$(SAM)/bin/kubernetes-validate -k 1.34 --strict integrations/kubernetes/cronjob.yaml
	$(BIN)/python -m pytest tests/deploy

# An environment of its own: it pins what we pin otherwise, and nothing of ours needs it.
$(SAM)/.installed: requirements/sam.txt
	$(PYTHON) -m venv --clear $(SAM)
	@echo "installing requirements/sam.txt (a minute or so)"
	@$(call thrice,$(SAM)/bin/python -m pip --disable-pip-version-check --retries 10 --timeout 60 install --quiet --no-deps --no-compile --require-hashes -r requirements/sam.txt)
	@touch $@

##@ Prove

sim: install ## simulate writers, faults and crashes (SEEDS=300 FROM=0), a law checked at every commit
	$(BIN)/python -m tests.system.simulation --from $(FROM) --seeds $(or $(SEEDS),300)

sim-mutations: install ## undo each law in turn, and say after how many seeds the simulator notices
	$(BIN)/python -m tests.system.simulation --mutations --seeds $(or $(SEEDS),1000)

fleet-sim: install ## 10,000 tables of 50 tenants for 30 days: budgets, turns and files per dollar beside other rules (TABLES=10000)
	$(BIN)/python -m tests.system.fleet $(if $(TABLES),--tables $(TABLES)) --write benchmarks/results/fleet_sim.md

test-concurrency: install ## up to 20 processes on SQLite and on Iceberg's REST catalog (needs a JDK and mvn)
	$(BIN)/python -m tests.system.concurrency

fuzz-filters: setup-spark ## hold random filters of QUERY against Spark's WHERE: ROUNDS=20 of 160 each, from SEED=1 on
	FUZZ_ROUNDS=$(or $(ROUNDS),20) FUZZ_SEED=$(or $(SEED),1) $(BIN)/python -m pytest tests/pipeline/test_filters.py -m spark $(PYTEST_ARGS)

fuzz-splice: install ## mutated Parquet files through the splicing of row groups: COUNT=100000 from SEED=1
	$(BIN)/python -m tests.adapters.mutated_files $(or $(COUNT),100000) $(or $(SEED),1)

corpus: setup-spark ## fifty odd tables by Spark and Iceberg's writers: compacted, maintained, read by Spark again (CORPUS=name for one)
	$(BIN)/python -m tests.external $(CORPUS)

lost-delete: setup-spark ## rows deleted during a rewrite come back with Iceberg's RewriteFiles, not with COMPACT: both, side by side
	$(BIN)/python -m tests.spark.lost_delete

attack: install ## 1,215 hostile requests against a server and a handler of its own; how others fare meanwhile
	$(BIN)/python -m tests.system.attack --write benchmarks/results/attack.md

##@ Measure

bench: install ## measure; the figures land in benchmarks/results
	$(BIN)/python -m benchmarks

bench-spark: setup-spark ## COMPACT beside Spark, PyIceberg and a bare COPY (half an hour); into docs/spark.md too
	$(BIN)/python -m benchmarks --runs 3 spark_large spark_many spark_deletes

bench-peers: setup-spark setup-peers ## COMPACT beside a bare COPY, PyIceberg, Polars and Spark, eight kinds of tables (an hour); into docs/performance.md too
	$(BIN)/python -m benchmarks peers

study: setup-spark ## 200 small merges under six ways to compact (ITERATIONS=20 ROWS=100000 ENGINE=spark MERGE_ON_READ=1 PUBLISH=1)
	$(BIN)/python -m studies.small_files --jars .servers/ivy $(if $(ITERATIONS),--iterations $(ITERATIONS)) $(if $(ROWS),--rows $(ROWS)) \
		$(if $(ENGINE),--engine $(ENGINE)) $(if $(MERGE_ON_READ),--merge-on-read) $(if $(PUBLISH),--publish)

##@ Build

dist: install ## build wheel and sdist, and try both in clean environments
	$(BIN)/python -m tests.deploy.dist

golden: install ## rewrite the golden answers; read the diff afterwards
	$(BIN)/python -m pytest tests/unit/golden --rewrite-golden

index: install ## write the tables of docs/reliability.md that say which test shows what
	$(BIN)/python -m tests.index

# constraints.txt is the one resolution and every list but those of sam, airflow, nessie and peers is cut from it: any two can be installed side by side.
requirements: ## regenerate requirements/*.txt with uv (UPGRADE=--upgrade takes newer versions)
	$(COMPILE) $(UPGRADE) --no-annotate --all-extras pyproject.toml requirements/build.in -o requirements/constraints.txt
	$(CUT) requirements/build.in -o requirements/build.txt
	$(CUT) pyproject.toml -o requirements/base.txt
	$(CUT) pyproject.toml --extra aws --extra dev --extra demo --extra otel --extra report -o requirements/dev.txt
	$(CUT) pyproject.toml --extra aws -o requirements/aws.txt
	$(CUT) pyproject.toml --extra aws --extra otel -o requirements/otel.txt
	$(CUT) pyproject.toml --extra mcp -o requirements/mcp.txt
	$(CUT) pyproject.toml --extra spark --extra notebook -o requirements/spark.txt
	$(COMPILE) --generate-hashes $(UPGRADE) requirements/sam.in -o requirements/sam.txt
	$(COMPILE) --generate-hashes $(UPGRADE) requirements/airflow.in -o requirements/airflow.txt
	$(COMPILE) --generate-hashes $(UPGRADE) requirements/nessie.in -o requirements/nessie.txt
	$(COMPILE) --generate-hashes $(UPGRADE) requirements/peers.in -o requirements/peers.txt

clean: ## remove the environment, builds and caches
	rm -rf $(VENV) $(SAM) .airflow .aws-sam postman/node_modules build dist src/regelate.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
