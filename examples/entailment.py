r"""Does one sentence follow from another? Rows of two texts, two test sets.

    python examples/entailment.py ENCODER_FOLDER

Trains a classifier of pairs on `examples/data/entailment`, with a temperature that is
fitted on dev, and prints the accuracy and the calibration error of each set, then the
answers to two new pairs. Sixty rows show the way; a model that can be relied on takes
thousands, such as MNLI's:

    bert-keras train classification --encoder ENCODER_FOLDER --output models/mnli \
        --train MNLI/train.tsv --dev MNLI/dev_matched.tsv \
        --test matched=MNLI/dev_matched.tsv --test mismatched=MNLI/dev_mismatched.tsv \
        --text sentence1 --text-pair sentence2 --label gold_label
"""

import sys
from pathlib import Path

from bert_keras import Classification, Predictor, TrainConfig, train

DATA = Path(__file__).resolve().parent / "data/entailment"
COLUMNS = {"text": "premise", "text_pair": "hypothesis"}
QUESTIONS = [
    ("The cinema shows only films from Italy.", "No French film is shown there."),
    ("A child is feeding ducks.", "The ducks have not eaten for days."),
]


def rows(name: str):
    return Classification.read(DATA / f"{name}.tsv", columns=COLUMNS)


result = train(
    Classification,
    encoder=sys.argv[1],
    train=rows("train"),
    dev=rows("dev"),
    test={"everyday": rows("test_everyday"), "science": rows("test_science")},
    output="models/entailment",
    config=TrainConfig(epochs=12, batch_size=8, learning_rate=1e-4, max_length=64),
    task_settings={"calibration": "temperature"},
)
for name, scores in result.scores.items():
    error = scores["expected_calibration_error"]
    print(f"{name:<9} accuracy {scores['accuracy']:.2f}  calibration error {error:.2f}")
answers = Predictor(result.model).predict(QUESTIONS)
for (premise, hypothesis), answer in zip(QUESTIONS, answers, strict=True):
    print(f"{answer['label']} {answer['score']:.2f}  {premise} -> {hypothesis}")
