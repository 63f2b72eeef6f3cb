"""The ladder: a module imports only from lower floors, and the light ones stay light.

`FLOORS` is read as a table of contents; a new module takes its place in it.
"""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "bert_keras"
FLOORS = {
    0: "argument_types beam_files characters checkpoints.name_table choice_head"
    " drawing dropout encoder_inputs errors fixed_shapes function_name heads"
    " initialization lstm page pair_merging progress quiet ragged replicas run_facts"
    " score_table silent_run stop_signal wanted_tokens whole_file",
    1: "beam_runner block checkpoints.names checkpoints.wire checks class_names"
    " column_names config correlation counts_file entity_metrics folder given_texts"
    " layer_choice layers masked_metrics multi_label_metrics normalization optimizers"
    " pretraining_blocks probability_metrics process_pool record_file recurrent_head"
    " replica_input rouge rows sentence_rules sentences shown_scores span_metrics"
    " summed_update task_objective text_streams token_choice train_config vocabulary"
    " word_pieces worker_watch",
    2: "calibration checkpoints.base checkpoints.hub_names checkpoints.object_graph"
    " corpus_files feature_file masked_lm_head metrics operation_count pooling"
    " pretraining_data_config pretraining_objective record_lanes replicated_fit report"
    " row_arguments run_folder similarity strategy table tokenizer_files train_step"
    " wikipedia word_counter",
    3: "checkpoints.architecture checkpoints.assign checkpoints.bert_config_file"
    " checkpoints.h5_file checkpoints.model_garden_config"
    " checkpoints.model_garden_objects checkpoints.pickled_file"
    " checkpoints.sentence_files checkpoints.tensor_file checkpoints.variable"
    " choice_file confidence contrastive corpus_arguments corpus_reader data_sets"
    " entity_confidence feature_arguments packing pairs pretrain_config"
    " pretraining_manifest span_confidence squad tagged task_rows text_pairs tokenizer"
    " train_arguments word_counts",
    4: "asked_questions checkpoints.bundle checkpoints.huggingface"
    " checkpoints.keras_hub corpus hub_preprocessor masking preprocessor"
    " pretrain_arguments pretraining_files pretraining_journal vocabulary_learning"
    " windows word_tags",
    5: "arguments checkpoints.google checkpoints.huggingface_writer"
    " checkpoints.keras_hub_objects checkpoints.model_garden"
    " checkpoints.model_garden_writer checkpoints.tf_hub hidden_tokens masked_texts"
    " pretraining_records pretraining_rows pretraining_shard pseudo_likelihood"
    " sentence_windows spans words",
    6: "beam_steps checkpoints checkpoints.keras_hub_writer pretraining_data"
    " pretraining_input question_windows",
    7: "beam_pretraining encoder info span_answers training_state",
    8: "fewer_weights hub_encoder pretrainer task_model tasks.base",
    9: "divergence export finetuning_run tasks tasks.embedding tasks.masked_lm"
    " tasks.multiple_choice tasks.pooled tasks.question_answering"
    " tasks.summarization tasks.tagging training_rows",
    10: "model_folder tasks.classification tasks.feature_tagging tasks.multi_label"
    " tasks.next_sentence tasks.regression tasks.token_classification"
    " tf_hub_writer updates",
    11: "convert inference keras_hub_models pretrained_model pretrainer_folder"
    " pretraining_plan"
    " training_progress",
    12: "embedder finetuning_loop held_out pretraining_place pretraining_progress",
    13: "features finetuning_result pretraining_loop text_search",
    14: "pretraining training",
    15: "pretraining_verbs several_runs",
    16: "cli",
    17: "__main__",
}
FLOOR = {name: floor for floor, names in FLOORS.items() for name in names.split()}
MODULES = {
    str(path.relative_to(PACKAGE).with_suffix(""))
    .replace(os.sep, ".")
    .removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}
# Imported for their side effect of being light: the command line and its help.
LIGHT = (
    "bert_keras bert_keras.cli.main bert_keras.cli.arguments bert_keras.training.config"
)


def imported(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, anywhere in it.

    What stands under `if TYPE_CHECKING` does not run, so it does not count.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            whole = {f"{module}.{alias.name}" for alias in node.names}
            modules = {n for n in whole if n.removeprefix("bert_keras.") in MODULES}
            found |= modules or {module}
    return {
        name.removeprefix("bert_keras.")
        for name in found
        if name.startswith((".", "bert_keras."))
    }


def test_every_module_has_a_floor() -> None:
    assert set(FLOOR) == set(MODULES)


def test_no_public_name_is_a_module() -> None:
    # Importing the module would put it in the place of the name.
    from bert_keras import _PLACES

    assert not set(_PLACES) & set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name: str) -> None:
    too_high = {
        other for other in imported(MODULES[name]) if FLOOR[other] >= FLOOR[name]
    }
    assert not too_high


@pytest.mark.parametrize("name", MODULES)
def test_a_file_is_short_and_asserts_nothing(name: str) -> None:
    source = MODULES[name].read_text(encoding="utf-8")
    assert source.count("\n") <= 300
    assert not [
        node for node in ast.walk(ast.parse(source)) if type(node) is ast.Assert
    ]


def test_the_light_modules_import_nothing_heavy() -> None:
    check = (
        f"import sys, {', '.join([*LIGHT.split(), 'bert_keras.tasks'])}\n"
        "heavy = ('tensorflow', 'keras', 'keras_hub', 'numpy', 'safetensors')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_takes_less_than_a_second() -> None:
    """Of processor time: how long one waits is the other programs' doing as well."""
    command = [sys.executable, "-m", "bert_keras", "--help"]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds.append(used)
    assert b"train" in done.stdout
    assert min(seconds) < 1.0
