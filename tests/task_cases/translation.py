"""Word for word translations into other words of the vocabulary, in another order."""

from __future__ import annotations

from conftest import VOCABULARY

from bert_keras.data.table import as_columns
from bert_keras.tasks.generation import Translation
from task_cases import OTHERS, Case

_SOURCES = [
    "see you at six",
    "lunch at home",
    "win cash now",
    "free cash prize",
    "you win",
    "shoes half off",
    "sale now",
    "see home",
]
_WORDS = "see six win lunch you cash at free home sale prize shoes half now off".split()
# Each word by the next of the list, and the sentence backwards.
_TARGETS = [
    " ".join(
        _WORDS[(_WORDS.index(word) + 1) % len(_WORDS)]
        for word in reversed(source.split())
    )
    for source in _SOURCES
]


def _case(**settings: object) -> Case:
    task = Translation(
        label_smoothing=0.0,
        beams=2,
        max_target_length=8,
        **settings,  # type: ignore[arg-type]
    )
    size = (task.sizes or {}).get("vocab_size", len(VOCABULARY))
    return Case(
        task,
        as_columns(source=_SOURCES, target=_TARGETS),
        outputs=(None, None, size),
        loss=0.2,
        others=(OTHERS,),
        wrong=("target", "  "),
        target="",
        steps=240 if task.decoder == "1/8/2" else 80,  # a new decoder is slower
    )


_OTHER = {"vocabulary": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *_WORDS]}
CASES = {
    "copied": _case(),
    "shared": _case(decoder="shared"),
    "other": _case(decoder="1/8/2", target_vocab=_OTHER),
}
