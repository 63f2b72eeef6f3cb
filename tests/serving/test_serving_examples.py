"""The examples that ask a server run against one of TF Serving's REST API."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import tensorflow as tf
from conftest import ROOT

from bert_keras.serving.app import STATIC
from serving.rest_stub import running, stub_of

FOLDER = ROOT / "examples" / "serving"
TEXT = (tf.TensorSpec([None], tf.string, name="text"),)


def echo(text: Any) -> dict[str, Any]:
    return {"text": text, "length": tf.strings.length(text)}


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_script_queries_by_row_and_by_column() -> None:
    with running(stub_of({"serving_default": (TEXT, echo)})) as stub:
        command = ["sh", str(FOLDER / "curl.sh"), stub.url, "m"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines[0]["model_version_status"][0]["state"] == "AVAILABLE"
        assert (
            "serving_default" in lines[1]["metadata"]["signature_def"]["signature_def"]
        )
        rows = [
            dict(zip(lines[3]["outputs"], row, strict=True))
            for row in zip(*lines[3]["outputs"].values(), strict=True)
        ]
        assert lines[2]["predictions"] == rows
        assert [row["length"] for row in rows] == [25, 23]
        stub.failures.append((404, {}, '{"error": "no such model"}'))
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_page_is_complete_and_short() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert page.count("\n") < 80
    named = set(re.findall(r'field\("(\w+)"\)', page))
    assert named == set(re.findall(r'id="(\w+)"', page))
    assert "innerHTML" not in page  # what a server answers is shown as text
    assert not re.search(r"(src|href)=", page)  # nothing is loaded from elsewhere


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_page_sends_valid_requests() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    (function,) = re.findall(r"(async function ask.*?\n}\n)", page, flags=re.S)
    with running(stub_of({"serving_default": (TEXT, echo)})) as stub:
        script = f'{function}\nask("{stub.url}", "m", ["é 日", ""]).then((rows) => '
        script += "console.log(JSON.stringify(rows)));"
        done = subprocess.run(
            ["node", "-e", script], capture_output=True, text=True, check=True
        )
    assert json.loads(done.stdout) == [
        {"text": "é 日", "length": 6},
        {"text": "", "length": 0},
    ]


# The page of `serve`, without a browser: nodes of a document are arrays.
_FOUND = """
globalThis.document = { createElement: (tag) => {
  const made = { tag, children: [], append: (...all) => made.children.push(...all) };
  made.replaceChildren = (...all) => { made.children = all; };
  made.querySelectorAll = () => made.children.map((each) => each.children[1]);
  made.after = () => {};
  return made;
} };
const { viewOf } = await import(process.argv[1]);
const text = [{ name: "text", dtype: "string", shape: [-1] }];
const names = ["ids", "scores", "texts"];
const [ranking, rerank] = process.argv.slice(2);
const how = { ranking, rerank: rerank === "true" };
const search = { inputs: text, outputs: names.map((name) => ({ name })), search: how };
const vectors = { inputs: text, outputs: [{ name: "embedding", shape: [-1, 2] }] };
const model = { signatures: { serving_default: vectors, search } };
const known = { pram: [1, 0], "a pram": [1, 0.5], "a ": [0, 1] };
const ask = async (_, rows) => rows.map(([each]) => known[each]);
const found = [{ ids: ["7"], scores: [-0.25], texts: ["a pram"] }]; // of bits
const view = viewOf(model, search, [{ text: "pram" }], found, ask);
await view.words?.();
const [, name] = view.nodes[1].children[0].children;
const marks = name.children.filter((each) => each.children);
const marked = marks.map((each) => each.children[0].children[0]);
console.log(JSON.stringify([view.nodes[0].children[0], ...marked]));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
@pytest.mark.parametrize(
    ("ranking", "rerank", "shown"),
    [
        ("dense", "false", ["Texts of the index by vectors", "pram"]),  # of bits
        ("hybrid", "true", ["Texts of the index by vectors and words, reranked"]),
    ],
)
def test_the_words_of_a_text_found_by_vectors_are_marked(
    ranking: str, rerank: str, shown: list[str]
) -> None:
    place = (STATIC / "answers.js").as_uri()
    command = ["node", "--input-type=module", "-e", _FOUND, place, ranking, rerank]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == shown
