"""Plain text to paragraphs and sentences, outside the graph: for corpora of any size.

Sentences are told by the rules of `sentencex` (Wikimedia's, some 300 languages), which
is compiled and splits tens of millions of characters a second. Its time grows with the
square of a text's length (a line of 200,000 Chinese characters takes it 43 seconds), so
that a paragraph of more than 4,096 characters goes through it in windows; a quotation
that lies across two of them may be split inside. `bert_keras.text.sentences` splits in
the TensorFlow graph, for tasks; here nothing has to be exported, and more languages
count.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bert_keras.errors import ConfigError

MOST_SENTENCE = 8192  # characters; far beyond what a row of 512 tokens holds
_WINDOW = 2048  # characters that are split together, or twice as many
_MOST_WAITING = MOST_SENTENCE - 2 * _WINDOW  # characters before the next window
_WRAPPED = 120  # characters; lines of text that was wrapped by hand are shorter
_INSTALL = "pip install 'bert_keras[corpus]'"
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*")


def sentence_splitter(language: str) -> Callable[[str], list[str]]:
    """Return the function that splits a paragraph of a language into sentences.

    A sentence has no white space around it, none is empty, and none has more than
    `MOST_SENTENCE` characters: what goes on without an end is cut at a space, or
    anywhere where there is none.

    Args:
        language: a code such as `en` or `zh`. Languages that `sentencex` does not know
            are split like English, or like one that is near.

    Raises:
        ConfigError: it is no code of a language, or the package is missing.
    """
    if not isinstance(language, str) or not _LANGUAGE.fullmatch(language):
        raise ConfigError(
            f"`language` must be a code such as en or zh; received {language!r}"
        )
    try:
        from sentencex import segment
    except ImportError:
        raise ConfigError(
            f"splitting into sentences needs a package: {_INSTALL}"
        ) from None

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
    """Cut what is too long to wait at a space, or anywhere where there is none."""
    if len(sentence) <= _MOST_WAITING:
        return [sentence]
    end = sentence.rfind(" ", 0, _MOST_WAITING) + 1 or _MOST_WAITING
    return [sentence[:end], sentence[end:]]


def _complete(found: list[str]) -> int:
    """Return how many sentences of a window are whole: the last one may go on.

    Nor those after a quotation mark that is not closed, since the next one would be
    taken to open; unless they are long, as after the mark of 5" for inches.
    """
    complete = quotes = 0
    for count, sentence in enumerate(found[:-1], 1):
        quotes += sentence.count('"')
        if quotes % 2 == 0:
            complete = count
    long = sum(map(len, found[complete:])) > _WINDOW
    return max(len(found) - 1, 0) if long else complete


def _windows(paragraph: str) -> list[str]:
    """Cut a long paragraph at spaces, or anywhere where there is none."""
    windows, start = [], 0
    while len(paragraph) - start > 2 * _WINDOW:
        end = paragraph.rfind(" ", start, start + _WINDOW) + 1 or start + _WINDOW
        windows.append(paragraph[start:end])
        start = end
    return [*windows, paragraph[start:]]


def paragraphs_of(text: str) -> list[str]:
    """Return the paragraphs of a text, without line breaks and space around them.

    Blank lines part paragraphs. Between them each line is one, too, unless the text was
    wrapped by hand: nine of ten lines have at most 120 characters. There a line goes on
    in the next one if the next one's first word would not have fitted into the width.
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
