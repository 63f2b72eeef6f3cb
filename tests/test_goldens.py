"""Numbers that others computed: tests/goldens/encoder.npz, and axlearn's seven cases.

Ours are made by `tests/goldens/make_encoder_golden.py`. axlearn's, made with Hugging
Face transformers too, are next to the repository in `shared/data/axlearn_golden`; where
they do not, those tests are skipped.
"""

import functools
import json
import pathlib

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_keras.checkpoints import read_checkpoint
from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import MaskedLMHead, PooledHead
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.masked_lm import MaskedLM
from bert_keras.tasks.multiple_choice import MultipleChoice
from bert_keras.text.packing import pack_rows

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
OURS = REPOSITORY / "tests/goldens/encoder.npz"
AXLEARN = REPOSITORY.parent / "shared/data/axlearn_golden/axlearn.common.bert_test.npz"
TOLERANCE = 5e-6  # float32 sums in another order; 2.7e-6 on a processor with AVX2

CASES = ("gelu", "gelu_new", "relu", "silu", "one_segment", "causal", "classifier")
SEQUENCE_CLASSIFICATION = (
    "test_sequence_classification_1",  # one output, mean squared error
    "test_sequence_classification_2",
    "test_sequence_classification_3",
    "test_sequence_binary_classification",  # several labels a text, sigmoid
)
MASKED_LM = ("test_for_mlm", "test_for_mlm_with_padding")
AXLEARN_CONFIG = BertConfig(
    vocab_size=24,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=20,
    hidden_act="gelu_new",
)


@functools.cache
def arrays(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def part(path, scope):
    """Return the arrays of a scope by the rest of their names."""
    found = {
        name.removeprefix(f"{scope}/"): values
        for name, values in arrays(path).items()
        if name.startswith(f"{scope}/")
    }
    assert found, f"{path} holds nothing of {scope}"
    return found


def write_case(case, folder):
    """Write the Hugging Face folder that transformers would have saved."""
    config = json.loads(str(arrays(OURS)[f"{case}/config"]))
    (folder / "config.json").write_text(json.dumps(config))
    weights = part(OURS, f"{case}/weights")
    safetensors.numpy.save_file(weights, folder / "model.safetensors")


def batch_of(case):
    inputs = part(OURS, f"{case}/inputs")
    return {
        "token_ids": inputs["input_ids"].astype("int32"),
        "segment_ids": inputs["token_type_ids"].astype("int32"),
        "padding_mask": inputs["attention_mask"].astype("int32"),
    }


@pytest.mark.parametrize("case", CASES)
def test_encoder(case, tmp_path):
    write_case(case, tmp_path)
    encoder = BertEncoder.from_pretrained(
        tmp_path, outputs=("hidden_states", "attentions")
    )
    batch = batch_of(case)
    found, expected = encoder(batch), part(OURS, f"{case}/outputs")
    real = batch["padding_mask"] == 1
    states, attentions = map(np.array, (found["hidden_states"], found["attentions"]))
    assert states.shape == expected["hidden_states"].shape
    np.testing.assert_allclose(
        states[:, real], expected["hidden_states"][:, real], atol=TOLERANCE
    )
    by_query = attentions.transpose(1, 3, 0, 2, 4)  # [B, T, L, N, T]
    wanted = expected["attentions"].transpose(1, 3, 0, 2, 4)
    np.testing.assert_allclose(by_query[real], wanted[real], atol=TOLERANCE)
    if "pooler_output" in expected:
        np.testing.assert_allclose(
            found["pooled_output"], expected["pooler_output"], atol=TOLERANCE
        )


@pytest.mark.parametrize("case", CASES)
def test_encoder_of_packed_rows(case, tmp_path):
    write_case(case, tmp_path)
    batch, expected = batch_of(case), part(OURS, f"{case}/outputs")
    sizes = batch["padding_mask"].sum(1)
    ids, segments = (
        tf.RaggedTensor.from_tensor(batch[name], lengths=sizes)
        for name in ("token_ids", "segment_ids")
    )
    packed = pack_rows(ids, segments)
    assert packed["token_ids"].shape[0] < len(sizes)
    found = BertEncoder.from_pretrained(tmp_path)(packed)["sequence_output"]
    tokens = np.reshape(found, (-1, found.shape[-1]))
    for row, (start, size) in enumerate(
        zip(packed["cls_positions"].numpy(), sizes, strict=True)
    ):
        np.testing.assert_allclose(
            tokens[start : start + size],
            expected["hidden_states"][-1, row, :size],
            atol=TOLERANCE,
        )


def test_classifier(tmp_path):
    write_case("classifier", tmp_path)
    checkpoint = read_checkpoint(tmp_path)
    pooled = BertEncoder.from_pretrained(tmp_path)(batch_of("classifier"))
    logits = head_of(
        checkpoint.arrays["classifier/kernel"], checkpoint.arrays["classifier/bias"]
    )(pooled["pooled_output"])
    expected = part(OURS, "classifier/outputs")["logits"]
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)


def head_of(kernel, bias):
    head = PooledHead(kernel.shape[1])
    head.build((None, kernel.shape[0]))
    head.kernel.assign(kernel)
    head.bias.assign(bias)
    return head


needs_axlearn = pytest.mark.skipif(
    not AXLEARN.is_file(), reason=f"there is no {AXLEARN.name} beside the repository"
)


def axlearn_encoder(case, *, pooler):
    """Return our encoder with the weights of a case, each put under its name here."""
    theirs = part(AXLEARN, f"{case}/params/encoder")
    embeddings = "bert/embeddings"
    values = {
        f"{embeddings}/word_embeddings": theirs["emb/token_emb/weight"],
        f"{embeddings}/position_embeddings": theirs["emb/pos_emb/weight"][0],
        f"{embeddings}/token_type_embeddings": theirs["emb/type_emb/weight"],
        f"{embeddings}/LayerNorm/gamma": theirs["emb/norm/scale"],
        f"{embeddings}/LayerNorm/beta": theirs["emb/norm/bias"],
    }
    for index in range(AXLEARN_CONFIG.num_hidden_layers):
        ours, layer = f"bert/encoder/layer_{index}", f"transformer/layer{index}"
        attention = f"{layer}/self_attention/attention"
        for name in ("query", "key", "value"):
            projection = f"{attention}/i_proj/{name[0]}_proj"
            scope = f"{ours}/attention/self/{name}"
            # [H, N, D] and [N, D]
            values[f"{scope}/kernel"] = theirs[f"{projection}/weight"].reshape(16, 16)
            values[f"{scope}/bias"] = theirs[f"{projection}/bias"].reshape(16)
        output = theirs[f"{attention}/o_proj/weight"].reshape(16, 16)  # [H, N * D]
        values[f"{ours}/attention/output/dense/kernel"] = output.T
        values[f"{ours}/attention/output/dense/bias"] = theirs[
            f"{attention}/o_proj/bias"
        ]
        for scope, dense in (("intermediate", "linear1"), ("output", "linear2")):
            dense = f"{layer}/feed_forward/{dense}"
            values[f"{ours}/{scope}/dense/kernel"] = theirs[f"{dense}/weight"]
            values[f"{ours}/{scope}/dense/bias"] = theirs[f"{dense}/bias"]
        for scope, norm in (
            ("attention/output", "self_attention"),
            ("output", "feed_forward"),
        ):
            norm = f"{layer}/{norm}/norm"
            values[f"{ours}/{scope}/LayerNorm/gamma"] = theirs[f"{norm}/scale"]
            values[f"{ours}/{scope}/LayerNorm/beta"] = theirs[f"{norm}/bias"]
    if pooler:
        head = part(AXLEARN, f"{case}/params/head")
        values["bert/pooler/dense/kernel"] = head["pooler/linear/weight"]
        values["bert/pooler/dense/bias"] = head["pooler/linear/bias"]
    encoder = BertEncoder(AXLEARN_CONFIG, pooler=pooler)
    assert {weight.path for weight in encoder.weights} == set(values)
    for weight in encoder.weights:
        weight.assign(values[weight.path])
    return encoder


def axlearn_batch(case):
    """Return a batch dict of int32 [B, 20]; choices are separate rows."""
    inputs = part(AXLEARN, f"{case}/inputs")
    ids = inputs["input_ids"].reshape(-1, 20).astype("int32")
    segments = inputs.get("token_type_ids", np.zeros_like(ids)).reshape(-1, 20)
    mask = (ids != 0).astype("int32")
    if "padding_mask" in inputs:
        np.testing.assert_array_equal(inputs["padding_mask"].reshape(-1, 20), mask)
    return {
        "token_ids": ids,
        "segment_ids": segments.astype("int32"),
        "padding_mask": mask,
    }


def axlearn_logits(case):
    """Return the logits of our encoder and `PooledHead`."""
    head = part(AXLEARN, f"{case}/params/head")
    pooled = axlearn_encoder(case, pooler=True)(axlearn_batch(case))["pooled_output"]
    return np.array(head_of(head["output/weight"], head["output/bias"])(pooled))


def softmax_loss(logits, labels):
    """Return the mean cross-entropy of logits [N, C]; labels below 0 do not count."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    counted = np.flatnonzero(labels >= 0)
    return -log_p[counted, labels[counted]].mean()


@needs_axlearn
@pytest.mark.parametrize("case", SEQUENCE_CLASSIFICATION)
def test_axlearn_sequence_classification(case):
    outputs = part(AXLEARN, f"{case}/outputs")
    labels = part(AXLEARN, f"{case}/inputs")["target_labels"]
    logits = axlearn_logits(case)
    np.testing.assert_allclose(logits, outputs["logits"], atol=TOLERANCE)
    if logits.shape[1] == 1:
        loss = np.mean((logits[:, 0] - labels) ** 2)
    elif labels.ndim == 2:
        loss = np.mean(np.logaddexp(0, logits) - labels * logits)
    else:
        loss = softmax_loss(logits, labels)
    assert loss == pytest.approx(float(outputs["loss"]), abs=TOLERANCE)


@needs_axlearn
def test_axlearn_multiple_choice():
    case = "test_multiple_choice_classification"
    outputs = part(AXLEARN, f"{case}/outputs")
    shape = outputs["logits"].shape
    encoder = axlearn_encoder(case, pooler=True)
    model = TaskModel(encoder, MultipleChoice(), None)
    head = part(AXLEARN, f"{case}/params/head")
    layer = model.get_layer("classifier")
    layer.kernel.assign(head["output/weight"])
    layer.bias.assign(head["output/bias"])
    batch = axlearn_batch(case)
    logits = np.array(model({k: v.reshape(*shape, 20) for k, v in batch.items()}))
    np.testing.assert_allclose(logits, outputs["logits"], atol=TOLERANCE)
    labels = part(AXLEARN, f"{case}/inputs")["target_labels"]
    loss = MultipleChoice().loss()(labels, logits)
    assert float(loss) == pytest.approx(float(outputs["loss"]), abs=TOLERANCE)


@needs_axlearn
@pytest.mark.parametrize("case", MASKED_LM)
def test_axlearn_masked_lm(case):
    encoder = axlearn_encoder(case, pooler=False)
    outputs = part(AXLEARN, f"{case}/outputs")
    x = np.array(encoder(axlearn_batch(case))["sequence_output"])
    np.testing.assert_allclose(x, outputs["hidden_states_last"], atol=TOLERANCE)

    values = part(AXLEARN, f"{case}/params/head")
    head = MaskedLMHead(hidden_size=16, vocab_size=24, hidden_act="gelu_new")
    head.build()
    head.dense.kernel.assign(values["transform/linear/weight"])
    head.dense.bias.assign(values["transform/linear/bias"])
    head.norm.gamma.assign(values["transform/norm/scale"])
    head.norm.beta.assign(values["transform/norm/bias"])
    head.output_bias.assign(values["output_bias"])
    table = encoder.embeddings.word_embeddings
    logits = np.array(head(x, table))
    np.testing.assert_allclose(logits, outputs["logits"], atol=TOLERANCE)
    labels = part(AXLEARN, f"{case}/inputs")["target_labels"]
    loss = MaskedLM().loss()(np.where(labels < 0, -1, labels), logits)
    assert float(loss) == pytest.approx(float(outputs["loss"]), abs=TOLERANCE)

    # Chosen positions alone: equal to the same columns of all.
    columns = np.array([[3, 0, 19]] * len(x), "int32")
    chosen = head(x, table, columns)
    np.testing.assert_allclose(chosen, logits[:, [3, 0, 19]], atol=TOLERANCE)


@needs_axlearn
def test_axlearn_has_no_other_case():
    cases = {name.split("/")[0] for name in arrays(AXLEARN)}
    tested = {*SEQUENCE_CLASSIFICATION, *MASKED_LM}
    assert cases == tested | {"test_multiple_choice_classification"}
