"""Names of weights: the canonical names, and the names of every other format.

The tables hold each name once; the functions below read them in both directions. For
Hugging Face and Google they also return whether the values are transposed.

Source: google-research/bert `modeling.py`, `run_pretraining.py`, `run_classifier.py`,
`run_squad.py`; google-research/electra `model/modeling.py` and `run_pretraining.py`;
Hugging Face transformers `modeling_bert.py`, `modeling_distilbert.py` and
`modeling_electra.py`, and of release 4 their `modeling_tf_…`; KerasHub
`bert_backbone.py`, `distil_bert_backbone.py`, `electra_backbone.py`,
`masked_lm_head.py`, and the files that it saves; TF Model Garden
`bert_encoder.py`, `transformer_encoder_block.py`, `masked_lm.py`, `cls_head.py`,
`official/legacy/bert/tf1_checkpoint_converter_lib.py` and
`official/nlp/tools/export_tfhub_lib.py` for the names of TF-Hub's SavedModels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bert_keras.errors import CheckpointError

_LAYER = "bert/encoder/layer_#"  # `#` stands for the number of the layer
# Scopes with a kernel and a bias or, for LayerNorm, a gamma and a beta.
_SCOPES = (
    "bert/embeddings/LayerNorm",
    "bert/pooler/dense",
    f"{_LAYER}/attention/self/query",
    f"{_LAYER}/attention/self/key",
    f"{_LAYER}/attention/self/value",
    f"{_LAYER}/attention/output/dense",
    f"{_LAYER}/attention/output/LayerNorm",
    f"{_LAYER}/intermediate/dense",
    f"{_LAYER}/output/dense",
    f"{_LAYER}/output/LayerNorm",
    "cls/predictions/transform/dense",
    "cls/predictions/transform/LayerNorm",
    "cls/seq_relationship",
    "classifier",
    "qa_outputs",
)
_TABLES = tuple(
    f"bert/embeddings/{table}_embeddings"
    for table in ("word", "position", "token_type")
)


def _parts(scope: str) -> tuple[str, str]:
    """Return the names of the two weights of a scope."""
    return ("gamma", "beta") if scope.endswith("LayerNorm") else ("kernel", "bias")


def _weights(
    scopes: Mapping[str, str],
    layers: str,
    theirs: tuple[str, str] | None = None,
    *,
    step: str = "/",
) -> dict[str, str]:
    """Map our names of the two weights of each scope to the names of another format.

    Args:
        scopes: our scope to theirs; for a layer's scope, the part after `layers`.
        layers: the scope of the layers.
        theirs: their names of the two weights of a scope; by default ours.
        step: what separates the steps of their names.
    """
    found = {}
    for scope, their_scope in scopes.items():
        place = f"{layers}{step}{their_scope}" if "#" in scope else their_scope
        for name, part in zip(_parts(scope), theirs or _parts(scope), strict=True):
            found[f"{scope}/{name}"] = f"{place}{step}{part}"
    return found


def _of_huggingface(scope: str, part: str) -> str:
    return f"{scope}.{part}".replace("/layer_", "/layer/").replace("/", ".")


_TORCH = ("weight", "bias")  # torch's names of the two weights of a scope
# canonical name: Hugging Face name
TABLE = {table: _of_huggingface(table, "weight") for table in _TABLES}
TABLE["cls/predictions/output_bias"] = "cls.predictions.bias"
TABLE |= {
    f"{scope}/{ours}": _of_huggingface(scope, theirs)
    for scope in _SCOPES
    for ours, theirs in zip(_parts(scope), _TORCH, strict=True)
}

# canonical name: DistilBERT's and ELECTRA's name in Hugging Face.
EMBEDDINGS_PROJECT = "bert/embeddings/embeddings_project"
DISCRIMINATOR = "discriminator_predictions"
_DISTILBERT_SCOPES = {
    "bert/embeddings/LayerNorm": "distilbert.embeddings.LayerNorm",
    f"{_LAYER}/attention/self/query": "attention.q_lin",
    f"{_LAYER}/attention/self/key": "attention.k_lin",
    f"{_LAYER}/attention/self/value": "attention.v_lin",
    f"{_LAYER}/attention/output/dense": "attention.out_lin",
    f"{_LAYER}/attention/output/LayerNorm": "sa_layer_norm",
    f"{_LAYER}/intermediate/dense": "ffn.lin1",
    f"{_LAYER}/output/dense": "ffn.lin2",
    f"{_LAYER}/output/LayerNorm": "output_layer_norm",
    "bert/pooler/dense": "pre_classifier",
    "cls/predictions/transform/dense": "vocab_transform",
    "cls/predictions/transform/LayerNorm": "vocab_layer_norm",
    "classifier": "classifier",
    "qa_outputs": "qa_outputs",
}
_DISTILBERT = {
    **{t: f"distilbert{TABLE[t].removeprefix('bert')}" for t in _TABLES[:2]},
    "cls/predictions/output_bias": "vocab_projector.bias",
    **_weights(_DISTILBERT_SCOPES, "distilbert.transformer.layer.#", _TORCH, step="."),
}
_ELECTRA = {
    ours: f"electra{theirs.removeprefix('bert')}"
    for ours, theirs in TABLE.items()
    if ours.startswith(("bert/embeddings/", "bert/encoder/"))
}
_ELECTRA["cls/predictions/output_bias"] = "generator_lm_head.bias"
_ELECTRA |= _weights(
    {
        EMBEDDINGS_PROJECT: "electra.embeddings_project",
        "bert/pooler/dense": "classifier.dense",
        "cls/predictions/transform/dense": "generator_predictions.dense",
        "cls/predictions/transform/LayerNorm": "generator_predictions.LayerNorm",
        "classifier": "classifier.out_proj",
        "qa_outputs": "qa_outputs",
        f"{DISCRIMINATOR}/dense": f"{DISCRIMINATOR}.dense",
        f"{DISCRIMINATOR}/dense_prediction": f"{DISCRIMINATOR}.dense_prediction",
    },
    "",
    _TORCH,
    step=".",
)
# ELECTRA's class names that are other than those in its class for sequences: the start
# of our name, theirs in that class and theirs in this one.
_ELECTRA_CLASSES = {
    "BertForTokenClassification": (("classifier.out_proj.", "classifier."),),
    "BertForMultipleChoice": (
        ("classifier.dense.", "sequence_summary.summary."),
        ("classifier.out_proj.", "classifier."),
    ),
}

# Google's names are the canonical ones except for the output layers of its heads.
GOOGLE = {
    "cls/seq_relationship/kernel": "cls/seq_relationship/output_weights",
    "cls/seq_relationship/bias": "cls/seq_relationship/output_bias",
    "classifier/kernel": "output_weights",
    "classifier/bias": "output_bias",
    "qa_outputs/kernel": "cls/squad/output_weights",
    "qa_outputs/bias": "cls/squad/output_bias",
}

# canonical name: Google's name in a checkpoint of ELECTRA, which has both heads. The
# encoder is the discriminator's; a generator's is in the scope `generator`.
GOOGLE_ELECTRA = {
    name: f"electra{name.removeprefix('bert')}"
    for name in TABLE
    if name.startswith(("bert/embeddings/", "bert/encoder/"))
}
GOOGLE_ELECTRA["cls/predictions/output_bias"] = "generator_predictions/output_bias"
GOOGLE_ELECTRA |= _weights(
    {
        EMBEDDINGS_PROJECT: "electra/embeddings_project",
        "cls/predictions/transform/dense": "generator_predictions/dense",
        "cls/predictions/transform/LayerNorm": "generator_predictions/LayerNorm",
        f"{DISCRIMINATOR}/dense": f"{DISCRIMINATOR}/dense",
        f"{DISCRIMINATOR}/dense_prediction": f"{DISCRIMINATOR}/dense_1",
    },
    "",
)

# canonical name: KerasHub's file and place in it, for each model type. Keras names the
# parts of a model after their class, numbers parts of the same class
# (`transformer_encoder`, `transformer_encoder_1`), and numbers the weights of each.
_KERAS_HUB_TABLES = {
    "bert/embeddings/word_embeddings": "model:layers/reversible_embedding/vars/0",
    "bert/embeddings/position_embeddings": "model:layers/position_embedding/vars/0",
    "bert/embeddings/token_type_embeddings": "model:layers/embedding/vars/0",
}
_OF_DISTILBERT = "model:layers/token_and_position_embedding"
_DISTILBERT_TABLES = {
    "bert/embeddings/word_embeddings": f"{_OF_DISTILBERT}/token_embedding/vars/0",
    "bert/embeddings/position_embeddings": (
        f"{_OF_DISTILBERT}/position_embedding/vars/0"
    ),
}
_KERAS_HUB_SCOPES = {
    "bert/embeddings/LayerNorm": "model:layers/layer_normalization",
    f"{_LAYER}/attention/self/query": "_self_attention_layer/query_dense",
    f"{_LAYER}/attention/self/key": "_self_attention_layer/key_dense",
    f"{_LAYER}/attention/self/value": "_self_attention_layer/value_dense",
    f"{_LAYER}/attention/output/dense": "_self_attention_layer/output_dense",
    f"{_LAYER}/attention/output/LayerNorm": "_self_attention_layer_norm",
    f"{_LAYER}/intermediate/dense": "_feedforward_intermediate_dense",
    f"{_LAYER}/output/dense": "_feedforward_output_dense",
    f"{_LAYER}/output/LayerNorm": "_feedforward_layer_norm",
}
_KERAS_HUB_MASKED_LM = {
    "cls/predictions/transform/dense": "task:layers/masked_lm_head/_intermediate_dense",
    "cls/predictions/transform/LayerNorm": (
        "task:layers/masked_lm_head/_intermediate_layer_norm"
    ),
}


def _of_keras_hub(
    tables: Mapping[str, str], scopes: Mapping[str, str], *, masked_lm: bool = True
) -> dict[str, str]:
    """Return the names of a model with these tables and these further dense layers."""
    found = {
        **_KERAS_HUB_SCOPES,
        **scopes,
        **(_KERAS_HUB_MASKED_LM if masked_lm else {}),
    }
    bias = {"cls/predictions/output_bias": "task:layers/masked_lm_head/vars/0"}
    return {
        **tables,
        **_weights(found, "model:layers/transformer_encoder_#", ("vars/0", "vars/1")),
        **(bias if masked_lm else {}),
    }


KERAS_HUB = {
    "bert": _of_keras_hub(
        _KERAS_HUB_TABLES,
        {"bert/pooler/dense": "model:layers/dense", "classifier": "task:layers/dense"},
    ),
    # The layer below the classifier is in the classifier's file.
    "distilbert": _of_keras_hub(
        _DISTILBERT_TABLES,
        {"bert/pooler/dense": "task:layers/dense", "classifier": "task:layers/dense_1"},
    ),
    "electra": _of_keras_hub(
        _KERAS_HUB_TABLES,
        {
            EMBEDDINGS_PROJECT: "model:layers/dense",
            "bert/pooler/dense": "model:layers/dense_1",
        },
        masked_lm=False,
    ),
}
# Keras does not number the first part of a class.
_FIRST = ("/transformer_encoder/", "/transformer_encoder_0/")

# canonical name: its place in the objects of TF Model Garden, from one of three roots:
# the encoder, the masked-LM head and the head named `next_sentence`. Each step is an
# attribute of a Python object, which is what an object-based checkpoint stores.
MODEL_GARDEN = {
    "bert/embeddings/word_embeddings": "encoder/_embedding_layer/embeddings",
    "bert/embeddings/position_embeddings": (
        "encoder/_position_embedding_layer/embeddings"
    ),
    "bert/embeddings/token_type_embeddings": "encoder/_type_embedding_layer/embeddings",
}
_GARDEN_SCOPES = {
    "bert/embeddings/LayerNorm": "encoder/_embedding_norm_layer",
    "bert/pooler/dense": "encoder/_pooler_layer",
    "cls/predictions/transform/dense": "masked_lm/dense",
    "cls/predictions/transform/LayerNorm": "masked_lm/layer_norm",
    "cls/seq_relationship": "next_sentence/out_proj",
    f"{_LAYER}/attention/self/query": "_attention_layer/_query_dense",
    f"{_LAYER}/attention/self/key": "_attention_layer/_key_dense",
    f"{_LAYER}/attention/self/value": "_attention_layer/_value_dense",
    f"{_LAYER}/attention/output/dense": "_attention_layer/_output_dense",
    f"{_LAYER}/attention/output/LayerNorm": "_attention_layer_norm",
    f"{_LAYER}/intermediate/dense": "_intermediate_dense",
    f"{_LAYER}/output/dense": "_output_dense",
    f"{_LAYER}/output/LayerNorm": "_output_layer_norm",
}
MODEL_GARDEN |= _weights(_GARDEN_SCOPES, "encoder/_transformer_layers/#")
MODEL_GARDEN["cls/predictions/output_bias"] = "masked_lm/bias"

# The canonical axis that KerasHub and Model Garden store as two: heads and head width.
HEAD_AXES = {
    "attention/self/query/kernel": 1,
    "attention/self/query/bias": 0,
    "attention/self/key/kernel": 1,
    "attention/self/key/bias": 0,
    "attention/self/value/kernel": 1,
    "attention/self/value/bias": 0,
    "attention/output/dense/kernel": 0,
}

# Copies that Hugging Face files may hold of a weight that the model ties.
TIED = {
    "cls.predictions.decoder.weight": "bert/embeddings/word_embeddings",
    "cls.predictions.decoder.bias": "cls/predictions/output_bias",
}
# Constants that older transformers releases saved among the weights.
BUFFERS = {"embeddings.position_ids", "embeddings.token_type_ids"}

# State that an optimizer keeps for each variable, below its name.
_SLOT = re.compile(
    r"(?:adam|lamb)_[mv]|(?:Adam|AdamW|AdamWeightDecayOptimizer|LAMB|LAMBOptimizer"
    r"|Momentum|ExponentialMovingAverage)(?:_[0-9]{1,2})?"
)
_COUNTERS = {"global_step", "beta1_power", "beta2_power", "good_steps", "loss_scale"}

# No leading zero: two spellings of one layer would break the round trip.
_NUMBER = "(?:0|[1-9][0-9]{0,3})"
_OUR_NUMBER = re.compile(rf"(?<=^bert/encoder/layer_){_NUMBER}(?=/)")
_MOST_STEPS = 12  # of a name; no weight has more
_OWN = re.compile(r"[A-Za-z0-9_.\-]{1,99}(/[A-Za-z0-9_.\-]{1,99}){1,9}")


class Renamed(NamedTuple):
    """A weight's name on the other side, and whether its values are transposed."""

    name: str
    transpose: bool


class _Spelling:
    """The names of one format, `#` in place of a layer's number.

    Args:
        table: canonical name to the format's name.
        layers: the pattern of the text before a layer's number in the format's names.
        lacks: the start of the error for other names.
        plain: maps spellings that count as equal when read to one of them.
    """

    def __init__(
        self,
        table: Mapping[str, str],
        layers: str,
        *,
        lacks: str,
        plain: Callable[[str], str] = str,
    ) -> None:
        self._table, self._lacks, self._plain = table, lacks, plain
        self._canonical = {plain(theirs): ours for ours, theirs in table.items()}
        self._number = re.compile(rf"(?<={layers}){_NUMBER}(?=[./])")

    def canonical(self, theirs: str) -> str | None:
        """Return the canonical name of a format's name, or `None` if it has none."""
        theirs = self._plain(theirs)
        number = self._number.search(theirs)
        ours = self._canonical.get(self._number.sub("#", theirs))
        if ours is None or "#" in theirs:
            return None
        return ours.replace("#", number.group()) if number else ours

    def spelled(self, name: str) -> str:
        """Return the format's name of a weight; raise a CheckpointError if none."""
        number = _OUR_NUMBER.search(name)
        theirs = None if "#" in name else self._table.get(_OUR_NUMBER.sub("#", name))
        if theirs is None:
            raise CheckpointError(f"{self._lacks} named {name!r}")
        return theirs.replace("#", number.group()) if number else theirs


# TensorFlow's names in transformers up to release 4: `tf_model.h5`, and safetensors of
# the format `tf`. Embeddings are named for the variable of their layer.
_TENSORFLOW_SUFFIX = ":0"
_MODEL_SCOPE = re.compile(r"tf_(?:bert|distil_bert|electra|encoder_decoder)\w*/")
_TABLE_VARIABLE = re.compile(r"(?<=_embeddings)/(?:embeddings|weight)$")
_MAIN_LAYERS = re.compile(r"(?<![^/])(?:mlm|nsp)___cls(?=/)")


def _plain_tensorflow(name: str) -> str:
    return _TABLE_VARIABLE.sub("", _MAIN_LAYERS.sub("cls", name))


def _of_tensorflow(ours: str, theirs: str) -> str:
    """Return TensorFlow's name of a weight from our name and torch's."""
    scope = theirs.rpartition(".")[0].replace(".", "/").replace("layer/#", "layer_._#")
    part = ours.rpartition("/")[2].removeprefix("output_")
    return scope if ours in _TABLES else f"{scope}/{part}"


def _plain_electra(name: str) -> str:
    """Return a name of a class of ELECTRA as its class for sequences has it."""
    step = "/" if "/" in name else "."
    scope, _, part = name.rpartition(step)
    for pairs in _ELECTRA_CLASSES.values():
        for general, special in pairs:
            if f"{scope}.".replace("/", ".") == special:
                return f"{general.replace('.', step)}{part}"
    return name


class _ModelType(NamedTuple):
    """The names in the Hugging Face folders of one `model_type`.

    Args:
        table: canonical name to theirs.
        spelling: of the table.
        tensorflow: the spelling of the TensorFlow classes.
        parts: the first steps of the encoder's names behind its prefix.
        tied: as in `TIED`.
    """

    table: Mapping[str, str]
    spelling: _Spelling
    tensorflow: _Spelling
    parts: tuple[str, ...]
    tied: Mapping[str, str]

    @classmethod
    def of(
        cls,
        named: str,
        table: Mapping[str, str],
        layers: str,
        parts: tuple[str, ...],
        tied: Mapping[str, str],
        plain: Callable[[str], str] = str,
    ) -> _ModelType:
        """Return the names of a type; `layers` is the scope of its layers."""
        return cls(
            table,
            _Spelling(
                table,
                rf"^{re.escape(layers)}\.",
                lacks=f"no weight of {named} or of a head is",
                plain=plain,
            ),
            _Spelling(
                {ours: _of_tensorflow(ours, theirs) for ours, theirs in table.items()},
                rf"^{layers.replace('.', '/')}_\._",
                lacks=f"transformers' TensorFlow classes of {named} have no weight",
                plain=lambda name: plain(_plain_tensorflow(name)),
            ),
            parts,
            tied,
        )


_WORDS = "bert/embeddings/word_embeddings"
_MODEL_TYPES = {
    "bert": _ModelType.of(
        "BERT",
        TABLE,
        "bert.encoder.layer",
        ("embeddings.", "encoder.", "pooler."),
        TIED,
    ),
    "distilbert": _ModelType.of(
        "DistilBERT",
        _DISTILBERT,
        "distilbert.transformer.layer",
        ("embeddings.", "transformer."),
        {"vocab_projector.weight": _WORDS},
    ),
    "electra": _ModelType.of(
        "ELECTRA",
        _ELECTRA,
        "electra.encoder.layer",
        ("embeddings.", "embeddings_project.", "encoder."),
        {"generator_lm_head.weight": _WORDS},
        _plain_electra,
    ),
}
_GOOGLE = _Spelling(
    {name: GOOGLE.get(name, name) for name in TABLE},
    "^bert/encoder/layer_",
    lacks="Google's BERT has no weight",
)
_GOOGLE_ELECTRA = _Spelling(
    GOOGLE_ELECTRA, "^electra/encoder/layer_", lacks="Google's ELECTRA has no weight"
)
_KERAS_HUB = {
    model_type: _Spelling(
        table,
        "^model:layers/transformer_encoder_",
        lacks=f"KerasHub's {named} has no weight",
        plain=lambda place: place.replace("/_", "/"),
    )
    for (model_type, table), named in zip(
        KERAS_HUB.items(), ("BERT", "DistilBERT", "ELECTRA"), strict=True
    )
}
_MODEL_GARDEN = _Spelling(
    MODEL_GARDEN,
    "^encoder/_transformer_layers/",
    lacks="Model Garden's BertPretrainerV2 has no weight",
)


def tied_names(model_type: str) -> Mapping[str, str]:
    """Return the copies of tied weights that the folders of a model type may hold."""
    return _MODEL_TYPES[model_type].tied


def from_huggingface(name: str, model_type: str = "bert") -> Renamed | None:
    """Return the canonical name of a Hugging Face weight, or `None` if it has none.

    With or without the encoder's prefix, such as `bert.`; LayerNorm as `weight`, `bias`
    or, in older files, `gamma`, `beta`. Names of the TensorFlow and Flax classes of
    transformers 4 are read too. Another name with a slash is a canonical
    name that Hugging Face has no name for (see `to_huggingface`).
    """
    table, spelling, tensorflow, parts, _ = _MODEL_TYPES[model_type]
    if is_tensorflow(name):
        name = name.removesuffix(_TENSORFLOW_SUFFIX)
        if name.replace("/", ".").startswith(parts):
            name = f"{model_type}/{name}"
        ours = tensorflow.canonical(name)
        return None if ours is None else Renamed(ours, False)
    if "/" in name:
        known = name.startswith(("bert/", "cls/")) or name in table
        return None if known or not _OWN.fullmatch(name) else Renamed(name, False)
    if name.startswith(parts):
        name = f"{model_type}.{name}"
    scope, _, part = name.rpartition(".")
    kind = next((k for k in _OTHER_PARTS if scope.endswith(k)), "")
    ours = spelling.canonical(f"{scope}.{_OTHER_PARTS[kind].get(part, part)}")
    if ours is None:
        return None
    return Renamed(ours, ours.endswith("/kernel") and part != "kernel")


# The end of a scope: other names of its parts, of older files and of Flax.
_OTHER_PARTS = {
    ".LayerNorm": {"gamma": "weight", "beta": "bias", "scale": "weight"},
    "_embeddings": {"embedding": "weight"},
    "": {"kernel": "weight"},
}


def is_tensorflow(name: str) -> bool:
    """Return whether a name in a Hugging Face file is a TensorFlow variable's."""
    return name.endswith(_TENSORFLOW_SUFFIX)


def is_model_scope(prefix: str) -> bool:
    """Return whether a prefix is the scope that a TFBert class gives its variables."""
    return bool(_MODEL_SCOPE.fullmatch(prefix))


def encoder_prefix(name: str, canonical: Callable[[str], Renamed | None]) -> str | None:
    """Return the prefix of the name of an encoder's weight; `None` for other names.

    Example:
        >>> encoder_prefix("module.bert.pooler.dense.bias", from_huggingface)
        'module.'
    """
    step = "/" if is_tensorflow(name) else "."
    start = 0
    for _ in range(_MOST_STEPS):
        found = canonical(name[start:])
        if found is not None and found.name.startswith("bert/"):
            return name[:start]
        start = name.find(step, start) + 1
        if not start:
            return None
    return None


def to_huggingface(
    name: str, *, prefix: bool = True, model_type: str = "bert", architecture: str = ""
) -> Renamed:
    """Return the Hugging Face name of a canonical one.

    A head that Hugging Face has no name for, such as `my_head/kernel`, keeps its
    canonical name and its values are unchanged: transformers ignores it, and
    `from_huggingface` recognizes it by its slash. Without `prefix`, encoder names do
    not begin with `bert.`, as in a `BertModel`. Some heads have names of their own in
    one class, `architecture`, named as for a BERT.

    Raises:
        CheckpointError: the name cannot be stored and read back.
    """
    if from_huggingface(name, model_type) == Renamed(name, False):
        return Renamed(name, False)
    theirs = _MODEL_TYPES[model_type].spelling.spelled(name)
    if not prefix:
        theirs = theirs.removeprefix(f"{model_type}.")
    if model_type == "electra":
        for general, special in _ELECTRA_CLASSES.get(architecture, ()):
            theirs = theirs.replace(general, special)
    return Renamed(theirs, name.endswith("/kernel"))


# Of an encoder-decoder: our name to Hugging Face's. Other weights have the names
# of a BERT after `encoder.` and `decoder.`, in ours after `decoder/`.
PROJECTION = {
    "enc_to_dec_proj/kernel": "enc_to_dec_proj.weight",
    "enc_to_dec_proj/bias": "enc_to_dec_proj.bias",
}
# Where the output is not tied, its bias belongs to the product with the table.
DECODER_OUTPUT = "decoder/cls/predictions/output_embeddings"
DECODER_BIAS = "decoder/cls/predictions/output_bias"
_OF_OUTPUT = {
    "decoder.cls.predictions.decoder.weight": DECODER_OUTPUT,
    "decoder.cls.predictions.decoder.bias": DECODER_BIAS,
}
_FROM_PROJECTION = {
    name: ours
    for ours, theirs in PROJECTION.items()
    for name in (theirs, f"{ours}{_TENSORFLOW_SUFFIX}")
}
_CROSS = "crossattention"


def shared_names(num_hidden_layers: int) -> set[str]:
    """Return the names of the weights that a decoder may share with its encoder."""
    return {
        template.replace("#", str(number))
        for template in TABLE
        if template.startswith(("bert/embeddings/", "bert/encoder/"))
        for number in range(num_hidden_layers if "#" in template else 1)
    }


def from_encoder_decoder(name: str) -> Renamed | None:
    """Return the canonical name of a weight of an `EncoderDecoderModel`, or `None`.

    The two models of a `TFEncoderDecoderModel` are its layers `encoder` and `decoder`,
    each with TensorFlow's names.
    """
    if name in _FROM_PROJECTION:
        return Renamed(_FROM_PROJECTION[name], name.endswith(".weight"))
    if name in _OF_OUTPUT:
        return Renamed(_OF_OUTPUT[name], False)
    of_torch = not is_tensorflow(name)
    step = "." if of_torch else "/"
    side, _, rest = name.partition(step)
    if side == "encoder":
        return from_huggingface(rest)
    if side != "decoder":
        return from_huggingface(name) if of_torch and "/" in name else None
    # Cross-attention has the parts of self-attention.
    plain = rest.replace(f"{step}{_CROSS}{step}", f"{step}attention{step}")
    found = None if of_torch and "/" in rest else from_huggingface(plain)
    if found is None:
        return None
    ours = found.name
    if plain != rest:
        ours = ours.replace("/attention/", f"/{_CROSS}/")
    return Renamed(f"decoder/{ours}", found.transpose)


def to_encoder_decoder(name: str) -> Renamed:
    """Return the `EncoderDecoderModel`'s name of a canonical one."""
    if name in PROJECTION:
        return Renamed(PROJECTION[name], name.endswith("/kernel"))
    if name == DECODER_OUTPUT:
        return Renamed("decoder.cls.predictions.decoder.weight", False)
    if name.startswith("bert/"):
        theirs, transpose = to_huggingface(name, prefix=False)
        return Renamed(f"encoder.{theirs}", transpose)
    if not name.startswith("decoder/"):
        return to_huggingface(name)
    rest = name.removeprefix("decoder/")
    crosses = f"/{_CROSS}/" in rest
    theirs, transpose = to_huggingface(rest.replace(f"/{_CROSS}/", "/attention/"))
    if crosses:
        theirs = theirs.replace(".attention.", f".{_CROSS}.")
    return Renamed(f"decoder.{theirs}", transpose)


def from_google(name: str) -> Renamed | None:
    """Return the canonical name of a weight in Google's files, or `None`."""
    ours = _GOOGLE.canonical(name)
    return None if ours is None else Renamed(ours, _is_google_output(ours))


def to_google(name: str) -> Renamed:
    """Return Google's name of a canonical one; raise a CheckpointError if none."""
    return Renamed(_GOOGLE.spelled(name), _is_google_output(name))


def _is_google_output(name: str) -> bool:
    """Return whether a weight is the kernel of an output layer, stored transposed."""
    return name in GOOGLE and name.endswith("/kernel")


# Return the canonical name of a weight in Google's files of ELECTRA, or `None`.
from_google_electra = _GOOGLE_ELECTRA.canonical


def from_keras_hub(place: str, model_type: str = "bert") -> str | None:
    """Return the canonical name of a weight in KerasHub's files, or `None`.

    `place` is `model:` or `task:`, then the path in that file. Keras has saved some of
    its steps with and without a leading underscore, so it is ignored.
    """
    if _FIRST[1] in place:  # Keras does not write this number
        return None
    return _KERAS_HUB[model_type].canonical(place.replace(*_FIRST))


def to_keras_hub(name: str, model_type: str = "bert") -> str:
    """Return the place of a canonical name in KerasHub's files, or raise."""
    return _KERAS_HUB[model_type].spelled(name).replace(_FIRST[1], _FIRST[0])


# Return the canonical name of a place in Model Garden's objects, or `None`, and the
# place of a canonical name.
from_model_garden, to_model_garden = _MODEL_GARDEN.canonical, _MODEL_GARDEN.spelled


def head_axis(name: str) -> int | None:
    """Return the canonical axis that some formats split into heads, `None` without one.

    KerasHub and Model Garden store two axes in its place: the heads, and the width of
    a head.
    """
    return HEAD_AXES.get(name.partition("/layer_")[2].partition("/")[2])


def is_buffer(name: str) -> bool:
    """Return whether a Hugging Face name is a saved constant, not a weight."""
    for side in ("encoder.", "decoder."):
        if name.startswith((f"{side}bert.", f"{side}embeddings.")):
            name = name.removeprefix(side)
    for model_type in _MODEL_TYPES:
        name = name.removeprefix(f"{model_type}.")
    return name in BUFFERS


def is_optimizer_state(name: str) -> bool:
    """Return whether a name in Google's files belongs to the optimizer."""
    return name in _COUNTERS or bool(_SLOT.fullmatch(name.rpartition("/")[2]))


# TF-Hub: the names of newer SavedModels, and where older ones differ.

_HUB_TABLES = {
    "bert/embeddings/word_embeddings": "word_embeddings/embeddings",
    "bert/embeddings/position_embeddings": "position_embedding/embeddings",
    "bert/embeddings/token_type_embeddings": "type_embeddings/embeddings",
    "cls/predictions/output_bias": "cls/predictions/output_bias/bias",
}
_HUB_SCOPES = {
    "bert/embeddings/LayerNorm": "embeddings/layer_norm",
    "bert/pooler/dense": "pooler_transform",
    f"{_LAYER}/attention/self/query": "self_attention/query",
    f"{_LAYER}/attention/self/key": "self_attention/key",
    f"{_LAYER}/attention/self/value": "self_attention/value",
    f"{_LAYER}/attention/output/dense": "self_attention/attention_output",
    f"{_LAYER}/attention/output/LayerNorm": "self_attention_layer_norm",
    f"{_LAYER}/intermediate/dense": "intermediate",
    f"{_LAYER}/output/dense": "output",
    f"{_LAYER}/output/LayerNorm": "output_layer_norm",
}
_OLD = "embedding_postprocessor"
_OLD_HUB_SCOPES = {
    **_HUB_SCOPES,
    "bert/embeddings/LayerNorm": f"{_OLD}/layer_norm",
    f"{_LAYER}/attention/output/dense": "self_attention_output",
}
_HUB = {**_HUB_TABLES, **_weights(_HUB_SCOPES, "transformer/layer_#")}
_OLD_HUB = {
    "bert/embeddings/position_embeddings": f"{_OLD}/position_embeddings",
    "bert/embeddings/token_type_embeddings": f"{_OLD}/type_embeddings",
    **_weights(_OLD_HUB_SCOPES, "encoder/layer_#"),
}
# Google's names: of the masked-LM head, and of all weights in TensorFlow 1's files.
_SAME = {n: n for n in TABLE if n.startswith(("bert/", "cls/predictions/"))}
_HUB_SPELLINGS = [
    _Spelling(_SAME | names, f"{layers}/layer_", lacks="TF-Hub's BERT has no weight")
    for names, layers in ((_HUB, "transformer"), (_OLD_HUB, "encoder"), ({}, "encoder"))
]


def from_hub(name: str) -> str | None:
    """Return the canonical name of a variable of a hub's SavedModel, or `None`.

    `name` is the variable's name at its creation, with or without `:0`.
    """
    steps = f"/{name.removesuffix(':0')}".split("/")[1:]
    if len(steps) > _MOST_STEPS:
        return None
    for first in range(len(steps)):
        spelled = "/".join(steps[first:])
        for spelling in _HUB_SPELLINGS:
            if (ours := spelling.canonical(spelled)) is not None:
                return ours
    return None
