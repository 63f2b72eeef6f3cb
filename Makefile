# Each target does its own set-up. Requires Python >= 3.10, git and make.
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BEAM := .venv-beam
SPARK := .venv-spark
GARDEN := .venv-garden
DOCS := .venv-docs
# In the order of tests/conftest.py; xdist's own starts with the files of many, short tests.
PARALLEL := --numprocesses=auto --dist=loadfile --no-loadscope-reorder
# TORCH_INDEX=https://download.pytorch.org/whl/cpu selects the small CPU build of torch.
TORCH_INDEX ?=
BENCH ?=
export TF_CPP_MIN_LOG_LEVEL ?= 3
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1
# If it is set, each process compiles the 4,000 modules of TensorFlow and Keras again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo pretrain-demo test test-avx2 test-thorough test-ci test-versions test-peers test-beam test-spark test-garden test-javascript test-runtime environments docs bench lint clean

# A stamp file; the environment is rebuilt when one of its prerequisites changes.
$(VENV)/.made: setup.cfg pyproject.toml requirements-demo.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --no-compile --editable '.[dev]'
	$(VENV)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements-demo.txt
	touch $@

$(PEERS)/.made: setup.cfg pyproject.toml requirements-demo.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --no-compile torch==2.13.0 $(TORCH_INDEX:%=--extra-index-url %)
	# seqeval has no wheel, and its old setup.py only builds with this option.
	$(PEERS)/bin/python -m pip install --quiet --no-compile --use-pep517 --editable '.[peers]'
	$(PEERS)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements-demo.txt
	touch $@

# The environments of `.ci/run`; `make --jobs=3` builds them in parallel.
environments: $(VENV)/.made $(PEERS)/.made $(GARDEN)/.made

demo: $(VENV)/.made
	$(VENV)/bin/python examples/email_demo.py

pretrain-demo: $(VENV)/.made
	$(VENV)/bin/python examples/pretrain_demo.py

test: $(VENV)/.made
	$(VENV)/bin/python -m pytest $(PARALLEL) -m "not slow and not thorough" --ignore=tests/peers --ignore=tests/garden

# On any processor, what one with AVX2 alone computes: TensorFlow has no oneDNN for 16 bits there.
test-avx2: $(VENV)/.made
	TF_ENABLE_ONEDNN_OPTS=0 ONEDNN_MAX_CPU_ISA=AVX2 $(VENV)/bin/python -m pytest tests/model -m "not slow and not thorough" -k "bfloat16 or float16 or numpy"

test-thorough: $(VENV)/.made $(PEERS)/.made
	$(VENV)/bin/python -m pytest $(PARALLEL) -m "slow or thorough" --ignore=tests/peers --ignore=tests/garden
	$(PEERS)/bin/python -m pytest $(PARALLEL) -m thorough tests/peers

# PYTHONS="python3.10 /opt/python3.13/bin/python --lowest" selects what is tried.
test-versions:
	$(PYTHON) tests/versions.py $(PYTHONS)

# The slow and thorough tests for which `.ci/run` has time, see `CHOSEN` of tests/conftest.py.
test-ci: $(VENV)/.made
	$(VENV)/bin/python -m pytest $(PARALLEL) -m chosen --ignore=tests/peers --ignore=tests/garden

test-peers: $(PEERS)/.made
	$(PEERS)/bin/python -m pytest $(PARALLEL) tests/peers -m "not thorough"

# transformers.js brings ONNX Runtime for the CPU; its script would fetch the GPU's.
.node/.made:
	npm install --prefix .node --ignore-scripts @huggingface/transformers
	touch $@

test-javascript: $(PEERS)/.made .node/.made
	TRANSFORMERS_JS=$(CURDIR)/.node $(PEERS)/bin/python -m pytest tests/peers/test_transformers_js_peers.py

# Beam needs an older protobuf; Spark Java 17 or later, and a pandas older than the tests'.
$(BEAM)/.made $(SPARK)/.made: .venv-%/.made: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --editable '.[test,$*]'
	touch $@

# The distribution without TensorFlow, in an empty environment, on exports that are written with it.
test-runtime: $(PEERS)/.made
	rm -rf build/runtime && mkdir -p build/runtime
	$(PEERS)/bin/python tests/runtime/write_exports.py build/runtime/exports
	$(PYTHON) -m venv build/runtime/venv
	build/runtime/venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/runtime ./packaging/runtime
	rm -rf bert_keras_runtime.egg-info  # or this folder would count as the distribution
	build/runtime/venv/bin/python -m pip install --quiet "$$(echo build/runtime/*.whl)[serving]"
	cd build/runtime && venv/bin/python ../../tests/runtime/check_exports.py exports

test-beam: $(BEAM)/.made
	$(BEAM)/bin/python -m pytest tests/pretraining/test_beam.py tests/inference/test_beam.py

test-spark: $(SPARK)/.made
	$(SPARK)/bin/python -m pytest tests/inference/test_spark.py

# TF Model Garden needs TensorFlow 2.20; dependencies that its BERT never imports are left out.
$(GARDEN)/.made: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(GARDEN)
	$(GARDEN)/bin/python -m pip install --quiet --no-compile --editable '.[garden]'
	$(GARDEN)/bin/python -m pip install --quiet --no-compile --no-deps tf-models-official==2.20.0
	touch $@

test-garden: $(GARDEN)/.made
	$(GARDEN)/bin/python -m pytest $(PARALLEL) tests/garden

# MkDocs reads the code and imports none of it; the build itself needs no network.
$(DOCS)/.made: setup.cfg
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --no-compile $$($(PYTHON) -c "import configparser as c; p = c.ConfigParser(interpolation=None); p.read('setup.cfg'); print(*p['options.extras_require']['docs'].split())")
	touch $@

docs: $(DOCS)/.made
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict
	@echo "build/site/index.html"

# BENCH="--rounds 2 --parts prediction" passes options on.
bench: $(PEERS)/.made
	$(PEERS)/bin/python benchmarks/speed_table.py $(BENCH)

lint: $(VENV)/.made
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) $(PEERS) $(BEAM) $(SPARK) $(GARDEN) $(DOCS) build dist *.egg-info
