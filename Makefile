# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
.DEFAULT_GOAL := help
.PHONY: help env install demo demo-mnist demo-nmt demo-skip-thoughts demo-resnet50 demo-criteo demo-two-tower test test-all test-equality test-core test-keras3 test-unit test-parallel test-outside fuzz lint format layers docs docs-outputs dist image bench bench-one bench-smoke bench-gpu bench-soak clean distclean

# The environment of the stack that STACK names, or else of the first one whose Python is there. Asked
# for where it is first needed.
ENV = $(eval ENV := $(shell STACK='$(STACK)' MPI='$(MPI)' scripts/choose_stack.sh 2>/dev/null | sed -n 2p))$(ENV)
export STACK MPI

# Programs of the environment start each other by name (horovodrun starts python, tests start
# horovodrun), so its bin/ leads PATH, activated or not. Not exported to the whole
# Makefile: make_env.sh has to find the Python below the environment, not the environment's own.
RUN = PATH="$(CURDIR)/$(ENV)/bin:$$PATH"

# Without TensorFlow's notes about the CPU, one per process, between our own lines.
QUIET_RUN = $(RUN) TF_CPP_MIN_LOG_LEVEL=1

# The script, not `python -m pytest`: the latter imports the checkout, not the installed package.
PYTEST = $(RUN) $(ENV)/bin/pytest

# A fresh machine may name no locale. Python 3.6 takes it for ASCII then, and click 8.0 refuses to
# go on.
ifeq ($(filter-out C POSIX,$(LC_ALL) $(LC_CTYPE) $(LANG)),)
export LC_ALL := C.UTF-8
endif

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-19s %s\n", $$1, $$2 }' Makefile

env: ## Build the environment (STACK=tf2.21: another stack; MPI=1: with MPI); a second call returns at once
	@scripts/make_env.sh

install: ## Install the package into the environment, from the sources as they are now
	@scripts/make_env.sh --install

define train_on_two
	@echo 'keras-parallax run -np 2 $(1) $(DEMO_ARGS)'
	@$(ENV)/bin/keras-parallax run -np 2 $(1) $(DEMO_ARGS)
endef

# Not empty if the stack has Keras 3: then the forms of examples/keras3/ train.
OF_KERAS_3 = $(eval OF_KERAS_3 := $(shell grep -ls '^keras==3' requirements/lock-$$(STACK='$(STACK)' \
	MPI='$(MPI)' scripts/choose_stack.sh 2>/dev/null | sed -n 1p).txt))$(OF_KERAS_3)
STACK_ARG = $(if $(STACK), STACK=$(STACK))

demo: install ## Train the example on two processes of this machine (DEMO_ARGS=...)
	$(call train_on_two,$(if $(OF_KERAS_3),examples/keras3/language_model.py,examples/lm1b.py))
	@echo
	$(if $(OF_KERAS_3),$(TRY_NEXT_KERAS_3),$(TRY_NEXT))

define TRY_NEXT
	@echo 'To try next: text of your own, in .txt files; all of it by Horovod; from how many hosts on servers pay.'
	@echo '  make demo$(STACK_ARG) DEMO_ARGS="--data DIR"'
	@echo '  make demo$(STACK_ARG) DEMO_ARGS="--architecture allreduce"'
	@echo '  cd examples && ../$(ENV)/bin/keras-parallax plan lm1b:build_model --hosts 16 --density .02'
endef

define TRY_NEXT_KERAS_3
	@echo 'To try next: text of your own, in .txt files; the JAX backend; a job that goes on; from how many hosts'
	@echo 'on servers pay.'
	@echo '  make demo$(STACK_ARG) DEMO_ARGS="--data DIR"'
	@echo '  KERAS_BACKEND=jax make demo$(STACK_ARG)'
	@echo '  make demo$(STACK_ARG) DEMO_ARGS="--checkpoint DIR --epochs 1"'
	@echo '  make demo$(STACK_ARG) DEMO_ARGS="--checkpoint DIR --epochs 2"'
	@echo '  cd examples/keras3 && ../../$(ENV)/bin/keras-parallax plan language_model:build_model --hosts 16 --density .02'
endef

demo-mnist: install ## The same with Horovod's first example, which reads digits (DEMO_ARGS=...)
	$(call train_on_two,examples/mnist.py)

demo-nmt: install ## The same with a translator, by encoder, decoder and attention (DEMO_ARGS=...)
	$(call train_on_two,examples/nmt.py)

demo-skip-thoughts: install ## The same with an encoder of sentences and two decoders (DEMO_ARGS=...)
	$(call train_on_two,examples/skip_thoughts.py)

demo-resnet50: install ## The same with ResNet-50 or Inception-v3 (DEMO_ARGS='--model inception_v3')
	$(call train_on_two,examples/resnet50.py)

demo-criteo: install ## The same with clicks on ads, by DeepFM or DLRM (DEMO_ARGS='--model dlrm')
	$(call train_on_two,$(if $(OF_KERAS_3),examples/keras3/recommender.py,examples/criteo.py))

demo-two-tower: install ## The same with films that people like next, by two towers (DEMO_ARGS=...)
	$(call train_on_two,$(if $(OF_KERAS_3),examples/keras3/two_tower.py,examples/two_tower.py))

# Side by side, because ranks wait for each other; tests/conftest.py says which share a process.
SIDE_BY_SIDE = $(PYTEST) --numprocesses 3 --dist loadgroup
SUITE := tests/cluster tests/parallel tests/unit benchmarks/tests
BEGAN := $(shell date +%s)
REPORT = @echo "$@: $$(( $$(date +%s) - $(BEGAN) )) s since make began"

# The longest first, so that no process waits for another at the end.
test: ## Run a test of everything; root (ALL=1: with all parameters; PYTEST_ARGS=...)
	@scripts/make_env.sh --cluster --install $(if $(CI),--browser)
	$(SIDE_BY_SIDE) $(if $(ALL),,-m 'not exhaustive') $(PYTEST_ARGS) $(if $(ALL),tests/outside) $(SUITE)
	$(REPORT)

test-all: ## Run these, all other tests, and code of others on us (tests/README.md)
	@$(MAKE) test ALL=1

EQUALITY := tests/parallel/test_equality.py::test_workers_equal_plain_keras_on_the_joined_batch

test-equality: install ## Compare two ranks with plain Keras of another stack (STACK=tf1.15)
	$(SIDE_BY_SIDE) -m 'not exhaustive' $(PYTEST_ARGS) $(EQUALITY)
	$(REPORT)

# What most wrong numbers with TensorFlow 2 were found by.
LOSSES := $(addprefix tests/parallel/test_equality.py::test_, \
	workers_equal_plain_keras_where_masks_and_weights_divide_a_loss \
	workers_equal_plain_keras_where_terms_of_a_loss_are_sums \
	a_table_that_is_made_dense_moves_the_rows_that_plain_keras_moves)
LIVES := tests/parallel/test_life_cycles.py tests/parallel/test_random_models.py

KERAS_3 := tests/parallel/test_keras3.py tests/parallel/test_keras3_behaviour.py

SCREEN := tests/parallel/test_screen.py::test_there_are_few_lines_besides_training_and_a_file_of_each_rank_has_all

# That, and what reads the insides of Keras and TensorFlow; the longest first, as above.
CORE := $(addprefix tests/cluster/test_,guide.py keras3_on_hosts.py who_may_talk.py) \
	tests/parallel/test_remedies.py \
	$(addprefix tests/parallel/test_keras3_,lives.py memory.py saving.py former.py examples.py) $(KERAS_3) \
	$(EQUALITY) $(LOSSES) $(LIVES) tests/parallel/test_cards.py $(SCREEN) \
	$(addprefix tests/unit/,callbacks checkpoint compat engine/step engine/tables engine/updates keras3 layers)

test-core: ## Run what tells most of another stack (STACK=tf2.21)
	@scripts/make_env.sh --cluster --install
	$(SIDE_BY_SIDE) -m 'not exhaustive' $(PYTEST_ARGS) $(CORE)
	$(REPORT)

# Keras is Python alone: another version is put into a folder, and takes no environment of its own.
KERAS = 3.12.4
OTHER_KERAS = $(ENV)/keras-$(KERAS)

test-keras3: install ## Run what reads the insides of Keras 3 with another version (KERAS=3.12.4 STACK=tf2.21)
	$(ENV)/bin/pip install -qq --no-deps --upgrade --target $(OTHER_KERAS) keras==$(KERAS)
	PYTHONPATH=$(CURDIR)/$(OTHER_KERAS) $(SIDE_BY_SIDE) -m 'not exhaustive' $(PYTEST_ARGS) $(KERAS_3) \
		tests/unit/keras3 -k 'with_jax or tensorflow and not (failure or with_tensorflow or trainer_test)'
	$(REPORT)

test-unit: install ## Run the tests that need one process
	$(PYTEST) $(PYTEST_ARGS) tests/unit benchmarks/tests

test-parallel: install ## Run the tests that start horovodrun on this machine
	$(PYTEST) $(PYTEST_ARGS) tests/parallel

test-outside: install ## Run code of others on us, from the package registry and of a folder (OUTSIDE=DIR)
	OUTSIDE="$(OUTSIDE)" $(PYTEST) $(PYTEST_ARGS) tests/outside

# Where a draw fails, its script is in fuzz/, and `FUZZ_ARGS` are those of the file.
fuzz: install ## Compare random models with plain Keras (SEEDS=1-20 STACK=tf2.21 FUZZ_ARGS=...)
	$(RUN) $(ENV)/bin/python tests/random_models/fuzz.py --seeds $(or $(SEEDS),1) $(FUZZ_ARGS)
	$(REPORT)

.venv-tools/stamp: requirements/tools.txt scripts/make_tools.sh
	@scripts/make_tools.sh
	@touch $@

# mypy is there where the tools have Python 3.10 or newer.
TYPES = $(if $(wildcard .venv-tools/bin/mypy),.venv-tools/bin/mypy,@echo 'types: not checked, for mypy needs Python 3.10')

lint: .venv-tools/stamp ## Check style, types, licenses, folders and their picture, what pages cite, manifests, workflows, the citation, the Dockerfile
	.venv-tools/bin/ruff check .
	.venv-tools/bin/ruff format --check .
	.venv-tools/bin/python scripts/check_headers.py
	.venv-tools/bin/python scripts/check_references.py
	.venv-tools/bin/python scripts/check_private_names.py
	.venv-tools/bin/python scripts/check_running.py
	$(TYPES)
	.venv-tools/bin/python scripts/check_keywords.py
	PYTHONPATH=. .venv-tools/bin/lint-imports --no-cache
	PYTHONPATH=. .venv-tools/bin/python scripts/draw_layers.py --check

format: .venv-tools/stamp ## Format the code and mend what lint can mend by itself
	.venv-tools/bin/python scripts/check_headers.py --write
	.venv-tools/bin/ruff check --fix .
	.venv-tools/bin/ruff format .

layers: .venv-tools/stamp ## Draw which folder imports which, for docs/architecture.md
	PYTHONPATH=. .venv-tools/bin/python scripts/draw_layers.py

# The variable silences the theme's notice about a MkDocs 2 that is not used here.
docs: .venv-tools/stamp ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 .venv-tools/bin/mkdocs build --strict

docs-outputs: install ## Run the guide and the examples, and write what they print; root (PAGES=... STACK=tf2.21)
	@scripts/make_env.sh --cluster
	$(RUN) $(ENV)/bin/python scripts/docs_outputs.py $(PAGES)

# KERAS_PARALLAX_REPOSITORY is the address that links of the README lead into: see setup.py.
dist: .venv-tools/stamp ## Build the wheel and the sdist into dist/ (KERAS_PARALLAX_REPOSITORY=https://...)
	rm -rf build dist *.egg-info
	.venv-tools/bin/python -m build --outdir dist .
	.venv-tools/bin/twine check --strict dist/*
	rm -rf build *.egg-info

image: ## Build the image keras-parallax:latest; needs Docker
	docker build --tag keras-parallax:latest .

bench: install ## Measure us and our peers, hours; root (BENCH_ARGS=--quick, --missing, ...)
	@scripts/make_env.sh --cluster
	$(QUIET_RUN) $(ENV)/bin/python benchmarks/run.py $(BENCH_ARGS)

bench-one: install ## Measure one process against plain Keras (BENCH_ARGS=...)
	$(QUIET_RUN) $(ENV)/bin/python benchmarks/one_process.py $(BENCH_ARGS)

bench-smoke: install ## The benchmarks' code on 2 small hosts; judges bytes and losses; root
	@scripts/make_env.sh --cluster
	$(QUIET_RUN) $(ENV)/bin/python benchmarks/smoke.py
	if STACK=tf2.21 scripts/choose_stack.sh >/dev/null; then \
		$(MAKE) bench-gpu STACK=tf2.21 BENCH_ARGS='--smoke --out build/gpu-smoke'; fi

bench-gpu: install ## Check this machine's GPU, as benchmarks/gpu/README.md says (STACK=tf2.21 BENCH_ARGS=...)
	$(ENV)/bin/python benchmarks/gpu/check.py --env $(ENV)/bin/python $(BENCH_ARGS)

bench-soak: install ## Kill and restart a training run again and again (BENCH_ARGS=--kills 5)
	$(QUIET_RUN) $(ENV)/bin/python benchmarks/soak.py $(BENCH_ARGS)

clean: ## Remove build products and caches, but not the environments
	rm -rf build dist site *.egg-info .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## Remove the environments too
	rm -rf .venv .venv-*
