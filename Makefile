# Each target does all its own set-up; needs Python >= 3.10, git and make.
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BEAM := .venv-beam
GARDEN := .venv-garden
# In the order of the files: those of few but long tests would come last, one by one.
PARALLEL := --numprocesses=auto --dist=loadfile --no-loadscope-reorder
# TORCH_INDEX=https://download.pytorch.org/whl/cpu takes torch's small build for CPUs.
TORCH_INDEX ?=
export TF_CPP_MIN_LOG_LEVEL ?= 3
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

.PHONY: demo pretrain-demo test test-thorough test-peers test-beam test-garden environments bench lint clean

# A stamp of what an environment was made from; made again when that changes.
$(VENV)/.made: setup.cfg pyproject.toml requirements-demo.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --no-compile --editable '.[dev]'
	$(VENV)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements-demo.txt
	touch $@

$(PEERS)/.made: setup.cfg pyproject.toml requirements-demo.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --no-compile torch==2.13.0 $(TORCH_INDEX:%=--extra-index-url %)
	# seqeval has no wheel, and its old set-up does not build in any other way.
	$(PEERS)/bin/python -m pip install --quiet --no-compile --use-pep517 --editable '.[peers]'
	$(PEERS)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements-demo.txt
	touch $@

# What `.ci/run` needs; with `make --jobs=3` they are made side by side.
environments: $(VENV)/.made $(PEERS)/.made $(GARDEN)/.made

demo: $(VENV)/.made
	$(VENV)/bin/python examples/email_demo.py

pretrain-demo: $(VENV)/.made
	$(VENV)/bin/python examples/pretrain_demo.py

test: $(VENV)/.made
	$(VENV)/bin/python -m pytest $(PARALLEL) -m "not thorough" --ignore=tests/peers --ignore=tests/garden

test-thorough: $(VENV)/.made
	$(VENV)/bin/python -m pytest $(PARALLEL) -m thorough --ignore=tests/peers --ignore=tests/garden

test-peers: $(PEERS)/.made
	$(PEERS)/bin/python -m pytest $(PARALLEL) tests/peers

# Beam brings an older protobuf, so it has an environment of its own.
$(BEAM)/.made: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(BEAM)
	$(BEAM)/bin/python -m pip install --quiet --editable '.[test,beam]'
	touch $@

test-beam: $(BEAM)/.made
	$(BEAM)/bin/python -m pytest tests/pretraining/test_beam.py

# TF Model Garden wants TensorFlow 2.20, and much that its BERT never imports: without.
$(GARDEN)/.made: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(GARDEN)
	$(GARDEN)/bin/python -m pip install --quiet --no-compile --editable '.[garden]'
	$(GARDEN)/bin/python -m pip install --quiet --no-compile --no-deps tf-models-official==2.20.0
	touch $@

test-garden: $(GARDEN)/.made
	$(GARDEN)/bin/python -m pytest $(PARALLEL) tests/garden

bench: $(PEERS)/.made
	for script in benchmarks/*_speed.py; do $(PEERS)/bin/python $$script || exit 1; done

lint: $(VENV)/.made
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) $(PEERS) $(BEAM) $(GARDEN) build dist *.egg-info
