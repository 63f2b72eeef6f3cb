"""The one table of names: BERT's weights, here and in the formats read and written.

Canonical names are the scopes of Google's released code, which is what a Keras
`variable.path` reads in our model; canonical kernels are [in, out]. Hugging Face
stores [out, in]; Google's `output_weights` are [out, in] too. KerasHub stores [in, out]
with one axis of attention split into heads, and so does TF Model Garden. `names` reads
the table, in both directions.

Source: google-research/bert `modeling.py`, `run_pretraining.py`, `run_classifier.py`,
`run_squad.py`; Hugging Face transformers `modeling_bert.py`; KerasHub
`bert_backbone.py`, `masked_lm_head.py`, and the files that it saves; TF Model Garden
`bert_encoder.py`, `transformer_encoder_block.py`, `masked_lm.py`, `cls_head.py`.
Imports nothing.
"""

from __future__ import annotations

# canonical name: Hugging Face name (`#` stands for the number of the layer)
TABLE = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/position_embeddings": "bert.embeddings.position_embeddings.weight",
    "bert/embeddings/token_type_embeddings": (
        "bert.embeddings.token_type_embeddings.weight"
    ),
    "bert/embeddings/LayerNorm/gamma": "bert.embeddings.LayerNorm.weight",
    "bert/embeddings/LayerNorm/beta": "bert.embeddings.LayerNorm.bias",
    "bert/pooler/dense/kernel": "bert.pooler.dense.weight",
    "bert/pooler/dense/bias": "bert.pooler.dense.bias",
    "cls/predictions/transform/dense/kernel": "cls.predictions.transform.dense.weight",
    "cls/predictions/transform/dense/bias": "cls.predictions.transform.dense.bias",
    "cls/predictions/transform/LayerNorm/gamma": (
        "cls.predictions.transform.LayerNorm.weight"
    ),
    "cls/predictions/transform/LayerNorm/beta": (
        "cls.predictions.transform.LayerNorm.bias"
    ),
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/kernel": "cls.seq_relationship.weight",
    "cls/seq_relationship/bias": "cls.seq_relationship.bias",
    "classifier/kernel": "classifier.weight",
    "classifier/bias": "classifier.bias",
    "qa_outputs/kernel": "qa_outputs.weight",
    "qa_outputs/bias": "qa_outputs.bias",
}
_LAYERS = ("bert/encoder/layer_#", "bert.encoder.layer.#")
for _scope in (
    "attention/self/query",
    "attention/self/key",
    "attention/self/value",
    "attention/output/dense",
    "attention/output/LayerNorm",
    "intermediate/dense",
    "output/dense",
    "output/LayerNorm",
):
    _ours = f"{_LAYERS[0]}/{_scope}"
    _theirs = f"{_LAYERS[1]}.{_scope.replace('/', '.')}"
    if _scope.endswith("LayerNorm"):
        TABLE |= {f"{_ours}/gamma": f"{_theirs}.weight"}
        TABLE |= {f"{_ours}/beta": f"{_theirs}.bias"}
    else:
        TABLE |= {f"{_ours}/kernel": f"{_theirs}.weight"}
        TABLE |= {f"{_ours}/bias": f"{_theirs}.bias"}

# Google's names are the canonical ones but for the output layers of its heads.
GOOGLE = {
    "cls/seq_relationship/kernel": "cls/seq_relationship/output_weights",
    "cls/seq_relationship/bias": "cls/seq_relationship/output_bias",
    "classifier/kernel": "output_weights",
    "classifier/bias": "output_bias",
    "qa_outputs/kernel": "cls/squad/output_weights",
    "qa_outputs/bias": "cls/squad/output_bias",
}


def _weights(
    scopes: dict[str, str], layers: str, theirs: tuple[str, str] | None = None
) -> dict[str, str]:
    """Return our names and theirs of the two weights of each scope.

    Args:
        scopes: our scope to theirs; of a layer's, to what follows `layers`.
        layers: where the layers stand.
        theirs: what the first and the second weight of a scope are called; as ours if
            not given.
    """
    found = {}
    for scope, their_scope in scopes.items():
        place = f"{layers}/{their_scope}" if "#" in scope else their_scope
        ours = ("gamma", "beta") if scope.endswith("LayerNorm") else ("kernel", "bias")
        for name, their_name in zip(ours, theirs or ours, strict=True):
            found[f"{scope}/{name}"] = f"{place}/{their_name}"
    return found


# canonical name: KerasHub's file and place in it. Keras names what a model holds after
# the class, counts those of one class (`transformer_encoder`, `transformer_encoder_1`)
# and numbers the weights of each.
KERAS_HUB = {
    "bert/embeddings/word_embeddings": "model:layers/reversible_embedding/vars/0",
    "bert/embeddings/position_embeddings": "model:layers/position_embedding/vars/0",
    "bert/embeddings/token_type_embeddings": "model:layers/embedding/vars/0",
}
_KERAS_HUB_SCOPES = {
    "bert/embeddings/LayerNorm": "model:layers/layer_normalization",
    "bert/pooler/dense": "model:layers/dense",
    "cls/predictions/transform/dense": "task:layers/masked_lm_head/_intermediate_dense",
    "cls/predictions/transform/LayerNorm": (
        "task:layers/masked_lm_head/_intermediate_layer_norm"
    ),
    "classifier": "task:layers/dense",
    f"{_LAYERS[0]}/attention/self/query": "_self_attention_layer/query_dense",
    f"{_LAYERS[0]}/attention/self/key": "_self_attention_layer/key_dense",
    f"{_LAYERS[0]}/attention/self/value": "_self_attention_layer/value_dense",
    f"{_LAYERS[0]}/attention/output/dense": "_self_attention_layer/output_dense",
    f"{_LAYERS[0]}/attention/output/LayerNorm": "_self_attention_layer_norm",
    f"{_LAYERS[0]}/intermediate/dense": "_feedforward_intermediate_dense",
    f"{_LAYERS[0]}/output/dense": "_feedforward_output_dense",
    f"{_LAYERS[0]}/output/LayerNorm": "_feedforward_layer_norm",
}
KERAS_HUB |= _weights(
    _KERAS_HUB_SCOPES, "model:layers/transformer_encoder#", ("vars/0", "vars/1")
)
KERAS_HUB["cls/predictions/output_bias"] = "task:layers/masked_lm_head/vars/0"

# canonical name: its place in the objects of TF Model Garden, from one of three: the
# encoder, the masked-LM head and the head named `next_sentence`. Each step is an
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
    f"{_LAYERS[0]}/attention/self/query": "_attention_layer/_query_dense",
    f"{_LAYERS[0]}/attention/self/key": "_attention_layer/_key_dense",
    f"{_LAYERS[0]}/attention/self/value": "_attention_layer/_value_dense",
    f"{_LAYERS[0]}/attention/output/dense": "_attention_layer/_output_dense",
    f"{_LAYERS[0]}/attention/output/LayerNorm": "_attention_layer_norm",
    f"{_LAYERS[0]}/intermediate/dense": "_intermediate_dense",
    f"{_LAYERS[0]}/output/dense": "_output_dense",
    f"{_LAYERS[0]}/output/LayerNorm": "_output_layer_norm",
}
MODEL_GARDEN |= _weights(_GARDEN_SCOPES, "encoder/_transformer_layers/#")
MODEL_GARDEN["cls/predictions/output_bias"] = "masked_lm/bias"

# The canonical axis that KerasHub and Model Garden store as two: heads, their width.
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
