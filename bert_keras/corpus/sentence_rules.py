"""Plain text to paragraphs and sentences, outside the graph: for corpora of any size.

Sentences follow the rules of `sentencex` (by Wikimedia, some 300 languages), which is
compiled and splits tens of millions of characters a second. Its time grows with the
square of a text's length (a line of 200,000 Chinese characters takes 43 seconds), so a
paragraph of more than 4,096 characters is split in windows; a quotation across two
windows may be cut. `text.sentences` splits in the graph, for tasks that are exported.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bert_keras.errors import ConfigError, needs

MOST_SENTENCE = 8192  # characters; far more than a row of 512 tokens holds
_WINDOW = 2048  # characters split at once, or up to twice as many
_MOST_WAITING = MOST_SENTENCE - 2 * _WINDOW  # characters before the next window
_WRAPPED = 120  # characters; most hard-wrapped lines are shorter
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*")


def sentence_splitter(language: str) -> Callable[[str], list[str]]:
    """Return a function that splits a paragraph into sentences.

    Sentences are stripped and non-empty, and have at most `MOST_SENTENCE` characters: a
    longer one is cut at a space if it has one.

    `language` is a code such as `en` or `zh`. Languages that `sentencex` does not know
    are split like English or a related language.
    """
    if not isinstance(language, str) or not _LANGUAGE.fullmatch(language):
        raise ConfigError(
            f"`language` must be a code such as en or zh; received {language!r}"
        )
    with needs("splitting into sentences", extra="corpus"):
        from sentencex import segment

    def split(paragraph: str) -> list[str]:
        sentences: list[str] = []
        waiting: list[str] = []
        for window in _windows(paragraph):
            found = segment(language, "".join(waiting) + window)
            complete = _complete(found)
            sentences += found[:complete]
            waiting = found[complete:]
            while sum(map(len, waiting)) > _MOST_WAITING:
                cut = _cut(waiting.pop(0))
                sentences.append(cut[0])
                waiting[:0] = cut[1:]
        parts = (part for found in (sentences, waiting) for part in found)
        return [text for part in parts if (text := part.strip())]

    return split


def _cut(sentence: str) -> list[str]:
    """Cut a sentence that is too long, at a space if it has one."""
    if len(sentence) <= _MOST_WAITING:
        return [sentence]
    end = sentence.rfind(" ", 0, _MOST_WAITING) + 1 or _MOST_WAITING
    return [sentence[:end], sentence[end:]]


def _complete(found: list[str]) -> int:
    """Return how many sentences of a window are complete: the last one may continue.

    Sentences after an open quotation mark are not complete, since its end would be
    taken for a start; unless they are long, as after 5" for five inches.
    """
    complete = quotes = 0
    for count, sentence in enumerate(found[:-1], 1):
        quotes += sentence.count('"')
        if quotes % 2 == 0:
            complete = count
    long = sum(map(len, found[complete:])) > _WINDOW
    return max(len(found) - 1, 0) if long else complete


def _windows(paragraph: str) -> list[str]:
    """Cut a long paragraph into windows, at spaces if it has any."""
    windows, start = [], 0
    while len(paragraph) - start > 2 * _WINDOW:
        end = paragraph.rfind(" ", start, start + _WINDOW) + 1 or start + _WINDOW
        windows.append(paragraph[start:end])
        start = end
    return [*windows, paragraph[start:]]


def paragraphs_of(text: str) -> list[str]:
    """Return the paragraphs of a text, stripped and without line breaks.

    Blank lines separate paragraphs. Each line is also a paragraph, unless the text was
    hard-wrapped (nine of ten lines have at most 120 characters): then a line
    continues in the next one if the next one's first word would not have fit.
    """
    lines = [line.rstrip() for line in text.split("\n")]
    sizes = sorted(len(line) for line in lines if line)
    width = sizes[len(sizes) * 9 // 10] if sizes else 0
    if width > _WRAPPED:
        return [line.strip() for line in lines if line]
    paragraphs: list[str] = []
    goes_on = False
    for i, line in enumerate(lines):
        if not line:
            goes_on = False
            continue
        if goes_on:
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line.strip())
        following = lines[i + 1].split(None, 1) if i + 1 < len(lines) else []
        goes_on = bool(following) and len(line) + 1 + len(following[0]) > width
    return paragraphs
