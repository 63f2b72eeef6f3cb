"""The page at `/`, in a browser: it shows what `predict` answers, for each task."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_browser
from task_cases import Case, cases_of, first_case

import bert_keras
from bert_keras.models.model_folder import save_model
from bert_keras.serving import ServeConfig, Server
from bert_keras.serving.app import STATIC
from bert_keras.tasks import TASKS
from serving.conftest import Client, Folders

pytestmark = needs_browser()

# Form of a case by the name of its model; those of `QUICK` represent the others.
FORMS = {name: "" for name in TASKS} | {
    "pairs": "classification",
    "calibrated": "classification",
    "unanswerable": "question-answering",
}
QUICK = ("classification", "regression", "token-classification", "question-answering")
SLOW = tuple(name for name in FORMS if name not in QUICK)


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.thorough)


def case_of(model: str) -> Case:
    task = FORMS[model] or model
    return cases_of(task)[model] if FORMS[model] else first_case(task)


class Site:
    """A server of untrained models, and what it answers as `predict` gives it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def predict(self, name: str, text: Any) -> dict[str, Any]:
        # A client gives the rows of `predict`: tests/serving/test_client.py.
        with bert_keras.Client(self.url, model=name) as client:
            return client.predict([text])[0]


@contextlib.contextmanager
def running(
    names: Sequence[str], make_model: Callable[..., Any], folder: Path
) -> Iterator[Site]:
    paths = [
        f"{name}={save_model(make_model(case_of(name).task), folder / name)}"
        for name in names
    ]
    config = ServeConfig(port=0, no_grpc=True, max_characters=500)
    with Server(paths, config=config, is_quiet=True).running() as server:
        yield Site(server.url)


@pytest.fixture(scope="module")
def site(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with running(QUICK, make_model, tmp_path_factory.mktemp("quick")) as site:
        yield site


@pytest.fixture(scope="module")
def slow_site(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with running(SLOW, make_model, tmp_path_factory.mktemp("slow")) as site:
        yield site


@pytest.fixture
def site_of(request: pytest.FixtureRequest) -> Callable[[str], Site]:
    """Return a function that gives the server of a model."""

    def site_of(model: str) -> Site:
        return request.getfixturevalue("site" if model in QUICK else "slow_site")

    return site_of


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page; it must reach nothing but its server."""
    errors: list[str] = []
    asked: list[tuple[str, str]] = []
    contexts = []

    def open_page(url: str, *, width: int = 1400, expected: str = "") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on(
            "console",
            lambda told: (
                told.type in ("error", "warning")
                and not (expected and expected in told.text)
                and errors.append(told.text)
            ),
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append((url, request.url)))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert [found for url, found in asked if not found.startswith(f"{url}/")] == []


def ask(
    page: Any, texts: dict[str, str], model: str = "", *, signature: str = ""
) -> None:
    """Choose a model, fill the fields, and wait for the answer."""
    if model:
        page.select_option("#model", model)
    if signature:
        page.select_option("#signature", signature)
    for name, text in texts.items():
        page.fill(f"#field-{name}", text)
    page.click("#ask")
    page.wait_for_selector("#raw", state="visible")


def bars(page: Any) -> list[tuple[str, float, bool]]:
    """Return name, number and whether it is chosen of each bar."""
    found = []
    for bar in page.query_selector_all(".bars li"):
        name = bar.query_selector(".name").text_content()
        number = bar.query_selector(".value").inner_text()
        value = float(number.rstrip(" %")) / (100 if "%" in number else 1)
        chosen = bar.get_attribute("class") == "chosen"
        assert chosen == name.endswith(" (answer)")
        found.append((name.removesuffix(" (answer)"), value, chosen))
    return found


def near(
    found: list[tuple[str, float, bool]], wanted: list[tuple[str, float, bool]]
) -> bool:
    """Compare bars; numbers are shown with three digits."""
    if [(name, chosen) for name, _, chosen in found] != [
        (name, chosen) for name, _, chosen in wanted
    ]:
        return False
    return np.allclose(
        [value for _, value, _ in found], [value for _, value, _ in wanted], atol=1.1e-3
    )


def headline(page: Any) -> str:
    return page.inner_text("#headline")


def marks(page: Any) -> list[str]:
    """Return the text of each mark, without its type."""
    return page.eval_on_selector_all(
        ".passage mark", "all => all.map((each) => each.firstChild.textContent)"
    )


def passage(page: Any) -> str:
    """Return the text in which marks are, as it was sent."""
    return page.eval_on_selector(
        ".passage",
        "all => { const copy = all.cloneNode(true);"
        "copy.querySelectorAll('.type').forEach((type) => type.remove());"
        "return copy.textContent; }",
    )


@pytest.mark.parametrize("model", ["classification", slow("pairs"), slow("calibrated")])
def test_classes_are_bars(
    site_of: Callable[[str], Site], open_page: Callable[..., Any], model: str
) -> None:
    site = site_of(model)
    texts = ("win cash now", "é 日 free") if model == "pairs" else ("win cash now",)
    wanted = site.predict(model, texts if len(texts) > 1 else texts[0])
    page = open_page(site.url)
    names = ("text_a", "text_b") if len(texts) > 1 else ("text",)
    ask(page, dict(zip(names, texts, strict=True)), model)
    shares = sorted(wanted["probabilities"].items(), key=lambda each: -each[1])
    label = wanted["label"]
    assert near(bars(page), [(name, share, name == label) for name, share in shares])
    if model == "calibrated":
        assert wanted["abstained"]  # else nothing is proven
        assert headline(page).startswith("Withheld: ")
    else:
        assert headline(page) == label
    assert "version 1" in page.inner_text("#about")


@pytest.mark.thorough
def test_labels_are_bars(slow_site: Site, open_page: Callable[..., Any]) -> None:
    wanted = slow_site.predict("multi-label", "sale now")
    page = open_page(slow_site.url)
    ask(page, {"text": "sale now"}, "multi-label")
    shares = sorted(wanted["probabilities"].items(), key=lambda each: -each[1])
    labels = wanted["labels"]
    assert near(bars(page), [(name, share, name in labels) for name, share in shares])
    assert headline(page) == (", ".join(labels) or "None of the labels")


def test_a_number_is_shown_on_its_scale(
    site: Site, open_page: Callable[..., Any]
) -> None:
    page = open_page(site.url)
    for count, text in enumerate(("win cash", "see you at six"), start=1):
        wanted = site.predict("regression", text)["score"]
        ask(page, {"text": text}, "" if count > 1 else "regression")
        assert float(headline(page)) == pytest.approx(wanted, rel=1e-3)
        low, high = (float(end) for end in page.inner_text(".ends").split())
        assert low <= min(wanted, 0) and max(wanted, 0) <= high
        assert len(page.query_selector_all(".dot")) == count
        box = page.query_selector(".dot.now").bounding_box()
        axis = page.query_selector(".axis").bounding_box()
        place = (box["x"] + box["width"] / 2 - axis["x"]) / axis["width"]
        assert place == pytest.approx((wanted - low) / (high - low), abs=0.01)


@pytest.mark.thorough
def test_whether_the_second_text_follows(
    slow_site: Site, open_page: Callable[..., Any]
) -> None:
    wanted = slow_site.predict("next-sentence", ("win cash", "now"))
    page = open_page(slow_site.url)
    ask(page, {"text_a": "win cash", "text_b": "now"}, "next-sentence")
    shares = [value for _, value, _ in bars(page)]
    share = wanted["probability"]
    assert np.allclose(shares, [share, 1 - share], atol=1.1e-3)
    assert [chosen for _, _, chosen in bars(page)] == [
        wanted["is_next"],
        not wanted["is_next"],
    ]
    assert ("does not follow" in headline(page)) != wanted["is_next"]


@pytest.mark.thorough
def test_choices_are_bars_in_their_order(
    slow_site: Site, open_page: Callable[..., Any]
) -> None:
    choices = ["lunch now", "win cash", "日本"]
    wanted = slow_site.predict("multiple-choice", ("see you at six", choices))
    page = open_page(slow_site.url)
    given = {"context": "see you at six", "choices": "\n".join(choices) + "\n\n"}
    ask(page, given, "multiple-choice")
    shares = zip(choices, wanted["probabilities"], strict=True)
    assert near(bars(page), [(*each, each[0] == wanted["choice"]) for each in shares])


@pytest.mark.thorough
def test_words_for_masks_are_bars(
    slow_site: Site, open_page: Callable[..., Any]
) -> None:
    page = open_page(slow_site.url)
    page.select_option("#model", "masked-lm")
    page.fill("#field-text", "see you at ")
    page.focus("#field-text")
    page.keyboard.press("End")
    page.click("#mask")
    page.keyboard.type(", win [MASK]")
    text = "see you at [MASK], win [MASK]"
    assert page.input_value("#field-text") == text
    wanted = slow_site.predict("masked-lm", text)
    ask(page, {})
    rows = [each for mask in wanted["masks"] for each in mask]
    assert near(
        bars(page), [(each["token"], each["probability"], False) for each in rows]
    )
    assert headline(page) == wanted["sequences"][0]
    ask(page, {"text": "no mask"})
    assert headline(page) == "The text has no [MASK]"


@pytest.mark.parametrize("model", ["token-classification", slow("feature-tagging")])
def test_entities_are_marked_and_words_have_tags(
    site_of: Callable[[str], Site], open_page: Callable[..., Any], model: str
) -> None:
    site = site_of(model)
    text = "🎉 win a prize,\n see 日本 at six"  # one UTF-16 unit more than characters
    wanted = site.predict(model, text)["entities"]
    assert wanted  # else nothing is proven
    page = open_page(site.url)
    ask(page, {"text": text}, model, signature="serving_default")
    assert marks(page) == [each["text"] for each in wanted]
    assert passage(page) == text
    named = [(f"{each['text']} ({each['type']})", each["score"]) for each in wanted]
    assert near(bars(page), [(*each, False) for each in named])
    words = ["win", "a", "prize", "日本"]
    tagged = site.predict(model, words)
    ask(page, {"words": " win a\nprize  日本"}, signature="words")
    assert page.locator(".tags .word").all_inner_texts() == words
    assert page.locator(".tags .tag").all_inner_texts() == tagged["tags"]


@pytest.mark.parametrize("model", ["question-answering", slow("unanswerable")])
def test_the_answer_is_marked(
    site_of: Callable[[str], Site], open_page: Callable[..., Any], model: str
) -> None:
    site = site_of(model)
    asked = {"question": "when?", "context": "🎉 see you\nat six, free prize at home"}
    wanted = site.predict(model, tuple(asked.values()))
    page = open_page(site.url)
    page.select_option("#model", model)
    page.fill("#field-context", asked["context"])
    page.fill("#field-question", asked["question"])
    page.press("#field-question", "Enter")
    page.wait_for_selector("#raw", state="visible")
    best = [(each["answer"], each["score"]) for each in wanted["n_best"]]
    answer = wanted["answer"]
    assert near(
        bars(page),
        [(*each, not at and bool(answer)) for at, each in enumerate(best)],
    )
    assert passage(page) == asked["context"]
    assert marks(page) == ([answer] if answer else [])
    assert headline(page) == answer or not answer


@pytest.mark.thorough
def test_sentences_of_the_summary_are_marked(
    slow_site: Site, open_page: Callable[..., Any]
) -> None:
    text = "🎉 See you at six. Win cash now.  Lunch at home."
    wanted = slow_site.predict("summarization", text)
    page = open_page(slow_site.url)
    ask(page, {"document": text}, "summarization")
    found = wanted["sentences"]
    assert marks(page) == [each["text"] for each in found]
    assert passage(page) == text
    assert near(bars(page), [(each["text"], each["score"], False) for each in found])
    assert headline(page) == wanted["summary"]


@pytest.mark.thorough
def test_the_nearest_texts_come_first(
    slow_site: Site, open_page: Callable[..., Any]
) -> None:
    query, texts = "win cash", ["see you at six", "free prize", "win cash!"]
    vectors = [
        slow_site.predict("embedding", each)["embedding"] for each in (query, *texts)
    ]
    vectors = [np.array(each) / np.linalg.norm(each) for each in vectors]
    cosines = [float(vectors[0] @ each) for each in vectors[1:]]
    wanted = sorted(zip(texts, cosines, strict=True), key=lambda each: -each[1])
    page = open_page(slow_site.url)
    ask(page, {"query": query, "texts": "\n".join(texts)}, "embedding")
    page.wait_for_selector(".ranked + .note")  # the words that counted are marked
    assert page.inner_text(".ranked + .note").startswith("The marked words")
    assert page.locator(".ranked .name").all_inner_texts() == [t for t, _ in wanted]
    shown = map(float, page.locator(".ranked .value").all_inner_texts())
    assert np.allclose(list(shown), [score for _, score in wanted], atol=1.1e-3)
    assert headline(page) == wanted[0][0]


@pytest.mark.parametrize("group", ["site", slow("slow_site")])
def test_each_model_has_an_example(
    request: pytest.FixtureRequest, open_page: Callable[..., Any], group: str
) -> None:
    page = open_page(request.getfixturevalue(group).url)
    for model in QUICK if group == "site" else SLOW:
        page.select_option("#model", model)
        assert page.is_hidden("#raw")  # the answer of another model is gone
        page.click("#example")
        page.wait_for_selector("#raw:visible, #error:visible")
        assert headline(page), page.inner_text("#error")


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"example": {"text": "Grüße,\nAnna"}}, "Grüße,\nAnna"),
        ({"classes": ["ham", "spam"]}, "Congratulations! You have won"),
        ({"classes": ["negative", "positive"]}, "The soup was cold"),
        ({"classes": ["0", "sea_birds"]}, "This is about sea birds."),
        ({"task": "translation"}, "Two children are playing"),
    ],
)
def test_the_example_fits_the_model(
    site: Site, open_page: Callable[..., Any], facts: dict[str, Any], wanted: str
) -> None:
    page = open_page(site.url)
    signature = {"inputs": [{"name": "text", "dtype": "string", "shape": [-1]}],
                 "outputs": OWN["signatures"]["both"]["outputs"]}  # fmt: skip
    model = {**OWN, "task": "classification"} | facts
    model["signatures"] = {"serving_default": signature}
    page.route("**/v1/models", lambda route: route.fulfill(json={"models": [model]}))
    page.route("**/*:predict", lambda route: route.fulfill(json={"predictions": [{}]}))
    page.reload()
    page.wait_for_selector("#form", state="visible")
    assert page.inner_text("#hint").startswith("The answer will appear here: ")
    page.click("#example")
    page.wait_for_selector("#raw", state="visible")
    assert page.input_value("#field-text").startswith(wanted)
    assert page.is_hidden("#hint")


LONG = "Donaudampfschifffahrtsgesellschaft" * 3
OWN = {
    "name": "own",
    "version": "3",
    "task": "mine:Task",
    "signatures": {
        "serving_default": {
            "inputs": [{"name": "body", "dtype": "string", "shape": [-1]}],
            "outputs": [{"name": "facts", "dtype": "string", "shape": [-1]}],
        },
        "both": {
            "inputs": [{"name": "parts", "dtype": "string", "shape": [-1, -1]}],
            "outputs": [
                {"name": name, "dtype": "string", "shape": [-1]}
                for name in ("label", "classes", "probabilities")
            ],
        },
    },
}
IDS = {
    "name": "ids",
    "version": "1",
    "task": "mine:Ids",
    "signatures": {
        "ids": {
            "inputs": [{"name": "token_ids", "dtype": "int32", "shape": [-1, -1]}],
            "outputs": [{"name": "score", "dtype": "float32", "shape": [-1]}],
        }
    },
}


def with_own_models(page: Any, answer: Any) -> list[Any]:
    """Show models of custom tasks to the page; return their requests."""
    asked: list[Any] = []

    def predict(route: Any) -> None:
        asked.append(json.loads(route.request.post_data))
        route.fulfill(json={"predictions": [answer]})

    page.route("**/v1/models", lambda route: route.fulfill(json={"models": [OWN, IDS]}))
    page.route("**/v1/models/own:predict", predict)
    page.reload()
    return asked


def test_answers_of_a_custom_task_are_json(
    site: Site, open_page: Callable[..., Any]
) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    page = open_page(site.url)
    asked = with_own_models(page, hostile)
    ask(page, {"body": hostile}, signature="serving_default")
    assert asked[0]["instances"] == [{"body": hostile}]
    assert json.loads(page.inner_text("#view pre")) == {"facts": hostile}
    assert page.query_selector("#answer img, #answer script") is None
    page.select_option("#model", "ids")
    assert "no signature that takes text" in page.inner_text("#error")
    assert page.is_hidden("#ask")


def test_names_like_ours_with_other_values_are_json(
    site: Site, open_page: Callable[..., Any]
) -> None:
    answer = {"label": 3, "classes": None, "probabilities": "many"}
    page = open_page(site.url)
    asked = with_own_models(page, answer)
    ask(page, {"parts": "one\ntwo parts"}, signature="both")
    assert asked[0]["instances"] == [{"parts": ["one", "two parts"]}]
    assert json.loads(page.inner_text("#view pre")) == answer


def test_markup_is_shown_as_text(site: Site, open_page: Callable[..., Any]) -> None:
    hostile = "<b>bold</b><img src=x onerror=alert(1)>"
    answer = {"label": hostile, "classes": [hostile, "b"], "probabilities": [0.8, 0.2]}
    page = open_page(site.url)
    with_own_models(page, answer)
    ask(page, {"parts": "x"}, signature="both")
    assert headline(page) == hostile
    assert bars(page)[0] == (hostile, 0.8, True)
    assert page.query_selector("#answer b, #answer img") is None


def test_errors_are_those_of_the_server(
    site: Site, open_page: Callable[..., Any]
) -> None:
    status, told = Client(site.url).post(
        "/v1/models/classification:predict", {"instances": [{"text": "a" * 501}]}
    )
    assert status == 413
    page = open_page(site.url, expected="413")
    ask(page, {"text": "win"}, "classification")
    page.fill("#field-text", "a" * 501)
    page.click("#ask")
    page.wait_for_selector("#error:visible")
    assert page.get_attribute("#error", "role") == "alert"
    error = told["error"].replace("instances[0]", "")
    assert page.inner_text("#error").replace("instances[0]", "") == error
    assert headline(page) == ""  # the former answer is gone
    ask(page, {"text": "win"})
    assert page.is_hidden("#error")


def test_an_unreachable_server(site: Site, open_page: Callable[..., Any]) -> None:
    page = open_page(site.url, expected="ERR_")
    page.route("**/*:predict", lambda route: route.abort())
    page.fill("#field-text", "win")
    page.click("#ask")
    page.wait_for_selector("#error:visible")
    assert page.inner_text("#error") == "The server cannot be reached."


def test_a_late_answer_does_not_replace_a_new_one(
    site: Site, open_page: Callable[..., Any]
) -> None:
    page = open_page(site.url)
    held: list[Any] = []
    page.route("**/*:predict", lambda route: held.append(route), times=1)
    page.fill("#field-text", "old")
    page.click("#ask")
    ask(page, {"text": "new"})
    assert '"new"' in page.text_content("#request")
    held[0].fulfill(status=500, json={"error": "late"})
    page.wait_for_timeout(100)
    assert '"new"' in page.text_content("#request")
    assert page.is_hidden("#error")


def test_the_keyboard_suffices(site: Site, open_page: Callable[..., Any]) -> None:
    page = open_page(site.url)
    page.wait_for_selector("#form", state="visible")

    def next_stop() -> str:
        page.keyboard.press("Tab")
        found = page.evaluate(
            "() => { const focus = document.activeElement;"
            "return [focus.id, getComputedStyle(focus).outlineStyle]; }"
        )
        assert found[1] == "solid"  # the focus can be seen
        return found[0]

    assert next_stop() == "model"
    page.keyboard.type("token")
    assert page.input_value("#model") == "token-classification"
    assert [next_stop() for _ in range(2)] == ["signature", "field-text"]
    page.keyboard.type("see you")
    page.keyboard.press("Enter")  # a separate line
    page.keyboard.type("win")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#raw", state="visible")
    assert passage(page) == "see you\nwin"
    assert page.evaluate("() => document.activeElement.id") == "field-text"
    assert [next_stop() for _ in range(2)] == ["ask", "example"]
    page.keyboard.press("Enter")
    page.wait_for_selector("#raw", state="visible")
    labels = page.eval_on_selector_all(
        "input, select, textarea", "all => all.map((each) => each.labels.length)"
    )
    assert set(labels) == {1}
    assert page.get_attribute("#headline", "aria-live") or page.evaluate(
        "() => document.getElementById('headline').tagName === 'OUTPUT'"
    )


@pytest.mark.parametrize(
    ("group", "width"),
    [(group, width) for group in ("site",) for width in (360, 400, 1400)]
    + [slow("slow_site", width) for width in (360, 1400)],
)
def test_nothing_is_clipped(
    request: pytest.FixtureRequest,
    open_page: Callable[..., Any],
    group: str,
    width: int,
) -> None:
    beyond = """() => [...document.querySelectorAll("body *")].filter((each) => {
      const box = each.getBoundingClientRect();
      const scrolls = each.matches("textarea, input, pre, select");
      return box.right > innerWidth + 1 || box.left < -1
        || (!scrolls && each.clientWidth && each.scrollWidth > each.clientWidth + 1);
    }).map((each) => each.outerHTML.slice(0, 80))"""
    page = open_page(request.getfixturevalue(group).url, width=width)
    for model in QUICK if group == "site" else SLOW:
        page.select_option("#model", model)
        page.click("#example")
        page.wait_for_selector("#raw", state="visible")
        assert page.evaluate(beyond) == [], model
    if group == "site":
        model = "token-classification"
        ask(page, {"words": f"{LONG} win"}, model, signature="words")
        assert page.evaluate(beyond) == []
    answer = {"label": LONG, "classes": [LONG, "b"], "probabilities": [0.8, 0.2]}
    with_own_models(page, answer)
    ask(page, {"parts": LONG}, signature="both")
    page.click("#raw summary")
    assert page.evaluate(beyond) == []


def test_the_key_is_requested(
    folders: Folders, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n", encoding="utf-8")
    config = ServeConfig(port=0, no_grpc=True, api_key_file=str(keys))
    with Server(
        [f"spam={folders.spam}"], config=config, is_quiet=True
    ).running() as server:
        client = Client(server.url)
        for file in STATIC.iterdir():
            assert client.send("GET", f"/{file.name}")[0] == 200
        assert client.send("GET", "/static/../v1/models")[0] == 401
        page = open_page(server.url, expected="401")
        page.wait_for_selector("#key", state="visible")
        assert "Bearer KEY" in page.inner_text("#error")
        assert page.is_hidden("#form")
        page.keyboard.type("wrong")  # the field has the focus
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.activeElement.id === 'key'")
        page.fill("#key", "é")
        page.keyboard.press("Enter")
        assert "ASCII" in page.inner_text("#error")
        page.fill("#key", "secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#form", state="visible")
        assert page.is_hidden("#error")
        ask(page, {"text": "win cash"})
        assert headline(page) in ("ham", "spam", "promo")


def test_the_policy_of_the_page(site: Site) -> None:
    for path in ("/", "/page.js", "/v1/models"):
        status, headers, _ = Client(site.url).send("GET", path)
        assert status == 200
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
    code = "".join(
        file.read_text(encoding="utf-8") for file in sorted(STATIC.iterdir())
    )
    for word in (
        "innerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "https:",
    ):
        assert word not in code
