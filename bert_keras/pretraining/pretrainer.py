"""The encoder with its pretraining heads: `BertPretrainer`, and its folder.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1; google-research/bert
`run_pretraining.py`, whose variable scopes name the weights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from typing_extensions import Self  # in typing since Python 3.11

from bert_keras.checkpoints import (
    Checkpoint,
    assign,
    check_encoder,
    has_pooler,
    read_checkpoint,
    write_huggingface,
)
from bert_keras.checkpoints.huggingface import GENERATOR
from bert_keras.checkpoints.model_types import check_architecture
from bert_keras.checkpoints.names import DISCRIMINATOR
from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError
from bert_keras.exports.model_card import write_readme
from bert_keras.files.atomic import replaced_folder
from bert_keras.model.encoder import (
    BertEncoder,
    frozen_paths,
    seed_behind,
    set_dropout,
    with_frozen,
)
from bert_keras.model.heads import new_heads
from bert_keras.model.layers import moved, undrawn
from bert_keras.model.lora import plain_weights
from bert_keras.model.optimizers import BertAdamW
from bert_keras.models.pretrained_model import assign_scope
from bert_keras.models.trainable_model import TrainableModel
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.task import Pretraining, ReplacedTokenDetection
from bert_keras.runs.notes import prefixed, say
from bert_keras.settings import PRECISIONS, check_choice, check_type
from bert_keras.tasks.needs import named_scope
from bert_keras.text.tokenizer import WordPieceTokenizer


@keras.saving.register_keras_serializable(package="bert_keras")
class BertPretrainer(TrainableModel, keras.Model):
    """Encoder, masked-LM head and next-sentence head, a functional Keras model.

    Inputs are a batch dict (see `BertEncoder`) with `masked_positions` int32 [R, P],
    columns of each of the R rows, -1 if a row has fewer, as `pretraining_dataset`
    returns. Outputs are a dict of float32 logits: `masked_lm` [R, P, V] and
    `next_sentence` [S, 2], one for each of the S examples; class 0 means that the
    second text follows.

    With a generator (ELECTRA) the masked-LM head is on it. Samples of its answers
    replace the masked tokens, and the encoder says which tokens are replaced, in the
    output `replaced_token` float32 [R, T, 2], see `ReplacedTokenHead`.

    Args:
        encoder: with the pooler if there is a next-sentence head, else without.
        next_sentence: whether the model has that head.
        generator: sizes of a generator, which shares the encoder's embeddings.
        discriminator_weight: of the encoder's loss beside the generator's.
        seed: seed of the heads' initializers, and of the generator and its samples.

    Raises:
        ConfigError: the encoder's pooler is missing, or unused; the generator's sizes
            do not fit.

    Example:
        >>> model = BertPretrainer(BertEncoder(BertConfig.from_preset("tiny")))
        >>> model.compile()  # AdamW, `pretraining_loss` and `pretraining_metrics`
        >>> model.fit(pretraining_dataset("data", tokenizer, batch_size=32))
    """

    def __init__(
        self,
        encoder: BertEncoder,
        *,
        next_sentence: bool = True,
        generator: BertConfig | None = None,
        discriminator_weight: float = 50.0,
        seed: int | None = None,
        name: str = "pretrainer",
    ) -> None:
        check_type("encoder", encoder, BertEncoder)
        task: Pretraining = Pretraining(next_sentence)
        if generator is not None:
            built = _generator_on(encoder, generator, next_sentence, seed)
            task = ReplacedTokenDetection(generator=built, weight=discriminator_weight)
        if next_sentence:
            check_architecture(
                encoder.config, "BertForPreTraining", task="next-sentence"
            )
        inputs = task.inputs()
        super().__init__(inputs, task.outputs(encoder, inputs, seed), name=name)
        self.encoder, self.task = encoder, task
        self.generator: BertEncoder | None = getattr(task, "generator", None)
        for line in new_heads(self, encoder):
            say(line)
        self.seed = seed

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        next_sentence: bool | None = None,
        precision: str | None = None,
        rematerialize: bool = False,
        seed: int | None = None,
    ) -> Self:
        """Return the model of a folder, checkpoint or hub name, with its heads.

        A missing head is initialized randomly, with a message. The folder of a
        discriminator that has its generator gives both.

        Args:
            path, rematerialize: as in `BertEncoder.from_pretrained`.
            next_sentence: whether the model has that head; `None`: if the checkpoint
                is a BERT that has the pooler below it.
            precision: dtype policy; by default Keras's own.
            seed: seed of initializers and dropout.

        Raises:
            CheckpointError: a part is missing, broken or of another shape.
        """
        check_choice("precision", precision, (None, *PRECISIONS))
        checkpoint = read_checkpoint(path)
        generator = generator_of(checkpoint)
        if next_sentence is None:
            is_bert = checkpoint.config.model_type == "bert"
            next_sentence = is_bert and has_pooler(checkpoint)
        with undrawn():
            encoder = BertEncoder(
                checkpoint.config,
                pooler=next_sentence,
                rematerialize=rematerialize,
                seed=seed,
                dtype=precision,
            )
        own = None if seed is None else seed_behind(checkpoint.config, seed) + 1
        model = cls(
            encoder,
            next_sentence=next_sentence,
            generator=None if generator is None else generator.config,
            seed=own,
        )
        with prefixed(f"{path}: "):
            assign_pretrainer(model, checkpoint)
        encoder.source = str(path)
        return model

    def save_to_preset(
        self, preset_dir: str | os.PathLike[str], tokenizer: WordPieceTokenizer
    ) -> None:
        """Write a model folder with the heads; `from_pretrained` opens it.

        Args:
            preset_dir: created, or replaced if it is a model folder.
            tokenizer: the tokenizer of the training data.

        Raises:
            CheckpointError: the folder holds something else, or the disk is full.
            ConfigError: the model has too few embeddings for the tokenizer, or is
                quantized.
        """
        check_type("tokenizer", tokenizer, WordPieceTokenizer)
        rows = self.encoder.config.vocab_size
        if tokenizer.vocab_size > rows:
            raise ConfigError(
                "`tokenizer` must have at most the encoder's `vocab_size` tokens; "
                f"received {tokenizer.vocab_size:,} and {rows:,}"
            )
        with replaced_folder(preset_dir) as new:
            write_pretrainer(new, self, tokenizer)
            write_readme(preset_dir, new)

    def _own_optimizer(self) -> keras.optimizers.Optimizer:
        return BertAdamW(1e-4)  # from the paper, appendix A.2

    @property
    def backbone(self) -> BertEncoder:
        """The encoder, as a `TaskModel` names it."""
        return self.encoder

    @property
    def has_next_sentence(self) -> bool:
        """Whether the model has the next-sentence head."""
        return self.task.next_sentence

    @property
    def architecture(self) -> str:
        """Hugging Face's class of the same model."""
        if self.generator is not None:
            return "ElectraForPreTraining"
        return "BertForPreTraining" if self.has_next_sentence else "BertForMaskedLM"

    def get_config(self) -> dict[str, Any]:
        config = {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "name": self.name,
            "frozen": frozen_paths(self),
            "next_sentence": self.has_next_sentence,
            "seed": self.seed,
        }
        if isinstance(self.task, ReplacedTokenDetection):
            config["generator"] = self.task.generator.config.to_dict()
            config["discriminator_weight"] = self.task.weight
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        settings = dict(config)
        settings["encoder"] = keras.saving.deserialize_keras_object(
            settings["encoder"], custom_objects=custom_objects
        )
        if settings.get("generator"):
            settings["generator"] = BertConfig.from_dict(settings["generator"])
        return with_frozen(cls, settings)


_POOLER = "bert/pooler/"
_OWN = f"{GENERATOR}/"  # the scope of a generator's own weights
# What a generator has of the encoder: all of the embeddings but the projection.
_SHARED = (
    "bert/embeddings/word_embeddings",
    "bert/embeddings/position_embeddings",
    "bert/embeddings/token_type_embeddings",
    "bert/embeddings/LayerNorm/",
)


def generator_config(sizes: BertConfig, share: float) -> BertConfig:
    """Return the sizes of a generator, `share` as wide as a discriminator.

    Its heads are as wide as the discriminator's, as in Google's code.
    """
    width = max(round(sizes.hidden_size * share), 1)
    heads = max(round(sizes.num_attention_heads * share), 1)
    width = -(-width // heads) * heads
    return sizes.replace(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=max(round(sizes.intermediate_size * share), 1),
        embedding_size=sizes.embedding_width,
    )


def generator_of(checkpoint: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint of the generator in the folder of a discriminator, if any.

    Raises:
        CheckpointError: it is broken.
    """
    folder = Path(checkpoint.path) / GENERATOR
    is_electra = checkpoint.config.model_type == "electra"
    return read_checkpoint(folder) if is_electra and folder.is_dir() else None


def _generator_on(
    encoder: BertEncoder, sizes: BertConfig, next_sentence: bool, seed: int | None
) -> BertEncoder:
    """Return a generator with the embeddings of an encoder.

    Raises:
        ConfigError: there would be a next-sentence head; other embeddings.
    """
    if next_sentence:
        raise ConfigError("`next_sentence` must be False with a `generator`")
    for name in (
        "embedding_width",
        "vocab_size",
        "max_position_embeddings",
        "type_vocab_size",
    ):
        own, theirs = getattr(sizes, name), getattr(encoder.config, name)
        if own != theirs:
            raise ConfigError(
                f"`generator` must have the encoder's `{name}`, {theirs:,}; received "
                f"{own:,}"
            )
    with keras.name_scope(GENERATOR):
        return BertEncoder(
            sizes,
            pooler=False,
            rematerialize=encoder.get_config()["rematerialize"],
            tables=encoder.embeddings,
            seed=moved(seed, 8),
            dtype=encoder.dtype_policy,
            name=GENERATOR,
        )


def new_pretrainer(
    sizes: BertConfig,
    config: PretrainConfig,
    *,
    next_sentence: bool,
    generator: BertConfig | None = None,
) -> BertPretrainer:
    """Return a model with random weights from the seed, and the run's dropout."""
    encoder = BertEncoder(
        sizes,
        pooler=next_sentence,
        rematerialize=config.rematerialize,
        seed=config.seed,
        dtype=config.precision,
    )
    model = BertPretrainer(
        encoder,
        next_sentence=next_sentence,
        generator=generator,
        discriminator_weight=config.discriminator_weight,
        seed=seed_behind(sizes, config.seed) + 1,  # the pooler uses the one before
    )
    if config.dropout is not None:
        set_dropout(model, config.dropout)
    return model


def assign_pretrainer(model: BertPretrainer, checkpoint: Checkpoint) -> None:
    """Set the weights from a checkpoint; a head that it lacks is kept, with a message.

    Raises:
        CheckpointError: something else is missing or does not fit.
    """
    check_encoder(checkpoint)
    scopes = {f"{name.split('/')[0]}/" for name in checkpoint.shapes}
    pooled = has_pooler(checkpoint)
    optional = tuple(scopes - {"bert/"})
    if not pooled or not model.has_next_sentence:
        optional += (_POOLER,)
    assign(model.encoder, checkpoint, optional=optional)
    heads = [f"{DISCRIMINATOR}/"]
    if model.generator is None:
        heads = ["cls/predictions/"]
    if model.has_next_sentence:
        heads.append("cls/seq_relationship/")
    missing = [scope for scope in heads if not assign_scope(model, checkpoint, scope)]
    if model.has_next_sentence and not pooled:
        missing.insert(0, _POOLER)
    if model.generator is not None:
        generator = generator_of(checkpoint)
        if generator is None:
            missing.append(GENERATOR)
        else:
            assign(model, generator, optional=_SHARED, within=_OWN)
    for scope in missing:
        say(f"the checkpoint has no {named_scope(scope)}: it is initialized randomly")


def read_pretrainer(folder: Path, model: BertPretrainer) -> None:
    """Set all weights from what `write_pretrainer` wrote.

    Raises:
        CheckpointError: the folder is broken, or does not fit.
    """
    assign(model, read_checkpoint(folder), optional=(_OWN,))
    if model.generator is not None:
        generator = read_checkpoint(folder / GENERATOR)
        assign(model, generator, optional=_SHARED, within=_OWN)


def write_pretrainer(
    folder: Path,
    model: BertPretrainer,
    tokenizer: WordPieceTokenizer,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write config, weights and vocabulary into an existing folder.

    A generator's own folder is inside, as complete as that of the encoder. `arrays` are
    weights by name, in place of the model's current ones.
    """
    arrays = weights_of(model) if arrays is None else arrays
    found = {n: each for n, each in arrays.items() if not n.startswith(_OWN)}
    _write(folder, model.encoder.config, model.architecture, found, tokenizer)
    if model.generator is not None:
        shared = {n: each for n, each in found.items() if n.startswith(_SHARED)}
        own = {
            n.removeprefix(_OWN): each
            for n, each in arrays.items()
            if n.startswith(_OWN)
        }
        sizes, place = model.generator.config, folder / GENERATOR
        _write(place, sizes, "BertForMaskedLM", {**shared, **own}, tokenizer)


def _write(
    folder: Path,
    sizes: BertConfig,
    architecture: str,
    arrays: Mapping[str, np.ndarray],
    tokenizer: WordPieceTokenizer,
) -> None:
    """Write a model folder; `architecture` is BERT's name of the class."""
    config = {
        "model_type": "bert",
        "architectures": [architecture],
        **sizes.to_dict(),
        "pad_token_id": tokenizer.pad_id,
    }
    write_huggingface(folder, arrays, config)
    tokenizer.save(
        folder,
        max_length=sizes.max_position_embeddings,
        has_segments=sizes.type_vocab_size > 0,
    )


def weights_of(model: BertPretrainer) -> dict[str, np.ndarray]:
    """Return a copy of the weights by name, LoRA merged into the kernels."""
    weights = plain_weights(model, model.encoder)
    return {name: np.array(value) for name, value in weights.items()}
