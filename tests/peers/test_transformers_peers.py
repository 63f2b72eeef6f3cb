"""The encoder, model folders and AdamW equal Hugging Face transformers and torch.

Inputs and random weights are new at each run. A failure prints the seed; the
environment variable PEERS_SEED runs it again.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.checkpoints import read_checkpoint
from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.optimizers import NOT_DECAYED, BertAdamW
from bert_keras.models.convert import extend
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.text.packing import pack_rows
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOLERANCE = 2e-5
SMALL = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}
TEXTS = [
    "You have WON a prize!! Call 0800-123 now",
    "See you at six?",
    "Ünïcödé – naïve café, 東京 and emoji 🎉",
    "",
    "a " * 60,
]


def batch_of(config, rng, lengths):
    """Return random tokens and segments, each row padded to the longest."""
    shape = (len(lengths), max(lengths))
    mask = np.arange(shape[1]) < np.array(lengths)[:, None]
    return {
        "token_ids": rng.integers(1, config.vocab_size, shape) * mask,
        "segment_ids": rng.integers(0, config.type_vocab_size, shape) * mask,
        "padding_mask": mask.astype("int32"),
    }


def theirs(model, batch, **settings):
    tensors = {
        "input_ids": torch.tensor(batch["token_ids"]),
        "token_type_ids": torch.tensor(batch["segment_ids"]),
        "attention_mask": torch.tensor(batch["padding_mask"]).long(),
    }
    with torch.no_grad():
        return model.eval()(**tensors, **settings)


def random_model(name, config, rng, stddev):
    """Return a model of transformers with random weights, biases and LayerNorm too."""
    model = getattr(transformers, name)(config)
    for key, weight in model.named_parameters():
        mean = 1.0 if key.endswith("LayerNorm.weight") else 0.0
        values = rng.normal(mean, stddev, tuple(weight.shape)).astype("float32")
        weight.data = torch.from_numpy(values)
    return model


def assert_all_equal(folder, model, batch):
    """Compare every hidden state, every attention and the pooled output."""
    encoder = BertEncoder.from_pretrained(
        folder, outputs=("hidden_states", "attentions")
    )
    expected = theirs(model, batch, output_hidden_states=True, output_attentions=True)
    found, real = encoder(batch), batch["padding_mask"] == 1
    layers = len(expected.attentions)
    assert len(found["hidden_states"]) == layers + 1
    assert len(found["attentions"]) == layers
    errors = {
        "pooled_output": np.abs(found["pooled_output"] - expected.pooler_output.numpy())
    }
    for index, (a, b) in enumerate(
        zip(found["hidden_states"], expected.hidden_states, strict=True)
    ):
        errors[f"hidden_states {index}"] = np.abs(a - b.numpy())[real]
    for index, (a, b) in enumerate(
        zip(found["attentions"], expected.attentions, strict=True)
    ):
        error = np.abs(a - b.numpy()).transpose(0, 2, 1, 3)  # [B, T, N, T]
        errors[f"attentions {index}"] = error[real]
    largest = {name: float(values.max()) for name, values in errors.items()}
    print("largest error", max(largest.values()))
    assert all(value <= TOLERANCE for value in largest.values()), largest


@pytest.mark.parametrize("lengths", [(24, 24), (128, 17, 1, 60)])
def test_minilm(minilm, rng, lengths):
    model = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager")
    assert_all_equal(minilm, model, batch_of(model.config, rng, lengths))


def test_packed_rows_of_minilm(minilm, rng):
    # transformers gets one text per row, ours several.
    model = transformers.AutoModel.from_pretrained(minilm)
    lengths = (9, 40, 3, 17, 25, 2, 31)
    batch = batch_of(model.config, rng, lengths)
    ids, segments = (
        tf.RaggedTensor.from_tensor(batch[name].astype("int32"), lengths=lengths)
        for name in ("token_ids", "segment_ids")
    )
    packed = pack_rows(ids, segments)
    assert packed["token_ids"].shape[0] < len(lengths)
    found, expected = BertEncoder.from_pretrained(minilm)(packed), theirs(model, batch)
    np.testing.assert_allclose(
        found["pooled_output"], expected.pooler_output.numpy(), atol=TOLERANCE
    )
    tokens = np.reshape(found["sequence_output"], (-1, model.config.hidden_size))
    for row, start in enumerate(packed["cls_positions"].numpy()):
        np.testing.assert_allclose(
            tokens[start : start + lengths[row]],
            expected.last_hidden_state[row, : lengths[row]].numpy(),
            atol=TOLERANCE,
        )


@pytest.mark.parametrize("lengths", [(12,), (48, 5)])
def test_base_shape(tmp_path, rng, lengths):
    config = transformers.BertConfig(vocab_size=200, attn_implementation="eager")
    model = random_model("BertModel", config, rng, stddev=0.02)
    model.save_pretrained(tmp_path)
    assert_all_equal(tmp_path, model, batch_of(config, rng, lengths))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "gelu_new"},
        {"hidden_act": "relu"},
        {"hidden_act": "silu"},
        {"hidden_act": "gelu_pytorch_tanh"},
        {"layer_norm_eps": 3e-3},
        {"type_vocab_size": 1},
        {"type_vocab_size": 3},
        {"is_decoder": True},
        {"num_attention_heads": 1},
        {"num_attention_heads": 24},
    ],
    ids=str,
)
def test_other_configs(tmp_path, rng, changes):
    config = transformers.BertConfig(
        **{**SMALL, **changes}, attn_implementation="eager"
    )
    model = random_model("BertModel", config, rng, stddev=0.2)
    model.save_pretrained(tmp_path)
    assert_all_equal(tmp_path, model, batch_of(config, rng, (32, 7, 1)))


# Model folders.


def classifier(minilm, rng, folder, **settings):
    """Save a classifier of transformers with MiniLM's tokenizer; return both."""
    config = transformers.BertConfig(
        **{**SMALL, "vocab_size": 30_522},
        id2label={0: "ham", 1: "spam", 2: "eggs"},
        label2id={"ham": 0, "spam": 1, "eggs": 2},
    )
    model = random_model("BertForSequenceClassification", config, rng, stddev=0.2)
    model.save_pretrained(folder, **settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def their_logits(model, tokenizer, texts, max_length):
    encoded = tokenizer(
        texts,
        padding=True,
        truncation=True,
        max_length=max_length,
        return_tensors="pt",
    )
    with torch.no_grad():
        return model.eval()(**encoded).logits.numpy()


@pytest.mark.parametrize("settings", [{}, {"max_shard_size": "500KB"}], ids=str)
def test_their_classifier_opens_here(minilm, rng, tmp_path, settings):
    model, tokenizer = classifier(minilm, rng, tmp_path, **settings)
    shards = list(tmp_path.glob("model-*.safetensors"))
    assert bool(shards) == bool(settings)
    ours = load_model(tmp_path)
    assert isinstance(ours.task, Classification)
    assert ours.task.classes == ("ham", "spam", "eggs")
    expected = their_logits(model, tokenizer, TEXTS, ours.preprocessor.max_length)
    np.testing.assert_allclose(ours.predict(TEXTS, verbose=0), expected, atol=TOLERANCE)


def test_pairs_give_the_same_logits(minilm, rng, tmp_path):
    model, tokenizer = classifier(minilm, rng, tmp_path)
    ours = load_model(tmp_path)
    first, second = TEXTS, TEXTS[::-1]
    encoded = tokenizer(
        first,
        second,
        padding=True,
        truncation="longest_first",
        max_length=ours.preprocessor.max_length,
        return_tensors="pt",
    )
    with torch.no_grad():
        expected = model.eval()(**encoded).logits.numpy()
    found = ours.predict((first, second), verbose=0)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_model_trained_here_opens_there(minilm, tmp_path, lowercase):
    encoder = BertEncoder(BertConfig(**{**SMALL, "vocab_size": 30_522}), seed=1)
    tokenizer = WordPieceTokenizer.from_folder(minilm, lowercase=lowercase)
    task = Classification(("ham", "spam", "eggs"))
    model = TaskModel(
        encoder, task, Preprocessor(tokenizer, max_length=24, layout="packed"), seed=2
    )
    model.compile(BertAdamW(0.01), loss=task.loss())
    labels = ["spam", "ham", "eggs", "ham", "ham"]
    model.fit(TEXTS, labels, batch_size=5, epochs=2, shuffle=False, verbose=0)
    save_model(model, tmp_path)

    loaded, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert type(loaded) is transformers.BertForSequenceClassification
    assert not any(info.values()), info
    assert loaded.config.id2label == {0: "ham", 1: "spam", 2: "eggs"}
    assert loaded.config.label2id == {"ham": 0, "spam": 1, "eggs": 2}

    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = model.preprocessor.join(tf.constant(TEXTS))[0].to_list()
    encoded = their_tokenizer(TEXTS, truncation=True, max_length=24)["input_ids"]
    assert encoded == ours

    found = model.predict(TEXTS, verbose=0)
    expected = their_logits(loaded, their_tokenizer, TEXTS, 24)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    again = load_model(tmp_path).predict(TEXTS, verbose=0)
    np.testing.assert_array_equal(again, found)


def test_added_tokens_open_there(minilm, tmp_path):
    tokens = ["scramjetty", "COVID19", "boundary layer", "東京", "[E1]"]
    model = TaskModel.from_pretrained(
        minilm, "classification", classes=("a", "b"), max_length=24, add_tokens=tokens
    )
    save_model(model, tmp_path / "added")
    tokenizer = WordPieceTokenizer.from_folder(minilm)
    words = ["aeroelastix", "covid19"]
    extend(minilm, words, tmp_path / "words")
    texts = [
        *TEXTS,
        "Scramjetty covid19, scramjettys COVID190 a[E1]東京boundary layer",
    ]
    texts += ["aeroelastixs covid19s", "Aeroelastix"]
    for name in ("added", "words"):
        ours = WordPieceTokenizer.from_folder(tmp_path / name)
        assert len(ours) == len(tokenizer) + (len(tokens) if name == "added" else 2)
        ids = Preprocessor(ours, max_length=24).join(tf.constant(texts))[0].to_list()
        their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        found = their_tokenizer(texts, truncation=True, max_length=24)["input_ids"]
        assert found == ids
        encoder = BertEncoder.from_pretrained(tmp_path / name)
        loaded = transformers.AutoModel.from_pretrained(tmp_path / name)
        assert loaded.config.vocab_size == encoder.config.vocab_size == len(ours)
        batch = Preprocessor(ours, max_length=24, layout="padded")(texts)
        batch = {key: np.asarray(value) for key, value in batch.items()}
        expected = theirs(loaded, batch).last_hidden_state.numpy()
        real = batch["padding_mask"] == 1
        error = np.abs(encoder(batch)["sequence_output"] - expected)[real]
        assert error.max() <= TOLERANCE


def test_names_of_a_model_of_theirs_are_all_known(tmp_path, rng):
    config = transformers.BertConfig(**SMALL)
    for name in ("BertModel", "BertForPreTraining", "BertForQuestionAnswering"):
        random_model(name, config, rng, 0.1).save_pretrained(tmp_path / name)
        checkpoint = read_checkpoint(tmp_path / name)
        assert checkpoint.unrecognized == ()
        encoder = BertEncoder.from_pretrained(tmp_path / name)
        with_pooler = name != "BertForQuestionAnswering"
        assert ("pooled_output" in encoder.output) == with_pooler


# The optimizer.

SHAPES = {"kernel": (5, 4), "bias": (4,), "gamma": (4,), "table": (7, 3)}
SETTINGS = {"weight_decay": 0.1, "beta_1": 0.9, "beta_2": 0.999}


def both_after(rng, *, steps, epsilon, clip):
    """Return the weights after some steps of ours and of torch, gradients equal."""
    import keras

    values = {
        name: rng.normal(size=shape).astype("float32") for name, shape in SHAPES.items()
    }
    ours = [keras.Variable(array, name=name) for name, array in values.items()]
    their_weights = {
        name: torch.nn.Parameter(torch.from_numpy(array.copy()))
        for name, array in values.items()
    }
    optimizer = BertAdamW(0.01, **SETTINGS, epsilon=epsilon, global_clipnorm=clip)
    groups = [
        {
            "params": [weight],
            "weight_decay": 0.0 if name in NOT_DECAYED else SETTINGS["weight_decay"],
        }
        for name, weight in their_weights.items()
    ]
    peer = torch.optim.AdamW(
        groups, lr=0.01, betas=(SETTINGS["beta_1"], SETTINGS["beta_2"]), eps=epsilon
    )
    for _ in range(steps):
        for weight in their_weights.values():
            values = rng.normal(size=tuple(weight.shape)).astype("float32")
            weight.grad = torch.from_numpy(values)
        gradients = [weight.grad.numpy().copy() for weight in their_weights.values()]
        if clip:
            torch.nn.utils.clip_grad_norm_(their_weights.values(), clip)
        peer.step()
        optimizer.apply_gradients(zip(gradients, ours, strict=True))
    return (
        [weight.numpy() for weight in ours],
        [weight.detach().numpy() for weight in their_weights.values()],
    )


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-2])
def test_adamw(rng, clip, epsilon):
    found, expected = both_after(rng, steps=5, epsilon=epsilon, clip=clip)
    largest = max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True))
    print("largest error", largest)
    assert largest < 2e-6
