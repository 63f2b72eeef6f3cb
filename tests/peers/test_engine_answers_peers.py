"""Engines give the answers of TensorFlow, of each task and in windows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_near, refused, thorough
from task_cases import first_case

from bert_keras.errors import ConfigError
from bert_keras.exports.engine_graph import EngineGraph
from bert_keras.exports.saved_model_folder import ANSWERS
from bert_keras.inference.engine import EngineModel
from bert_keras.inference.engine_conversion import engine_model
from bert_keras.inference.engine_export import export_to_engine
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.model_folder import save_model
from bert_keras.tasks import TASKS
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.protocols import texts_of
from bert_keras.training.evaluation import evaluate

pytest.importorskip("openvino", reason="needs bert_keras[engines]")
CASES = {name: first_case(name) for name in TASKS}
RUN = [n for n, case in CASES.items() if not case.task.needs.not_for_engines]
ENGINES = ("openvino", "onnx")
# Their inputs or outputs have a form of their own; the other tasks are thorough.
OFTEN = {"classification", "embedding", "question-answering", "token-classification"}
TEXTS = ["free cash prize", "", "lunch at six, you", "é 日本 🎉", "Sale " * 40]


@pytest.fixture(scope="module", params=[n if n in OFTEN else thorough(n) for n in RUN])
def asked(request: pytest.FixtureRequest, make_model: Callable[..., Any]) -> Any:
    """Return a model, its items, and TensorFlow's answers to them."""
    case = CASES[request.param]
    model = make_model(case.task)
    parts = [
        part + others
        for part, others in zip(
            texts_of(case.task, case.columns), case.others, strict=True
        )
    ]
    # Windows of one repeated word are equal; rounding decides between them.
    rows = zip(*parts, strict=True)
    items = [row for row in rows if "WIN " * 30 not in row]
    if len(parts) == 1:
        items = [row[0] for row in items]
    return model, items, Predictor(model).predict(items, batch_size=5)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_gives_the_answers_of_tensorflow(
    asked: Any, engine: str, tmp_path: Path
) -> None:
    model, items, wanted = asked
    if engine == "openvino":  # where a run of the model often answers, too
        export_to_engine(model, tmp_path / "export", format=engine)
        predictor = load_predictor(tmp_path / "export")
    else:
        predictor = Predictor(engine_model(model, engine))
    assert isinstance(predictor.model, EngineModel)
    # Batches of several lengths and sizes, and one text alone.
    found = predictor.predict(items, batch_size=5)
    assert_near(found, wanted)
    assert_near(predictor.predict(items[:1]), wanted[:1])
    columns = CASES[model.task.name].columns
    assert_near(evaluate(predictor, columns), evaluate(Predictor(model), columns))


@pytest.mark.parametrize("engine", ["onnx", thorough("openvino")])
@pytest.mark.parametrize(
    "task",
    [
        Classification(("ham", "promo", "spam"), long="windows", combine="attention"),
        Embedding(long="windows", combine="max"),
        Embedding(kind="sparse"),
    ],
    ids=lambda task: f"{task.name}-{getattr(task, 'kind', '')}",
)
def test_an_engine_combines_windows(
    make_model: Callable[..., Any], task: Any, engine: str
) -> None:
    model = make_model(task)
    words = "see you at six lunch home win cash now prize free sale".split()
    texts = ["see you", " ".join(words * 9), "", " ".join(words[::-1] * 4)]
    wanted = Predictor(model).predict(texts)
    found = Predictor(engine_model(model, engine)).predict(texts)
    assert_near(found, wanted)


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_litert_gives_the_outputs_of_keras(asked: Any, tmp_path: Path) -> None:
    model, *_ = asked
    folder = export_to_engine(model, tmp_path / "lite", format="litert").folder
    refused(lambda: load_predictor(folder), "LiteRT")
    # An interpreter as on a phone: it has no operations of TensorFlow.
    interpreter = tf.lite.Interpreter(str(folder / "model.tflite"))
    run = interpreter.get_signature_runner()
    said = json.loads((folder / ANSWERS).read_text("utf-8"))
    draw = np.random.default_rng(0)
    for rows, length in ((1, 4), (3, 9)):
        batch = {}
        for each in said["inputs"]:
            shape = [rows, *[2] * (len(each["shape"]) - 2), length]
            low, high = (5, 20) if each["name"] == "input_ids" else (0, 2)
            batch[each["name"]] = draw.integers(low, high, shape, each["dtype"])
        batch["attention_mask"][..., 0] = 1
        wanted = EngineGraph(model)(batch)
        found = run(**batch)
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "outputs"),
    [
        ("embedding", {"last_hidden_state", "sentence_embedding"}),
        ("question-answering", {"start_logits", "end_logits"}),
        ("masked-lm", {"logits"}),
        ("token-classification", {"logits"}),
    ],
)
def test_transformers_computes_the_outputs_of_the_graph(
    task: str, outputs: set[str], make_model: Callable[..., Any], tmp_path: Path
) -> None:
    """The same ids by onnxruntime and by transformers, from the model folder."""
    import onnxruntime
    import torch
    import transformers

    model = make_model(CASES[task].task)
    save_model(model, tmp_path / "model")
    folder = export_to_engine(model, tmp_path / "onnx", format="onnx").folder
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)  # of the export
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    reference = kind.from_pretrained(tmp_path / "model").eval()
    pairs = (TEXTS, TEXTS[::-1]) if task == "question-answering" else (TEXTS,)
    if task == "masked-lm":
        assert tokenizer("free [MASK] prize").input_ids.count(4) == 1  # of [MASK]
    batch = dict(tokenizer(*pairs, return_tensors="pt", padding=True, truncation=True))
    with torch.no_grad():
        wanted = reference(**batch)
    session = onnxruntime.InferenceSession(folder / "onnx/model.onnx")
    names = [each.name for each in session.get_outputs()]
    assert set(names) == outputs
    found = session.run(None, {name: each.numpy() for name, each in batch.items()})
    real = batch["attention_mask"].numpy().astype(bool)
    for name, values in zip(names, found, strict=True):
        if name in wanted:
            theirs = wanted[name].numpy()
            np.testing.assert_allclose(values[real], theirs[real], atol=2e-5)
    if task == "embedding":
        hidden = found[names.index("last_hidden_state")]
        mean = (hidden * real[..., None]).sum(1) / real.sum(1, keepdims=True)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        np.testing.assert_allclose(found[1], mean, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(TASKS) - set(RUN)))
def test_tasks_that_engines_cannot_run_are_refused(
    name: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(CASES[name].task)
    with pytest.raises(ConfigError, match=f"{name} runs in TensorFlow only: "):
        engine_model(model, "openvino")
    refused(
        lambda: export_to_engine(model, tmp_path / "no", format="onnx"),
        "TensorFlow only",
    )


def test_outputs_may_be_a_dict(make_model: Callable[..., Any]) -> None:
    @dataclasses.dataclass(frozen=True)
    class TwoOutputs(Classification):
        def outputs(self, encoder: Any, inputs: Any, seed: Any) -> Any:
            logits = super().outputs(encoder, inputs, seed)
            return {"z": logits, "a": logits[:, :1]}

        def answer(self, outputs: Any, batch: Any) -> Any:
            return {"z": outputs["z"], "a": outputs["a"]}

    model = make_model(TwoOutputs(("ham", "promo", "spam")))
    wanted = Predictor(model).predict(TEXTS)
    for engine in ENGINES:
        assert_near(Predictor(engine_model(model, engine)).predict(TEXTS), wanted)
