r"""Does the reply answer the question? Rows of two texts, two test sets.

    python examples/replies.py ENCODER_FOLDER

Trains a classifier of pairs on `examples/data/replies`, with a temperature that is
fitted on dev, and prints the accuracy and the calibration error of each set before and
after, then the answers to two new pairs. With all-MiniLM-L6-v2:

Entailment is the same task, on MNLI's files as they are:

    bert-keras train classification --encoder ENCODER_FOLDER --output models/mnli \
        --train MNLI/train.tsv --dev MNLI/dev_matched.tsv \
        --test matched=MNLI/dev_matched.tsv --test mismatched=MNLI/dev_mismatched.tsv \
        --text sentence1 --text-pair sentence2 --label gold_label
"""

import sys
from pathlib import Path

from bert_keras import Classification, Predictor, TrainConfig, evaluate, train
from bert_keras.inference.pretrained_model import new_model

DATA = Path(__file__).resolve().parent / "data/replies"
COLUMNS = {"text": "question", "text_pair": "reply", "label": "answered"}
PAIRS = [
    ("When does the post office open?", "At nine, and on Saturdays at ten."),
    ("When does the post office open?", "A stamp for abroad costs one euro."),
]


def rows(name: str):
    return Classification.read(DATA / f"{name}.tsv", columns=COLUMNS)


encoder = sys.argv[1]
tests = {"hotel": rows("test_hotel"), "clinic": rows("test_clinic")}
config = TrainConfig(epochs=10, batch_size=8, learning_rate=2e-4, max_length=48)
task = Classification.from_columns(rows("train"), calibration="temperature")
untrained = Predictor(new_model(task, encoder, config))
before = {name: evaluate(untrained, test) for name, test in tests.items()}
result = train(
    task,
    encoder=encoder,
    train=rows("train"),
    dev=rows("dev"),
    test=tests,
    output="models/replies",
    config=config,
)
for name in tests:
    for score in ("accuracy", "expected_calibration_error"):
        values = before[name][score], result.scores[name][score]
        print("{:<7}{:<27} before {:.2f}  after {:.2f}".format(name, score, *values))
answers = Predictor(result.model).predict(PAIRS)
for (question, reply), answer in zip(PAIRS, answers, strict=True):
    print(f"{answer['label']:<4} {answer['score']:.2f}  {question} {reply}")
