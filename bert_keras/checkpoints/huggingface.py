"""Hugging Face folders: `config.json` and `model.safetensors`, read and written.

`model_types` and `names` hold what differs in the folders of DistilBERT and ELECTRA.

Source: Hugging Face transformers, `configuration_bert.py` and `modeling_bert.py`; of
release 4, `modeling_tf_bert.py`, `modeling_tf_distilbert.py`, `modeling_tf_electra.py`
and `modeling_tf_utils.py`. `pytorch_model.bin` is read as data only (`pickled_file`),
`tf_model.h5` by `h5_file`.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from bert_keras.checkpoints import model_types, names
from bert_keras.checkpoints.checkpoint import (
    Checkpoint,
    LazyArrays,
    StoredTensor,
    as_checkpoint_error,
    bert_config,
    check_finite,
    choose,
    listed,
)
from bert_keras.checkpoints.safetensors_file import (
    opened,
    stored_tensors,
    write_tensors,
)
from bert_keras.checkpoints.unread_files import check_no_adapter, unread_weights
from bert_keras.config import MODEL_TYPES
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.atomic import replaced_file, sync
from bert_keras.files.json_file import read_json

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
H5 = "tf_model.h5"
H5_INDEX = "tf_model.h5.index.json"
GENERATOR = "generator"  # the folder of an ELECTRA's generator, in the model's
_BERT_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
# Before the name of a class in TensorFlow and Flax.
_OTHER_CODE = re.compile("^(?:TF|Flax)(?=Bert|DistilBert|Electra|EncoderDecoder)")


def read_huggingface(folder: str | os.PathLike[str]) -> Checkpoint:
    """Open a Hugging Face folder; weights are read on demand.

    Args:
        folder: holds `config.json` and `model.safetensors`; or `pytorch_model.bin`,
            where torch is installed; or `tf_model.h5`; or the shards that an index such
            as `model.safetensors.index.json` names. float16, bfloat16 and float64
            become float32. Names may have one prefix, such as `module.`.

    Raises errors as `read_checkpoint` does.
    """
    folder = Path(folder)
    check_no_adapter(folder)
    raw = read_json(folder / CONFIG)
    if isinstance(raw.get("architectures"), list):  # torch's classes of the same models
        raw["architectures"] = [
            _OTHER_CODE.sub("", name) if isinstance(name, str) else name
            for name in raw["architectures"]
        ]
    check_is_bert(raw, place=str(folder / CONFIG))
    raw = model_types.to_ours(raw)
    sizes = raw["encoder"] if is_encoder_decoder(raw) else raw
    config = bert_config(sizes, path=folder / CONFIG)
    tensors, notes = _tensors(folder, _canonical_of(raw))
    chosen, unrecognized, more = _sorted_out(tensors, raw, place=folder)
    notes += more
    types = sorted({tensor.dtype for tensor in chosen.values()} - {"F32"})
    if types:
        notes.append(f"weights stored as {', '.join(types)} are read as float32")
    return Checkpoint(
        path=folder,
        origin="huggingface",
        config=config,
        raw_config=raw,
        arrays=LazyArrays.of(chosen, place=str(folder)),
        notes=tuple(notes),
        unrecognized=tuple(unrecognized),
        unread={
            each.name: tuple(each.shape)
            for each in tensors.values()
            if each.name in unrecognized
        },
    )


def _canonical_of(raw: Mapping[str, Any]) -> _Canonical:
    """Return the function from the names in a config's folder to canonical ones."""
    if is_encoder_decoder(raw):
        return names.from_encoder_decoder
    kind = model_types.type_of(raw).name
    return functools.partial(names.from_huggingface, model_type=kind)


ENCODER_DECODER = "encoder-decoder"  # the `model_type` of a folder of two BERTs
_SHARED = "tie_encoder_decoder"  # whether the decoder has the encoder's weights


def is_encoder_decoder(raw: Mapping[str, Any]) -> bool:
    """Return whether a config describes an `EncoderDecoderModel`."""
    return raw.get("model_type") == ENCODER_DECODER


def decoder_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return `config`, `shared` and `tied` of a checkpoint's decoder."""
    raw, place = checkpoint.raw_config, checkpoint.path / CONFIG
    if not is_encoder_decoder(raw):
        raise CheckpointError(
            f"{place}: `model_type` must be {ENCODER_DECODER}; "
            f"received {one_line(raw.get('model_type'))}"
        )
    return {
        "config": bert_config(raw["decoder"], path=place),
        "shared": bool(raw.get(_SHARED)),
        "tied": names.DECODER_OUTPUT not in checkpoint.shapes,
    }


def encoder_decoder_config(
    encoder: Mapping[str, Any], decoder: Mapping[str, Any], *, shared: bool, tied: bool
) -> dict[str, Any]:
    """Return the entries of `config.json` of an `EncoderDecoderModel`.

    Args:
        encoder, decoder: sizes, from `BertConfig.to_dict`.
        shared: whether the decoder has the encoder's embeddings and blocks.
        tied: whether the output shares the table of the decoder's token embeddings.
    """
    bert = {"model_type": "bert"}
    return {
        "model_type": ENCODER_DECODER,
        "architectures": ["EncoderDecoderModel"],
        "is_encoder_decoder": True,
        "tie_word_embeddings": tied,
        _SHARED: shared,
        "encoder": {**bert, "architectures": ["BertModel"], **encoder},
        "decoder": {
            **bert,
            "architectures": ["BertLMHeadModel"],
            **decoder,
            "is_decoder": True,
            "add_cross_attention": True,
            "tie_word_embeddings": tied,
        },
    }


def check_is_bert(raw: Mapping[str, Any], *, place: str) -> None:
    """Raise unless a config describes a BERT, or two, that this package supports."""
    if not is_encoder_decoder(raw):
        _check_is_bert(raw, ("add_cross_attention",), place=place)
        return
    for side, refused in (("encoder", ("add_cross_attention",)), ("decoder", ())):
        sizes = raw.get(side)
        if not isinstance(sizes, Mapping):
            raise CheckpointError(
                f"{place}: `{side}` must be an object; received {one_line(sizes)}"
            )
        _check_is_bert(sizes, refused, place=f"{place}: {side}")
        if side == "decoder" and not sizes.get("add_cross_attention"):
            raise CheckpointError(f"{place}: {side}: must have `add_cross_attention`")


def _check_is_bert(
    raw: Mapping[str, Any], refused: tuple[str, ...], *, place: str
) -> None:
    architectures = raw.get("architectures") or []
    if not isinstance(architectures, list) or not all(
        isinstance(name, str) for name in architectures
    ):
        raise CheckpointError(f"{place}: `architectures` must be a list of names")
    found = one_line(", ".join(architectures) or "no architecture")
    kind = raw.get("model_type")
    start = model_types.type_of(raw).classes
    other = [name for name in architectures if not name.startswith(start)]
    if (kind is not None and kind not in MODEL_TYPES) or other:
        raise CheckpointError(
            f"{place}: must be a BERT; found model_type {one_line(kind)} with {found}: "
            "its layers or its tokenizer are not BERT's, so choose a BERT, DistilBERT "
            "or ELECTRA model"
        )
    if kind is None and not all(key in raw for key in _BERT_KEYS):
        raise CheckpointError(
            f"{place}: must hold model_type bert, or {', '.join(_BERT_KEYS)}; "
            f"found {found}"
        )
    positions = raw.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise CheckpointError(
            f"{place}: `position_embedding_type` must be absolute; "
            f"received {one_line(positions)}"
        )
    if kind in MODEL_TYPES[1:]:
        refused = (*refused, "is_decoder")
    if architectures == ["ElectraForMultipleChoice"]:
        _check_summary(raw, place=place)
    for key in (*refused, "pruned_heads", "quantization_config"):
        if raw.get(key):
            raise CheckpointError(f"{place}: `{key}` is not supported")


_SUMMARY = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": "gelu",
}


def _check_summary(raw: Mapping[str, Any], *, place: str) -> None:
    """Raise if an ELECTRA's head for choices reads other than its usual vector."""
    for key, value in _SUMMARY.items():
        if raw.get(key, value) != value:
            raise CheckpointError(
                f"{place}: `{key}` must be {value}; received {one_line(raw[key])}"
            )


def _tensors(
    folder: Path, canonical: _Canonical
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Return every tensor of a folder by its name in the file, and notes.

    If both a pickle and `tf_model.h5` exist, the pickle is read where torch is
    installed, as transformers does.
    """
    if os.path.isfile(folder / WEIGHTS):
        return stored_tensors(folder / WEIGHTS), []
    if os.path.isfile(folder / INDEX):
        return _sharded(folder / INDEX, stored_tensors), []
    from bert_keras.checkpoints import pickled_file

    pickle = _first_file(folder, PICKLE, PICKLE_INDEX)
    h5 = _first_file(folder, H5, H5_INDEX)
    reader: _Reader = pickled_file.stored_tensors
    path, other = pickle, h5
    if h5 is not None and (pickle is None or not pickled_file.is_readable()):
        path, other = h5, pickle
        reader = functools.partial(_h5_tensors, canonical=canonical)
    if path is None:
        raise CheckpointError(
            f"{folder}: contains no {WEIGHTS}{unread_weights(folder)}"
        )
    tensors = _sharded(path, reader) if path.suffix == ".json" else reader(path)
    return tensors, [f"{other.name} is not read: {path.name} is"] if other else []


def _first_file(folder: Path, *files: str) -> Path | None:
    return next((folder / name for name in files if (folder / name).is_file()), None)


_Reader = Callable[[Path], dict[str, StoredTensor]]


_Canonical = Callable[[str], names.Renamed | None]


def _h5_tensors(path: Path, *, canonical: _Canonical) -> dict[str, StoredTensor]:
    """Return the tensors of a `tf_model.h5` by the names of their variables.

    Keras stores a variable below each layer that uses it, whose name precedes the
    variable's; a shard has the variables alone.
    """
    from bert_keras.checkpoints import h5_file

    arrays = h5_file.stored_arrays(path)
    tensors: dict[str, StoredTensor] = {}
    for place, array in arrays.items():
        is_variable = canonical(place) is not None
        name = place if is_variable else place.partition("/")[2] or place
        kept = tensors.setdefault(name, array)
        if kept is not array and not kept.equals(array):
            raise CheckpointError(
                f"{path}: {one_line(name)} has other values in {one_line(kept.name)} "
                f"and {one_line(place)}"
            )
    return tensors


def _sharded(path: Path, stored: _Reader) -> dict[str, StoredTensor]:
    """Return every tensor of the shards that an index names."""
    index = read_json(path).get("weight_map")
    if not isinstance(index, dict) or not all(
        isinstance(shard, str) for shard in index.values()
    ):
        raise CheckpointError(f"{path}: `weight_map` must map names to file names")
    # TensorFlow's index has the scope of the model before each name, its shards not.
    index = {_without_scope(name): shard for name, shard in index.items()}
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(index.values())):
        for name, tensor in stored(_shard(path, shard)).items():
            name = _without_scope(name)
            if index.get(name) != shard:
                raise CheckpointError(
                    f"{path}: {one_line(shard)} holds {one_line(name)}, "
                    "which the index does not place there"
                )
            tensors[name] = tensor
    missing = [name for name in index if name not in tensors]
    if missing:
        raise CheckpointError(
            f"{path}: not in the file that the index names: {listed(missing)}"
        )
    return tensors


def _without_scope(name: str) -> str:
    """Return a TensorFlow variable's name without the scope of a TFBert class."""
    scope, _, rest = name.partition("/")
    is_scope = names.is_tensorflow(name) and names.is_model_scope(f"{scope}/")
    return rest if is_scope else name


def _shard(index: Path, name: str) -> Path:
    """Return the path of a shard, which must be in the folder of its index.

    The hub's cache keeps files in `blobs` next to `snapshots` and links to them.
    """
    folder = index.parent
    path = folder / name
    try:
        home = folder.resolve()
        homes = [home]
        if home.parent.name == "snapshots":
            homes.append(home.parent.parent / "blobs")
        plain = Path(name).name == name and "\\" not in name
        inside = plain and path.resolve().parent in homes
    except (OSError, ValueError, RuntimeError):  # over-long names, NUL, link loops
        inside = False
    if not inside:
        raise CheckpointError(
            f"{index}: a shard must be a file of the same folder; "
            f"received {one_line(name)}"
        )
    if not os.path.isfile(path):
        raise CheckpointError(f"{folder}: contains no {one_line(name)}")
    return path


def _sorted_out(
    tensors: Mapping[str, StoredTensor], raw: Mapping[str, Any], *, place: Path
) -> tuple[dict[str, StoredTensor], list[str], list[str]]:
    """Return canonical name to tensor; unrecognized names; notes."""
    chosen: dict[str, StoredTensor] = {}
    unrecognized: list[str] = []
    canonical, unread = _canonical_of(raw), ""
    tied = names.tied_names(model_types.type_of(raw).name)
    if is_encoder_decoder(raw):
        tied = _tied_of_decoder(raw)
        if _has_own_output(raw):  # transformers stores it and does not compute with it
            unread = "decoder.cls.predictions.bias"
    kind = model_types.type_of(raw).name
    tensors, notes = _without_prefix(tensors, canonical, kind, place=place)
    for name, tensor in tensors.items():
        if names.is_buffer(name) or name in tied or name == unread:
            continue
        renamed = canonical(name)
        if renamed is None:
            unrecognized.append(tensor.name)
        else:
            choose(chosen, renamed.name, tensor, transpose=renamed.transpose)
    notes += _turned_kernels(chosen)
    for name in _untied(tensors, chosen, tied):
        unrecognized.append(name)
        kept = chosen[tied[name]].name
        notes.append(f"{name} is not tied to {kept}: its values are left out")
    return chosen, unrecognized, notes


_NORM = "bert/encoder/layer_0/output/LayerNorm/gamma"  # as wide as the hidden states
_INNER = "bert/encoder/layer_0/intermediate/dense/kernel"


def _turned_kernels(chosen: Mapping[str, StoredTensor]) -> list[str]:
    """Transpose kernels that have TensorFlow's names and torch's layout; return notes.

    Converters that only rename leave kernels as [out, in]. The intermediate layer shows
    it, unless it is as wide as the hidden states.
    """
    norm, inner = (chosen.get(name) for name in (_NORM, _INNER))
    if norm is None or inner is None or inner.transposed or len(inner.shape) != 2:
        return []
    if norm.shape[-1:] == inner.shape[:1] or norm.shape[-1:] != inner.shape[1:]:
        return []
    for name, tensor in chosen.items():
        tensor.transposed = name.endswith("/kernel")
    return ["kernels are stored as torch stores them, under names of TensorFlow"]


def _without_prefix(
    tensors: Mapping[str, StoredTensor],
    canonical: _Canonical,
    kind: str,
    *,
    place: Path,
) -> tuple[Mapping[str, StoredTensor], list[str]]:
    """Return the tensors by name, without the encoder's prefix, and notes.

    Wrappers put one in front of all names: `module.` (DataParallel), `_orig_mod.`
    (torch.compile), or an attribute such as `model.` (Lightning).
    """
    prefixes = {names.encoder_prefix(name, canonical) for name in tensors} - {None}
    if not prefixes or "" in prefixes:
        return tensors, []
    spelled = listed([f"`{prefix}`" for prefix in sorted(map(str, prefixes))])
    if len(prefixes) > 1:
        raise CheckpointError(
            f"{place}: must hold one BERT; holds weights of several, whose names begin "
            f"with {spelled}: keep one of them, without this prefix"
        )
    prefix = str(prefixes.pop())
    _check_prefix(prefix, kind, place=place)
    plain: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        short = name.removeprefix(prefix)
        if short in plain:
            raise CheckpointError(
                f"{place}: {one_line(plain[short].name)} and {one_line(tensor.name)} "
                f"are one name without {spelled}"
            )
        plain[short] = tensor
    if names.is_model_scope(prefix):
        return plain, []
    return plain, [f"the names of the weights begin with {spelled}, which is ignored"]


# Prefixes of other models that use BERT's weight names but compute otherwise.
_OTHER_MODELS = frozenset(
    "albert camembert data2vec_text deberta distilbert electra ernie esm layoutlm "
    "longformer megatron_bert mpnet mra nezha rembert roberta roformer splinter "
    "xlm_roberta xmod yoso".split()
)


def _check_prefix(prefix: str, kind: str, *, place: Path) -> None:
    """Raise if a prefix belongs to another kind of model than `kind`."""
    others = _OTHER_MODELS if kind == "bert" else _OTHER_MODELS | {"bert"}
    for part in re.split("[./]", prefix):
        if part.removeprefix("tf_") in others - {kind}:
            named = "BERT" if kind == "bert" else kind
            raise CheckpointError(
                f"{place}: must be a {named}; the names of the weights begin with "
                f"`{one_line(prefix)}`, of another model"
            )


def _has_own_output(raw: Mapping[str, Any]) -> bool:
    """Return whether the output of a decoder is not tied to its token embeddings."""
    return raw["decoder"].get("tie_word_embeddings") is False


def _tied_of_decoder(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return the copies that an `EncoderDecoderModel` may hold of a weight."""
    tied = names.tied_names("bert")
    found = {f"decoder.{theirs}": f"decoder/{ours}" for theirs, ours in tied.items()}
    if _has_own_output(raw):
        found.clear()
    if raw.get(_SHARED):
        sizes = raw["decoder"].get("num_hidden_layers", 0)
        for ours in names.shared_names(sizes if isinstance(sizes, int) else 0):
            found[names.to_encoder_decoder(f"decoder/{ours}").name] = ours
        table = "bert/embeddings/word_embeddings"
        found |= {k: table for k, v in found.items() if v == f"decoder/{table}"}
    return found


def _untied(
    tensors: Mapping[str, StoredTensor],
    chosen: dict[str, StoredTensor],
    tied: Mapping[str, str],
) -> list[str]:
    """Return the copies of tied weights whose values differ from the weight's.

    If a file holds only the copy, the copy becomes the weight.
    """
    untied = []
    for name, ours in tied.items():
        if name not in tensors:
            continue
        copy = tensors[name]
        if ours not in chosen:
            choose(chosen, ours, copy, transpose=ours.endswith("/kernel"))
            continue
        copy.check()
        kept = chosen[ours]
        if copy.shape != kept.shape:
            raise CheckpointError(
                f"{copy.file}: {name} must have the shape of {kept.name}, "
                f"{list(kept.shape)}; has {list(copy.shape)}"
            )
        if not copy.equals(kept):
            untied.append(name)
    return untied


# Writing.


def write_huggingface(
    folder: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
) -> None:
    """Write `config.json` and `model.safetensors`, and only then replace old ones.

    All weights are in memory at once; each is read from the mapping once.

    Args:
        folder: created if absent.
        arrays: canonical name to float32 or float16 array, canonical shape.
        config: the whole of `config.json`, with BERT's keys and class names for every
            `model_type`; `architectures` holds one name, and encoder names get the
            prefix `bert.` unless it is `BertModel`.

    Raises:
        CheckpointError: a name, an array or the config cannot be stored, a value is
            not finite, or writing fails.
    """
    folder = Path(folder)
    config = {"model_type": "bert", **config}
    text, prefix = _config_text(config)
    tensors: dict[str, np.ndarray] = {}
    for name, spelled in _spelled(arrays, config, prefix=prefix):
        theirs, transpose = spelled
        array = arrays[name]
        if transpose and array.ndim != 2:
            raise CheckpointError(
                f"`{name}` must have 2 axes; received {list(array.shape)}"
            )
        if array.size == 0:
            raise CheckpointError(f"`{name}` is empty: {list(array.shape)}")
        check_finite(array, name=name, place=str(folder))
        # In C order at once: a transposed view would keep its base array in memory.
        tensors[theirs] = np.asarray(array.T if transpose else array, order="C")
    with as_checkpoint_error(f"{folder}: cannot write", OSError, SafetensorError):
        folder.mkdir(parents=True, exist_ok=True)
        # The weights take their place first.
        with replaced_file(folder / CONFIG) as settings:
            with replaced_file(folder / WEIGHTS) as weights:
                write_tensors(weights, tensors)
                with opened(weights):  # the written file must open
                    pass
                settings.write_bytes(text)
                sync(weights, settings)


def _spelled(
    arrays: Mapping[str, np.ndarray], config: Mapping[str, Any], *, prefix: bool
) -> Iterator[tuple[str, names.Renamed]]:
    """Yield each canonical name with its name in the file.

    A decoder that shares the encoder's weights gets copies of them, since newer
    releases of transformers do not tie the two.
    """
    for name in arrays:
        if not is_encoder_decoder(config):
            theirs = names.to_huggingface(
                name,
                prefix=prefix,
                model_type=model_types.type_of(config).name,
                architecture=config["architectures"][0],
            )
            yield name, theirs
            continue
        yield name, names.to_encoder_decoder(name)
        if name == names.DECODER_BIAS and _has_own_output(config):
            yield name, names.Renamed("decoder.cls.predictions.decoder.bias", False)
        if config.get(_SHARED) and name in names.shared_names(
            config["decoder"]["num_hidden_layers"]
        ):
            yield name, names.to_encoder_decoder(f"decoder/{name}")


def _config_text(config: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return the text of `config.json`, and whether encoder names have a prefix."""
    written = model_types.to_theirs(config)
    check_is_bert(written, place="`config`")
    architectures = config.get("architectures")
    if not architectures or len(architectures) != 1:
        raise CheckpointError(
            "`config` must hold `architectures`, a list of one name such as "
            f"BertForMaskedLM; received {one_line(architectures)}"
        )
    broken = (TypeError, ValueError, RecursionError)
    with as_checkpoint_error("`config` must be JSON", *broken):
        text = json.dumps(written, indent=2, sort_keys=True, allow_nan=False) + "\n"
    return text.encode(), architectures[0] != "BertModel"
