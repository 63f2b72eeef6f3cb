"""DistilBERT and ELECTRA equal transformers, in both directions, with every head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import VOCABULARY, assert_near
from electra_checkpoint import google_variables, write_variables
from safetensors.numpy import load_file

from bert_keras.checkpoints import read_checkpoint
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.engine_conversion import engine_model
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.retrieval.embedder import embed
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": len(VOCABULARY), "max_position_embeddings": 40}
SIZES |= {"initializer_range": 0.3}
_DISTILBERT = {"n_layers": 2, "n_heads": 2, "dim": 16, "hidden_dim": 24}
_ELECTRA = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
}
TYPES = {
    "distilbert": ("DistilBert", _DISTILBERT),
    "electra": ("Electra", {**_ELECTRA, "embedding_size": 8}),
    "electra-plain": ("Electra", {**_ELECTRA, "embedding_size": 16}),
}
HEADS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
CASES = [(kind, head) for kind in TYPES for head in HEADS]
CASES.append(("electra", "ForPreTraining"))


def their_model(kind: str, head: str, folder: Path, **changes: Any) -> Any:
    """Return a random model of transformers that is saved in a folder."""
    torch.manual_seed(3)
    start, sizes = TYPES[kind]
    config = getattr(transformers, f"{start}Config")(**{**SIZES, **sizes, **changes})
    model = getattr(transformers, f"{start}{head}")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():  # the biases, too
            weight.copy_(0.3 * torch.randn_like(weight))
    model.save_pretrained(folder)
    WordPieceTokenizer(VOCABULARY).save(folder)
    return model


def batches(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the same ids for us and for transformers, with padding."""
    ids = np.random.default_rng(1).integers(5, len(VOCABULARY), (3, 9))
    ids[:, 0] = 2
    mask, segments = np.ones_like(ids), np.zeros_like(ids)
    mask[1, 6:], segments[:, 5:] = 0, 1
    ours = {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}
    theirs = {"input_ids": ids, "attention_mask": mask}
    if kind != "distilbert":
        theirs["token_type_ids"] = segments
    return ours, {name: torch.tensor(value) for name, value in theirs.items()}


def logits(found: Any) -> np.ndarray:
    if "start_logits" in found:
        return np.stack([found.start_logits, found.end_logits], axis=-1)
    return found.logits.numpy()


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_folders_go_both_ways(kind: str, head: str, tmp_path: Path) -> None:
    theirs = their_model(kind, head, tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "ours")
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours")
    )
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
    written = json.loads((tmp_path / "ours/config.json").read_text())
    stated = json.loads((tmp_path / "theirs/config.json").read_text())
    assert written["architectures"] == stated["architectures"]
    assert not {k for k in written if k not in stated} - {"label2id", "id2label"}
    auto = getattr(transformers, "AutoModel" + head.removeprefix("Model"))
    opened, told = auto.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(told.values()) and type(opened) is type(theirs)

    ours, given = batches(kind)
    encoder = BertEncoder.from_pretrained(
        str(tmp_path / "ours"), outputs=("hidden_states",)
    )
    with torch.no_grad():
        wanted = theirs.base_model(**given, output_hidden_states=True).hidden_states
    real = ours["padding_mask"] == 1
    for one, other in zip(encoder(ours)["hidden_states"], wanted, strict=True):
        np.testing.assert_allclose(one[real], other[real], atol=1e-5)
    if head in ("Model", "ForPreTraining"):
        return
    model = load_model(tmp_path / "ours")
    if head == "ForMultipleChoice":
        ours = {name: value[None] for name, value in ours.items()}
        given = {name: value[None] for name, value in given.items()}
    if head == "ForMaskedLM":
        ours["masked_positions"] = np.tile(np.arange(9), (3, 1))
    with torch.no_grad():
        wanted = logits(theirs(**given))
    found = np.asarray(model(ours))
    if wanted.ndim == 3:
        found, wanted = found[real], wanted[real]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


TASKS = {
    "ForSequenceClassification": MultiLabel(("a", "b"), pairs=True),
    "ForSequenceClassification-1": Regression(pairs=True),
    "ForTokenClassification": TokenClassification(("O", "B-A")),
}


@pytest.mark.parametrize("kind", ["distilbert", "electra"])
@pytest.mark.parametrize("name", TASKS)
def test_a_model_with_a_new_head_opens_there(
    kind: str, name: str, tmp_path: Path
) -> None:
    their_model(kind, "Model", tmp_path / "encoder")
    model = TaskModel.from_pretrained(tmp_path / "encoder", TASKS[name], seed=1)
    save_model(model, tmp_path / "model")
    head = name.partition("-")[0]
    auto = getattr(transformers, f"AutoModel{head}")
    theirs, told = auto.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(told.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    given = tokenizer("win cash", "see you", return_tensors="pt")
    assert ("token_type_ids" in given) == (kind != "distilbert")
    ours = model.preprocessor.replace(layout="padded")((["win cash"], ["see you"]))
    with torch.no_grad():
        wanted = theirs.eval()(**given).logits.numpy()
    np.testing.assert_allclose(model(ours), wanted, atol=1e-5)
    assert load_model(tmp_path / "model").task == model.task


def test_a_folder_of_sentence_transformers_on_distilbert(tmp_path: Path) -> None:
    sentences = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    their_model("distilbert", "Model", tmp_path / "encoder")
    (tmp_path / "encoder/tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "DistilBertTokenizer", "do_lower_case": True})
    )
    first = Transformer(str(tmp_path / "encoder"), max_seq_length=24)
    modules = [first, Pooling(16, "cls")]
    theirs = sentences.SentenceTransformer(
        modules=modules, device="cpu", prompts={"query": "see: "}
    )
    theirs.save_pretrained(str(tmp_path / "theirs"))
    texts = ["win cash now", "see you", "a free prize " * 20]
    wanted = theirs.encode(texts)
    model = load_model(tmp_path / "theirs")
    assert model.task.pooling == "cls"
    np.testing.assert_allclose(
        embed(str(tmp_path / "theirs"), texts), wanted, atol=1e-5
    )
    save_model(model, tmp_path / "ours")
    opened = sentences.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(opened.encode(texts), wanted, atol=1e-5)
    queries = theirs.encode(texts, prompt_name="query")
    for found in (
        embed(str(tmp_path / "theirs"), texts, prompt="query"),
        opened.encode(texts, prompt_name="query"),
    ):
        np.testing.assert_allclose(found, queries, atol=1e-5)


@pytest.mark.parametrize("kind", ["distilbert", "electra"])
@pytest.mark.parametrize(
    "form",
    ["saved-model", "onnx", pytest.param("openvino", marks=pytest.mark.thorough)],
)
def test_exports_answer_as_the_model(kind: str, form: str, tmp_path: Path) -> None:
    their_model(kind, "ForSequenceClassification", tmp_path / "model", num_labels=3)
    task = Classification(("LABEL_0", "LABEL_1", "LABEL_2"), pairs=True)
    model = load_model(tmp_path / "model", task=task)
    pairs = [("win cash", "see you"), ("lunch", "at six , now")]
    wanted = Predictor(model).predict(pairs)
    if form == "saved-model":
        found = load_predictor(export_model(model, tmp_path / "export"))
    else:
        pytest.importorskip("openvino" if form == "openvino" else "onnxruntime")
        found = Predictor(engine_model(model, form))
    assert_near(found.predict(pairs), wanted)


@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_googles_checkpoint_of_an_electra(part: str, tmp_path: Path) -> None:
    """Hidden states and logits of what both heads compute."""
    sizes = {"num_attention_heads": 1}  # as wide as 64 in Google's code
    discriminator = their_model("electra", "ForPreTraining", tmp_path / "one", **sizes)
    sizes |= {"hidden_size": 4, "num_hidden_layers": 1, "intermediate_size": 12}
    generator = their_model("electra", "ForMaskedLM", tmp_path / "two", **sizes)
    shared = discriminator.electra.embeddings.state_dict()
    generator.electra.embeddings.load_state_dict(shared)
    variables: dict[str, np.ndarray] = {}
    for kind, model in (("discriminator", discriminator), ("generator", generator)):
        tensors = {n: v.numpy() for n, v in model.state_dict().items()}
        variables |= google_variables(tensors, part=kind)
    folder = write_variables(tmp_path / "google", variables)

    theirs = discriminator if part == "discriminator" else generator
    ours, given = batches("electra")
    checkpoint = read_checkpoint(folder, part=part)
    encoder = BertEncoder.from_checkpoint(checkpoint, outputs=("hidden_states",))
    with torch.no_grad():
        wanted = theirs(**given, output_hidden_states=True)
    real = ours["padding_mask"] == 1
    found = encoder(ours)["hidden_states"]
    for one, other in zip(found, wanted.hidden_states, strict=True):
        np.testing.assert_allclose(one[real], other[real], atol=1e-5)
    convert(folder, tmp_path / "ours", part=part)
    opened = type(theirs).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        again = opened(**given).logits
    np.testing.assert_allclose(again, wanted.logits, atol=1e-6)
    if part == "generator":
        model = load_model(tmp_path / "ours")
        ours["masked_positions"] = np.tile(np.arange(9), (3, 1))
        np.testing.assert_allclose(
            np.asarray(model(ours))[real], wanted.logits[real], atol=1e-5
        )
