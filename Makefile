# make study          run AlexNet's five layers into study/: N=128 on an NVIDIA GPU, else N=1 on the CPU; resumes where
#                     it stopped
# make site           the report's pages from the record files in results/, with the book: site/index.html
# make report         tables and figures of the same: README.md, docs/
# make test           tests; what needs a tool that is missing is skipped, with the reason
# make test-aarch64   tests of kernels, compiled for a 64-bit ARM CPU and run by QEMU
# make lint           linters and types; another version than LOCK's may judge otherwise
# make attack         all trials of tests/attacks, an hour or two; docs/trust.md and course.md
# make dist           source distribution and wheel into dist/, reproducible byte for byte
# make lock           regenerate .ci/lock.txt: the versions, with their hashes, that CI tests
# make advisories     known advisories about these versions
# make clean          remove .venv, build files, site and tool caches; study/ stays
#
# Each sets up .venv by itself.  PYTHON=python3.12 chooses the interpreter, N=32 the batch of the study,
# LOCK=.ci/lock.txt the versions that CI tests.  With a GPU and no nvcc, the compiler comes from NVIDIA's wheels.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

SYSTEM_TOOLKIT := /usr/local/cuda

# PyCUDA's build looks for the toolkit next to an nvcc on the PATH; NVIDIA's installer does not put it there.
export PATH := $(PATH)$(if $(CUDA_HOME),:$(CUDA_HOME)/bin):$(SYSTEM_TOOLKIT)/bin
GPU := $(shell nvidia-smi -L >/dev/null 2>&1 && echo yes)
NVCC := $(shell PATH="$(PATH)"; command -v nvcc)
ifeq ($(GPU),yes)
EXTRAS := gpu,test
ifeq ($(NVCC),)
EXTRAS := toolkit,gpu,test
endif
N := 128
else
EXTRAS := test
N := 1
endif

# Named after its contents: another interpreter, a new GPU or a changed pyproject.toml makes a new environment.
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
READY := $(VENV)/ready-$(PYTHON_VERSION)-$(EXTRAS)$(if $(LOCK),-locked)
TOOLS := build/tools

.PHONY: help study site report test test-aarch64 lint attack dist lock advisories clean tools

help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' Makefile

study: $(READY) tools
	$(BIN)/python -m alexconv.run --layers 1-5 --N $(N) --out study/records.jsonl --resume
	$(BIN)/python -m alexconv.reports study/records.jsonl -o study/report

site: $(READY)
	rm -rf site
	$(BIN)/python -m alexconv.reports.build --site site

report: $(READY)
	$(BIN)/python -m alexconv.reports.build

# Two workers more than cores, up to four: some tests wait for processes and time limits.
WORKERS := $(shell cores=$$(nproc 2>/dev/null || echo 1); echo $$((cores < 2 ? cores + 2 : 4)))
GPU_WORKERS := $(shell cores=$$(nproc 2>/dev/null || echo 1); echo $$((cores < 8 ? cores : 8)))

# Of one core, where no kernel is compiled yet.
CPU_MINUTES := 16
MINUTES := $(shell cores=$$(nproc 2>/dev/null || echo 1); echo $$(($(CPU_MINUTES) / (cores < 4 ? cores : 4) + 1)))

test: $(READY) tools
	@echo "The tests take about $(MINUTES) minutes here, where nothing else runs; a later run finds kernels compiled."
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not gpu"
ifeq ($(GPU),yes)
	$(BIN)/python -m pytest -n $(GPU_WORKERS) --dist worksteal -m gpu
endif

test-aarch64: $(READY)
	CXX=aarch64-linux-gnu-g++ $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not gpu" \
		tests/executors tests/kernels/test_rungs.py tests/kernels/test_winograd.py tests/kernels/test_hard_data.py

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy -p alexconv

# Counts of trials go into results/trust, and from there into docs/trust.md.
CORES := $(shell nproc 2>/dev/null || echo 1)

attack: $(READY) tools
	rm -f results/trust/attacks.jsonl
	ALEXCONV_ATTACK=36 ALEXCONV_ATTACK_RECORD=results/trust/attacks.jsonl \
		$(BIN)/python -m pytest -q -n $(CORES) --dist worksteal -m "not gpu" --timeout 7200 \
		tests/attacks tests/cluster/test_cluster.py tests/check/test_false_alarms.py \
		tests/kernels/test_rungs.py tests/kernels/test_hard_data.py tests/kernels/test_gradient_rungs.py
	$(BIN)/python tests/attacks/mutants.py results/trust/mutants.jsonl --jobs $(CORES)
	$(BIN)/python tests/attacks/suite_mutants.py results/trust/suite-mutants.jsonl
	$(BIN)/python tests/attacks/hazard_mutants.py
	$(BIN)/python tests/attacks/course_submissions.py
	$(BIN)/python -m alexconv.reports.build

dist: $(READY)
	$(BIN)/python scripts/release/dist.py dist

# uv and pip-audit have their own environment: in .venv they would be locked and checked too.
lock: $(TOOLS)
	$(TOOLS)/bin/uv pip compile -q --universal --generate-hashes --upgrade --python-version 3.11 --extra test \
		--custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links -o .ci/lock.txt pyproject.toml

advisories: $(TOOLS)
	$(PYTHON) scripts/release/advisories.py --pip-audit $(TOOLS)/bin/pip-audit

$(TOOLS):
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install -q uv pip-audit || { rm -rf $@; exit 1; }

tools:
ifneq ($(GPU),yes)
	@echo "No NVIDIA GPU with its driver found: kernels run on the CPU, GPU tests are skipped."
endif
	@command -v $(CXX) >/dev/null || command -v clang++ >/dev/null || \
		{ echo "No C++ compiler found: install g++ or clang (Debian: apt-get install g++)." >&2; exit 1; }

$(READY): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "$(PYTHON) is missing, older than 3.11 or lacks venv and pip: install python3-venv," \
		"or name another, as in 'make test PYTHON=python3.12'." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
ifdef LOCK
	$(BIN)/python -m pip install -q --require-hashes -r $(LOCK)
endif
ifneq ($(findstring toolkit,$(EXTRAS)),)
	$(BIN)/python -m pip install -q -e '.[toolkit]'
	$(BIN)/python scripts/release/pycuda_for_wheels.py
endif
	$(BIN)/python -m pip install -q $(if $(LOCK),--no-build-isolation) -e '.[$(EXTRAS)]'
	@touch $@

clean:
	rm -rf $(VENV) build site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
