"""BLEU and chrF by sacrebleu."""

import sys

import pytest

from bert_keras.errors import ConfigError
from bert_keras.scoring.translation import translation_scores

pytest.importorskip("sacrebleu")


def test_scores_carry_their_signatures():
    references = ["The red house stands here.", "A dog runs in the green park."]
    found = translation_scores(references, [text.lower() for text in references])
    assert found["bleu_lowercase"] == pytest.approx(100.0)
    assert 0 < found["bleu"] < 100 and 0 < found["chrf"] < 100
    assert "tok:13a" in found["signatures"]["bleu"]
    assert "case:lc" in found["signatures"]["bleu_lowercase"]


def test_a_missing_package_is_named_with_its_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install 'bert_keras\[generation\]'"):
        translation_scores(["a"], ["a"])
