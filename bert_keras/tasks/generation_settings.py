"""What is known of the tasks that generate text before TensorFlow is imported."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_keras.generation.settings import LENGTH_RATIO, NO_REPEAT_NGRAM, Decoding
from bert_keras.settings import option
from bert_keras.tasks.declaration import RowForm, TaskHelp
from bert_keras.tasks.long_text_settings import WindowSettings
from bert_keras.tasks.summarization_settings import STEMMER

ENCODER, SHARED = "encoder", "shared"  # what a decoder starts from


@dataclasses.dataclass(frozen=True)
class GenerationSettings(WindowSettings, Decoding):
    """The settings of a task with a decoder, of decoding, and of long sources."""

    decoder: str = option(
        ENCODER,
        "what the decoder starts from: encoder (a copy of its weights), shared (the "
        "encoder's own weights), layers/hidden/heads such as 3/384/6 (a new one), or "
        "another BERT; cross-attention is always new",
        form="a word or a path",
    )
    target_vocab: Any = option(
        None,
        "the vocabulary of the targets, a folder with vocab.txt",
        form="a folder",
        unset="the encoder's",
    )
    sizes: dict[str, Any] | None = option(
        None,
        "keys of BertConfig in which the decoder differs from the encoder",
        form="an object",
        unset="from decoder and target_vocab",
    )
    tied: bool = option(
        True, "whether the output layer shares the decoder's token embeddings"
    )
    label_smoothing: float = option(
        0.1,
        "share of the probability that the loss spreads over all tokens",
        least=0,
        most=1,
        free=True,
        read_by=("training",),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbstractiveSummarizationSettings(GenerationSettings):
    """The settings of `AbstractiveSummarization`."""

    no_repeat_ngram: int = NO_REPEAT_NGRAM.field(default=3)
    length_ratio: float = LENGTH_RATIO.field(default=1.0)
    stemmer: str = STEMMER.field()


_ROWS = (RowForm(("text", "texts", "scores")),)
TRANSLATION = TaskHelp(
    place="bert_keras.tasks.generation:Translation",
    settings=GenerationSettings,
    summary="a text in another language, or in another form of the same",
    data="the columns source and target; or two files with one text per line, see "
    "--target-file",
    file="train.jsonl",
    rows='{"source": "A dog runs.", "target": "Ein Hund rennt."}',
    scores="BLEU and chrF; perplexity and token accuracy",
    answers="text; texts and scores of all hypotheses",
    row_forms=_ROWS,
    columns=({"source": "source", "target": "target"},),
    labels=("target",),
)
ABSTRACTIVE_SUMMARIZATION = TaskHelp(
    place="bert_keras.tasks.generation:AbstractiveSummarization",
    settings=AbstractiveSummarizationSettings,
    summary="a summary or headline in words of its own",
    data="the columns document and summary; or two files with one text per line, see "
    "--target-file",
    file="train.jsonl",
    rows='{"document": "A storm hit the coast. Nobody was hurt. Trains stopped.", '
    '"summary": "A storm stopped trains."}',
    scores="ROUGE-1, ROUGE-2 and ROUGE-L; perplexity and token accuracy",
    answers="text; texts and scores of all hypotheses",
    row_forms=_ROWS,
    columns=({"source": "document", "target": "summary"},),
    labels=("target",),
)
