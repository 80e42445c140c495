# SPDX-License-Identifier: Apache-2.0
# `sudo make run` and `sudo make test` do all set-up on a bare Debian 12 or 13; `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON := /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

# What has to be there to build and run, and on top of it what the tests run pipelines with.
PACKAGES := ca-certificates clang gcc libbpf-dev libbpf1 libc6-dev linux-libc-dev llvm make \
	python3 python3-venv
TEST_PACKAGES := bc bindfs btrfs-progs busybox-static chromium dash curl debian-archive-keyring e2fsprogs fish \
	fonts-dejavu-core gawk git gzip jq lintian mawk mmdebstrap nodejs openssl perl-base procps python3-bpfcc ruby \
	slowhttptest sqlite3 strace systemd time util-linux xfsprogs xz-utils zsh
ADVICE_PACKAGES := locales parallel pigz
SCHEDULER_PACKAGES := ninja-build
IMAGE_PACKAGES := buildah debootstrap
IMAGE_TEST_PACKAGES := podman runc util-linux
RELEASE_PACKAGES := apt-utils dpkg-dev git gnupg libc6-dev-$(if $(filter x86_64,$(shell uname -m)),arm64,amd64)-cross rpm
RELEASE_TEST_PACKAGES := debian-archive-keyring mmdebstrap qemu-user-static rpmlint util-linux
RUNTIME_PACKAGES := containerd debootstrap iproute2 jq openssl podman runc systemd-container uidmap

MACHINE := $(shell uname -m)
BPF_ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(MACHINE)))
CLANG ?= clang
LLVM_STRIP ?= llvm-strip
# BTF names source files: without the folder of the checkout, which would differ from build to build.
BPF_CFLAGS := -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) -Wall -Werror -fdebug-prefix-map=$(CURDIR)=. \
	-Ibpf -idirafter $(firstword $(wildcard /usr/include/$(MACHINE)-linux-gnu /usr/$(MACHINE)-linux-gnu/include))
BPF_OBJECT := daemon/pipelined/bpf/pipelined.bpf.o

PROGRAM_SOURCES := $(wildcard tests/kernel/programs/*.c)
PROGRAMS := $(patsubst tests/kernel/programs/%.c,tests/kernel/programs/build/%,$(PROGRAM_SOURCES))
PROGRAM_CFLAGS := -g -O2 -Wall -Wextra -Werror -pthread

INSTALLED := $(VENV)/installed

VM_PACKAGES := busybox-static debian-archive-keyring debootstrap e2fsprogs gcc-aarch64-linux-gnu kmod \
	libc6-dev-arm64-cross python3-venv qemu-system-arm qemu-system-x86 xz-utils
VNG := build/vm/venv/bin/vng

# promtool and prometheus: the host's, else unpacked here, because the package starts a service. Prometheus 3 and VictoriaMetrics,
# as new as fleets have them: those of Debian's next release, unpacked too.
TOOLS := build/tools
NEXT := $(TOOLS)/next
LISTER := $(TOOLS)/lister
ANSIBLE_LINT := $(TOOLS)/ansible-lint
UNPACKED := $(if $(and $(shell command -v promtool),$(shell command -v prometheus)),,$(TOOLS)/unpacked)
export PATH := $(PATH):$(CURDIR)/$(TOOLS)/usr/bin

APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 \
	-o DPkg::Lock::Timeout=120

# Files made under sudo go to the owner of the checkout, so that `make` works without sudo later. In build/vm are whole Debian
# systems, whose files are root's (`sudo make clean` removes them). A file that another make removes meanwhile is no error.
define give_back
	@if [ "$$(id -u)" = 0 ] && [ "$$(stat -c %u Makefile)" != 0 ]; then \
		find . \( -path ./.git -o -path ./build/vm \) -prune -o -uid 0 -exec chown -h --reference=Makefile {} + || true; \
	fi
endef

# $(call need,PACKAGES): install those that are missing; say what to type when not root.
define need
	@if command -v dpkg-query >/dev/null; then \
		missing=""; \
		for package in $(1); do \
			state=$$(dpkg-query -W -f '$${db:Status-Status}' "$$package" 2>/dev/null || true); \
			[ "$$state" = installed ] || missing="$$missing $$package"; \
		done; \
		if [ -n "$$missing" ] && [ "$$(id -u)" != 0 ]; then \
			echo "missing packages; run: sudo apt-get install$$missing" >&2; exit 1; \
		elif [ -n "$$missing" ]; then \
			echo "installing$$missing"; \
			$(APT) update; \
			$(APT) install -y --no-install-recommends $$missing >/dev/null; \
		fi; \
	fi
endef

.PHONY: FORCE help setup program test-setup packages test-packages bpf programs run check test test-vm mutants lint format demo bench soak faults advice experiments dashboards recordings api wheel deb rpm release release-tools chart chart-tools test-chart test-ansible test-release image test-image test-containers test-deploy test-hosts test-kernels test-service test-traces vm-packages clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

run: program ## Start the daemon in the foreground (sudo make run ARGS='--web.listen-address :9905')
	@exec $(BIN)/pipelined serve $(ARGS)

check: setup lint ## Check style, types and layers, and run the tests that need no root (ARGS='-k sort')
	$(BIN)/pytest -W error --numprocesses auto -m 'not slow' $(ARGS) tests/unit
	$(give_back)

# Unit tests share nothing, so each processor runs some. The others measure time: one after the other. Where ARGS selects
# none of one part (status 5), the other part decides.
test: test-setup lint ## Check style and types, then run unit, kernel and e2e tests (sudo make test ARGS='-k shapes')
	@units=0; others=0; \
	$(BIN)/pytest -W error --numprocesses auto $(ARGS) tests/unit || units=$$?; \
	$(BIN)/pytest -W error $(ARGS) tests/kernel tests/e2e || others=$$?; \
	if [ $$units != 0 ] && [ $$units != 5 ]; then echo "unit tests failed, see above"; exit $$units; fi; \
	if [ $$others = 5 ]; then exit $$units; fi; \
	exit $$others
	$(give_back)

mutants: setup ## Change the code in one place at a time; fail if unit tests miss more than 10 % (ARGS='--sample 600')
	PYTHONPATH=tests $(BIN)/python -m mutation.run $(ARGS)
	$(give_back)

lint: $(INSTALLED) ## Check style, types and layers
	$(BIN)/ruff format --check daemon tests dashboards deploy
	$(BIN)/ruff check daemon tests dashboards deploy
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports --no-cache
	$(give_back)

format: $(INSTALLED) ## Put the source into the agreed format
	$(BIN)/ruff format daemon tests dashboards deploy
	$(BIN)/ruff check --fix daemon tests dashboards deploy

demo: program ## Run three pipelines over a made-up file; print their reports and metrics
	@deploy/demo.sh

vm-packages:
	$(call need,$(VM_PACKAGES))

test-vm: test-setup vm-packages ## Run kernel tests on stock Debian kernels, emulated (ARGS='--kernel trixie')
	@test -x $(VNG) || { python3 -m venv $(dir $(VNG)).. && \
		$(dir $(VNG))pip --disable-pip-version-check --quiet install 'virtme-ng>=1.42,<2'; }
	$(BIN)/python tests/vm/matrix.py --vng $(VNG) $(ARGS)
	$(give_back)

test-service: test-setup deb vm-packages ## Install the package in a virtual machine with systemd and try the service
	$(BIN)/python tests/vm/systemd.py --package "$$(ls -t build/deb/pipelined_*.deb | head -n 1)" $(ARGS)
	$(give_back)

test-ansible: test-setup deb ## Lint the Ansible role, and apply it in a virtual machine with systemd
	$(call need,$(VM_PACKAGES) apt-utils gnupg)
	@test -e $(ANSIBLE_LINT)/installed || { $(PYTHON) -m venv --clear $(ANSIBLE_LINT) && $(ANSIBLE_LINT)/bin/pip \
		--disable-pip-version-check --quiet install 'ansible-core>=2.19,<2.20' 'ansible-lint>=26,<27' && \
		touch $(ANSIBLE_LINT)/installed; }
	cd deploy/ansible && PATH=$(CURDIR)/$(ANSIBLE_LINT)/bin:$$PATH ansible-lint --offline --profile production roles
	$(BIN)/python tests/vm/ansible_role.py --package "$$(ls -t build/deb/pipelined_*.deb | head -n 1)" $(ARGS)
	$(give_back)

test-hosts: test-setup deb ## Run pipelines by real schedulers, on this host and in a virtual machine (ARGS='--only drivers')
	$(call need,$(VM_PACKAGES) $(SCHEDULER_PACKAGES))
	$(BIN)/python tests/hosts/schedulers.py $(ARGS)
	$(give_back)

test-kernels: test-setup deb ## Run the package on Debian's other kernels and on arm64, emulated (ARGS='--only arm64-trixie')
	$(call need,$(VM_PACKAGES))
	$(BIN)/python tests/vm/kernels.py --package "$$(ls -t build/deb/pipelined_*.deb | head -n 1)" $(ARGS)
	$(give_back)

bench: test-setup ## Measure what observation costs, on and off in turn
	@tests/bench/run.sh $(ARGS)

soak: test-setup ## Run a made-up night with its faults in two hours; fail if anything grows or is lost (ARGS='--minutes 12')
	@tests/soak/run.sh $(ARGS)
	$(give_back)

faults: test-setup ## Kill the writer of a history 300 times under load, fill its disk, hold its log; fail if a file is damaged
	PYTHONPATH=tests $(BIN)/python -m soak.history_faults $(ARGS)
	$(give_back)

advice: test-setup ## Follow the advice of every kind of finding and see what it gains (ARGS='--only barrier')
	$(call need,$(ADVICE_PACKAGES))
	PYTHONPATH=tests $(BIN)/python -m advice.follow $(ARGS)
	$(give_back)

experiments: test-setup ## Run the five experiments of docs/EXPERIMENTS.md and print their tables
	$(BIN)/pytest -W error -s $(ARGS) tests/experiments
	$(give_back)

# The time of the last commit: the same source gives the same bytes.
wheel deb rpm: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git -c safe.directory='*' log -1 \
	--format=%ct 2>/dev/null || date +%s))

wheel: program ## Build the wheel, with the BPF object, into build/wheel
	$(BIN)/python deploy/wheel.py build/wheel $(MACHINE)
	$(give_back)

deb: wheel ## Build the Debian package into build/deb
	$(BIN)/python deploy/debian/build.py build/wheel/*.whl build/deb
	$(give_back)

rpm: deb ## Build the RPM, with the files of the Debian package, into build/rpm
	$(call need,rpm)
	$(BIN)/python deploy/rpm/build.py build/deb/*.deb build/rpm
	$(give_back)

chart: $(INSTALLED) ## Make the Helm chart of deploy/kubernetes into build/helm
	$(BIN)/python deploy/helm/build.py build/helm
	$(give_back)

test-chart: chart-tools ## Render the chart with Helm, and compare it with what kustomize makes (needs Go)
	$(BIN)/pytest -W error $(ARGS) tests/release/test_chart.py
	$(give_back)

release: release-tools ## Build all packages from the tag that is checked out (ARGS='--key 0123456789ABCDEF')
	$(call need,$(IMAGE_PACKAGES))
	PATH=$(CURDIR)/$(LISTER)/bin:$$PATH $(BIN)/python deploy/release/build.py $(ARGS)
	$(give_back)

test-release: test-setup release-tools chart-tools ## Make a release twice, compare the bytes, and install it with apt and rpm (ARGS='-k apt')
	$(call need,$(RELEASE_TEST_PACKAGES))
	PATH=$(CURDIR)/$(LISTER)/bin:$$PATH $(BIN)/pytest -W error $(ARGS) tests/release
	$(give_back)

chart-tools: $(INSTALLED)
	@tests/deploy/tools.sh helm
	$(BIN)/python -m pip --disable-pip-version-check --quiet install --editable '.[deploy]'

release-tools: program $(LISTER)/installed
	$(call need,$(RELEASE_PACKAGES))

$(LISTER)/installed: deploy/release/requirements.txt | packages
	@$(PYTHON) -m venv --clear $(LISTER)
	@$(LISTER)/bin/pip --disable-pip-version-check --quiet install --require-hashes --requirement $<
	@touch $@

image: ## Build the container image with buildah (needs root, no engine)
	$(call need,$(IMAGE_PACKAGES))
	@deploy/container/build.sh

test-image: test-setup image ## Build the image and run it with Podman as docs/CONTAINER.md says
	$(call need,$(IMAGE_TEST_PACKAGES))
	$(BIN)/pytest -W error $(ARGS) tests/container

test-containers: test-setup ## Run pipelines in real containers: Docker, Podman, containerd, systemd-nspawn, Kubernetes (ARGS='--only podman')
	$(call need,$(RUNTIME_PACKAGES))
	$(BIN)/python tests/hosts/containers.py $(ARGS)
	$(give_back)

test-deploy: $(INSTALLED) ## Hold Kubernetes and compose files against published schemas (needs Go)
	@tests/deploy/tools.sh
	$(BIN)/python -m pip --disable-pip-version-check --quiet install --editable '.[deploy]'
	$(BIN)/pytest -W error $(ARGS) tests/deploy
	$(give_back)

test-traces: test-setup ## Send the runs of two daemons to a real Jaeger and a Collector, and ask them (needs Go; ARGS='-k failed')
	@tests/traces/tools.sh
	$(BIN)/pytest -W error $(ARGS) tests/traces
	$(give_back)

dashboards: $(INSTALLED) ## Write dashboards/*.json from dashboards/*.py
	$(BIN)/python -m dashboards.generate
	$(give_back)

recordings: program ## Record the BPF maps of real pipelines anew, for the unit tests (needs root)
	PYTHONPATH=tests $(BIN)/python -m unit.recorded.record
	$(give_back)

api: $(INSTALLED) ## Write the JSON Schema of all answers, and the tables of docs/API.md
	$(BIN)/python deploy/api_reference.py
	$(give_back)

setup: program $(UNPACKED) ## Install packages, build, leave the program at .venv/bin/pipelined, get what make check needs
	$(give_back)

program: packages bpf $(INSTALLED)
	$(give_back)

test-setup: setup test-packages programs $(NEXT)/unpacked
	$(give_back)

packages:
	$(call need,$(PACKAGES))

test-packages:
	$(call need,$(TEST_PACKAGES))

bpf: $(BPF_OBJECT)

programs: $(PROGRAMS)

# The one object includes every file of bpf/. Stripping debug information leaves BTF in place.
$(BPF_OBJECT): bpf/pipelined.bpf.c $(wildcard bpf/*.h bpf/*.bpf.c) Makefile build/machine | packages
	@mkdir -p $(@D) build
	$(CLANG) $(BPF_CFLAGS) -c $< -o build/pipelined.bpf.o
	$(LLVM_STRIP) -g build/pipelined.bpf.o
	@install -m 0644 build/pipelined.bpf.o $@
	@rm -rf $(@D)/source && install -m 0644 -D -t $(@D)/source bpf/*.[ch]	# for bcc

# make MACHINE=aarch64 wheel deb: for the other architecture. The object does not say which it is for.
build/machine: FORCE
	@mkdir -p $(@D); echo $(MACHINE) | cmp -s - $@ || echo $(MACHINE) > $@

tests/kernel/programs/build/%: tests/kernel/programs/%.c bpf/pipelined.h Makefile | packages
	@mkdir -p $(@D)
	$(CC) $(PROGRAM_CFLAGS) $(if $(filter moves reads,$*),-static) $< -o $@

# Another Python on the host (after an upgrade), or a moved checkout, makes a new environment.
$(VENV)/made-for: FORCE | packages
	@made_for="$$(readlink -f $(PYTHON)) $(CURDIR)"; \
	if [ "$$(cat $@ 2>/dev/null || true)" != "$$made_for" ]; then \
		echo "making $(VENV)"; \
		$(PYTHON) -m venv --clear $(VENV); \
		echo "$$made_for" > $@; \
	fi

FORCE:

$(INSTALLED): pyproject.toml $(VENV)/made-for
	PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip --disable-pip-version-check --quiet \
		install --editable '.[dev,export]'
	@touch $@

# Newer suites have promtool in a package of its own.
$(TOOLS)/unpacked: | packages
	@rm -rf $(TOOLS)/usr $(TOOLS)/*.deb && mkdir -p $(TOOLS)
	@echo "unpacking prometheus into $(TOOLS)"
	@cd $(TOOLS) && $(APT) update && \
		$(APT) download prometheus $$(apt-cache --names-only search '^promtool$$' | cut -d ' ' -f 1) && \
		for package in *.deb; do dpkg -x "$$package" . && rm "$$package"; done && \
		test -x usr/bin/promtool && test -x usr/bin/prometheus
	@touch $@

$(NEXT)/unpacked: | $(INSTALLED) test-packages
	@echo "unpacking Prometheus 3 and VictoriaMetrics into $(NEXT)"
	@rm -rf $(NEXT) && $(BIN)/python tests/vm/unpack.py forky $(NEXT) prometheus victoria-metrics && \
		rm -r $(NEXT)/forky/lists $(NEXT)/forky/archives
	@touch $@

clean: ## Remove everything that make built
	rm -rf $(VENV) build daemon/*.egg-info daemon/pipelined/bpf/*.o tests/kernel/programs/build tests/bench/build \
		tests/soak/build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find daemon tests -name __pycache__ -prune -exec rm -rf {} +
