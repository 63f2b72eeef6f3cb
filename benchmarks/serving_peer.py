"""The peer of `serving_load.py`: FastAPI with a transformers pipeline.

    python benchmarks/serving_peer.py --encoder FOLDER --port 8601

One text per request, answered in a FastAPI thread, as is usual.
"""

from __future__ import annotations

import argparse


def main() -> None:
    import uvicorn
    from fastapi import Body, FastAPI
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        pipeline,
    )

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    model = AutoModelForSequenceClassification.from_pretrained(options.encoder)
    tokenizer = AutoTokenizer.from_pretrained(options.encoder, model_max_length=256)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
    app = FastAPI()

    @app.get("/health")
    def health() -> dict[str, bool]:
        return {"live": True}

    @app.post("/predict")
    def predict(text: str = Body(embed=True)) -> dict[str, object]:
        return classify(text, truncation=True)[0]

    uvicorn.run(app, port=options.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
