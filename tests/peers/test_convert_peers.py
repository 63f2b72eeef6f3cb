"""Conversion of each BertFor… class: names, values and outputs stay what they were."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_keras.models.convert import convert
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "hidden_act": "gelu_new",
}
SEVERAL = {"num_labels": 3, "problem_type": "multi_label_classification"}
# Hugging Face's class, its config, and the formats that it goes through.
MODELS = {
    "encoder": ("BertModel", {}, ("google", "keras-hub", "model-garden")),
    "pretraining": ("BertForPreTraining", {}, ("google", "model-garden")),
    "masked-lm": ("BertForMaskedLM", {}, ("google", "keras-hub", "model-garden")),
    "next-sentence": ("BertForNextSentencePrediction", {}, ("google",)),
    "classes": (
        "BertForSequenceClassification",
        {"id2label": {0: "x", 1: "y", 2: "z"}, "label2id": {"x": 0, "y": 1, "z": 2}},
        ("google", "keras-hub"),
    ),
    "two classes": ("BertForSequenceClassification", {}, ("google", "keras-hub")),
    "labels": ("BertForSequenceClassification", SEVERAL, ("google", "keras-hub")),
    "regression": (
        "BertForSequenceClassification",
        {"num_labels": 1},
        ("google", "keras-hub"),
    ),
    "tags": ("BertForTokenClassification", {"num_labels": 5}, ("google",)),
    "questions": ("BertForQuestionAnswering", {}, ("google",)),
    "choices": ("BertForMultipleChoice", {}, ("google", "keras-hub")),
}


@pytest.mark.parametrize(
    ("name", "through"),
    [(name, to) for name, case in MODELS.items() for to in ("", *case[2])],
)
def test_there_and_back(name, through, tmp_path):
    kind, config, _ = MODELS[name]
    torch.manual_seed(3)
    model_class = getattr(transformers, kind)
    model = model_class(transformers.BertConfig(**SIZES, **config)).eval()
    source = tmp_path / "theirs"
    model.save_pretrained(source)
    WordPieceTokenizer(WORDS).save(source)
    if through:
        convert(source, tmp_path / "between", to=through)
        source = tmp_path / "between"
    convert(source, tmp_path / "back")
    wanted = load_file(tmp_path / "theirs" / "model.safetensors")
    found = load_file(tmp_path / "back" / "model.safetensors")
    assert sorted(found) == sorted(wanted)
    for key, array in wanted.items():
        np.testing.assert_array_equal(found[key], array, strict=True)
    again, told = model_class.from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not any(told.values()), told
    assert again.config.hidden_act == "gelu_new"
    assert again.config.id2label == model.config.id2label
    assert again.config.problem_type == model.config.problem_type
    ids = torch.tensor([[2, 7, 8, 3, 9, 3]])
    inputs = ids[None] if kind == "BertForMultipleChoice" else ids
    with torch.no_grad():
        for one, two in zip(
            model(inputs).to_tuple(), again.eval()(inputs).to_tuple(), strict=True
        ):
            # Equal weights; torch sums in another order if the memory layout differs.
            torch.testing.assert_close(one, two, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["classes", "tags", "masked-lm"])
def test_kept_layers_are_those_of_transformers(name, tmp_path):
    kind, config, _ = MODELS[name]
    torch.manual_seed(4)
    sizes = {**SIZES, "num_hidden_layers": 4}
    model_class = getattr(transformers, kind)
    model = model_class(transformers.BertConfig(**sizes, **config)).eval()
    model.save_pretrained(tmp_path / "theirs")
    WordPieceTokenizer(WORDS).save(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "ours", keep_layers="0,3")
    kept = [model.bert.encoder.layer[number] for number in (0, 3)]
    model.bert.encoder.layer = torch.nn.ModuleList(kept)
    again, told = model_class.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(told.values()), told
    assert again.config.num_hidden_layers == 2
    ids = torch.tensor([[2, 7, 8, 3, 9, 3]])
    with torch.no_grad():
        wanted, found = model(ids)[0], again.eval()(ids)[0]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-6)
