# Every target makes its own environment. It needs only Python 3.11+, make and, for Spark, Java 17 or 21.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

SECONDS ?=
RATE    ?=
SOURCE  ?=
DEMO_FLAGS = $(if $(SECONDS),--seconds $(SECONDS)) $(if $(RATE),--rate $(RATE)) $(if $(SOURCE),--source $(SOURCE)) $(ARGS)

.PHONY: help demo install test hashes audit compose-test cluster-test faults check docs format soak bench bench-install engines screenshots clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: supported-demo $(STAMP) ## run the whole stack (SECONDS=60 RATE=500 SOURCE=replay:FILE ARGS=…)
	@$(BIN)/python -m demo $(DEMO_FLAGS)

# Before anything is installed: where there can be no MongoDB, one sentence says what to do.
supported-%:
	@$(PYTHON) -m demo.supported $*

install: $(STAMP) ## make the environment in .venv

$(STAMP): pyproject.toml constraints.txt
	@echo "making the environment in $(VENV), which takes some minutes" >&2
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
		VIRTUAL_ENV=$(VENV) uv pip install --quiet --compile-bytecode --constraint constraints.txt --editable '.[dev]'; \
	else \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'; \
	fi
	@$(BIN)/python -m spark prepare || echo "without the archive of Java's classes, Spark starts in twice the time" >&2
	@touch $@

test: supported-test $(STAMP) ## run the tests (ARGS='-k name')
	@$(BIN)/python -m pytest $(ARGS)

compose-test: $(STAMP) ## build the images, start the stack in containers, kill some, see that nothing is lost (needs Docker)
	@TWEETWIRE_COMPOSE_TEST=1 $(BIN)/python -m pytest -n 0 -s tests/deploy/test_stack.py $(ARGS)

cluster-test: $(STAMP) ## start a Spark master and two workers, and compare what the jobs compute there (a minute or two)
	@TWEETWIRE_CLUSTER_TEST=1 $(BIN)/python -m pytest -n 0 tests/spark/test_cluster.py $(ARGS)

faults: $(STAMP) ## power cuts, damage, failing disks, kills; ten minutes of attacks; long kill tests of all programs (ARGS='--cycles 500')
	@$(BIN)/python -m tests.faults $(ARGS)
	@$(BIN)/python -m tests.hostile --time 10m
	@TWEETWIRE_FAULT_ROUNDS=300 TWEETWIRE_HANDSHAKE_ROUNDS=200 TWEETWIRE_TEST_OUTAGE=30 TWEETWIRE_TEST_KILLS=10 \
		TWEETWIRE_TEST_NACKS=1000000 TWEETWIRE_TEST_STOPS=50 TWEETWIRE_TEST_ADMIN_KILLS=300 TWEETWIRE_TEST_BRIDGE_KILLS=200 \
		TWEETWIRE_TEST_TIER_KILLS=500 TWEETWIRE_TEST_TIER_STEPS=60 \
		$(BIN)/python -m pytest -n 0 --timeout 1800 tests/faults/test_growth.py tests/faults/test_administering.py \
		tests/bridge/test_kills_jetstream.py \
		tests/tweetwire/client/exactly_once/test_exactly_once.py tests/change_stream/test_exactly_once.py \
		tests/sse_ingest/test_outage.py tests/spark/test_program.py tests/spark/test_stops.py tests/bridge/test_kills.py \
		tests/broker/tiers/test_kills.py tests/broker/tiers/test_steps.py

check: $(STAMP) ## lint, format, types, imports between packages, plain English
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.english

docs: $(STAMP) ## build the documentation in site/, where every link must lead somewhere
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "open site/index.html"

format: $(STAMP) ## rewrite the code in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

soak: $(STAMP) ## clients that misbehave for ten minutes; nothing may be lost (ARGS='--duration 2m')
	@$(BIN)/python -m bench.soak $(ARGS)

# The versions that the tests and the documentation name. Debian's NATS is older and has no atomic batches; versitygw speaks S3.
NATS_SERVER := v2.15.3
VERSITYGW := v1.8.0
KAFKA := 4.4.0
# The newest release of Spark's source for Kafka that Maven has. It works with PySpark 4.3.
SPARK_KAFKA := 4.2.0
# Debian's Go is too old for these servers. Go's own packages are installed here.
GO ?= $(or $(wildcard /usr/local/go/bin/go),go)
TWEETWIRE_ENGINES ?= $(HOME)/.cache/tweetwire/engines
# A failed download is tried again, after these pauses in seconds.
PAUSES := 5 20 0
KAFKA_JARS := $(TWEETWIRE_ENGINES)/kafka-$(KAFKA)
SPARK_KAFKA_JARS := $(TWEETWIRE_ENGINES)/spark-kafka-$(SPARK_KAFKA)

# The arguments are the program, its package, and its version.
define install_engine
	@if ! [ "$$($(GO) version -m $(TWEETWIRE_ENGINES)/bin/$(1) 2>/dev/null | awk '$$1 == "mod" { print $$3 }')" = "$(3)" ]; then \
		for pause in $(PAUSES); do \
			GOBIN=$(TWEETWIRE_ENGINES)/bin $(GO) install $(2)@$(3) && exit 0; sleep $$pause; \
		done; exit 1; \
	fi
endef

engines: $(KAFKA_JARS) $(SPARK_KAFKA_JARS) ## install the engines that the tests need, in ~/.cache (needs Go and Maven)
	$(call install_engine,nats-server,github.com/nats-io/nats-server/v2,$(NATS_SERVER))
	$(call install_engine,versitygw,github.com/versity/versitygw/cmd/versitygw,$(VERSITYGW))

# The jars of a version; their folder gets its name once it is complete.
copy_jars = command -v mvn >/dev/null || { echo "make engines: Kafka needs Maven: apt-get install maven"; exit 1; }; \
	for pause in $(PAUSES); do \
		rm -rf $@.part; \
		mvn --batch-mode --quiet --file tests/support/engines/$(1).xml dependency:copy-dependencies \
			-Dengine.version=$(2) -DincludeScope=runtime -DoutputDirectory=$@.part && mv $@.part $@ && exit 0; \
		sleep $$pause; \
	done; exit 1

$(KAFKA_JARS):
	@$(call copy_jars,kafka,$(KAFKA))

$(SPARK_KAFKA_JARS):
	@$(call copy_jars,spark-kafka,$(SPARK_KAFKA))

bench-install: ## install the brokers that the benchmark compares with (Debian, needs root)
	apt-get install -y --no-install-recommends nats-server redis-server rabbitmq-server mosquitto

bench: $(STAMP) ## measure the broker and the pipeline, beside their peers, in less than 20 minutes (ARGS='--only B1 --rounds 3')
	@$(BIN)/python -m bench $(ARGS)

screenshots: $(STAMP) ## run a demo and take the README's pictures of the dashboard (needs Chromium)
	@$(BIN)/python -m tests.dashboard.screenshots

# The images install these files' versions and nothing else; `build` is what their wheels are built with.
COMPILE = $(BIN)/uv pip compile --quiet --python-version 3.11 --python-platform linux --constraint constraints.txt \
	--generate-hashes --no-header --no-annotate --no-emit-index-url

hashes: $(STAMP) ## write deploy/hashes again: the packages that the images install, with the hash of each file
	@printf 'cyclonedx-bom\nhatchling\npip\nsetuptools\nwheel\n' | $(COMPILE) --output-file deploy/hashes/build.txt -
	@$(COMPILE) --extra broker --extra tiers --extra bridge --extra ingest --extra mongo --extra mock --extra dashboard --output-file deploy/hashes/services.txt pyproject.toml
	@$(COMPILE) --extra spark --extra backfill --output-file deploy/hashes/spark.txt pyproject.toml

audit: $(STAMP) ## look for known vulnerabilities of the images' packages, if the service that lists them can be reached
	@$(BIN)/python deploy/audit.py deploy/hashes/services.txt deploy/hashes/spark.txt

clean: ## remove the environment and everything that was made
	rm -rf $(VENV) data site bench/results .mypy_cache .ruff_cache .pytest_cache .hypothesis
