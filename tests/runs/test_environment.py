"""The description of the machine: the features of its processor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_keras.runs import environment

CPUINFO = """processor\t: 0
model name\t: Some CPU @ 2.00GHz
flags\t\t: fpu avx2 avx512f avx512_bf16

processor\t: 1
model name\t: Some CPU @ 2.00GHz
flags\t\t: fpu
"""


@pytest.fixture
def cpuinfo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return a file that is read in place of /proc/cpuinfo."""
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO, encoding="utf-8")
    monkeypatch.setattr(environment, "Path", lambda _: path)
    environment.computes_bfloat16.cache_clear()
    yield path
    environment.computes_bfloat16.cache_clear()


def test_features_are_the_flags_of_the_processor(cpuinfo: Path) -> None:
    found = environment.processor_features()
    assert set(found) == set(environment.FEATURES)
    there = {name for name, is_there in found.items() if is_there}
    assert there == {"avx2", "avx512f", "avx512_bf16"}
    assert environment.computes_bfloat16()
    assert not environment.emulates("mixed_bfloat16")
    assert environment.environment()["processor"].startswith("Some CPU @ 2.00GHz, ")


def test_a_flag_is_a_whole_word(cpuinfo: Path) -> None:
    cpuinfo.write_text("flags : avx2x xavx512f avx512_bf16_more\n", encoding="utf-8")
    assert not any(environment.processor_features().values())


def test_another_system_has_no_known_features(cpuinfo: Path) -> None:
    cpuinfo.unlink()
    assert not any(environment.processor_features().values())
    assert not environment.computes_bfloat16()
    assert not environment.emulates("mixed_bfloat16")  # as it may have other names


def test_a_processor_with_avx2_alone_emulates_bfloat16(cpuinfo: Path) -> None:
    cpuinfo.write_text("flags : fma avx2\n", encoding="utf-8")
    assert environment.emulates("mixed_bfloat16")
    assert not environment.emulates("float32")
