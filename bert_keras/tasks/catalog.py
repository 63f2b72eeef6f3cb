"""What each task reads, answers and can be set to, as text; imports nothing heavy.

`bert-keras tasks NAME`, `bert-keras train NAME --help` and the tables of the
documentation are generated from it. A test compares it with the fields of the classes.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting of a task.

    Args:
        name: of the field of the task's class.
        values: what it may be.
        default: its value if none is given.
        help: what it does.
        free: whether it can change after training.
    """

    name: str
    values: str
    default: str
    help: str
    free: bool = False


@dataclasses.dataclass(frozen=True)
class TaskHelp:
    """What a user has to know about a task.

    Args:
        data: the files and columns that it reads.
        file: the name of such a file.
        rows: its first lines.
        scores: what `evaluate` returns.
        answers: what `predict` and the SavedModel return.
        settings: what `--set` takes.
    """

    data: str
    file: str
    rows: str
    scores: str
    answers: str
    settings: tuple[Setting, ...]


# Settings that several tasks share, see docs/tasks.
CALIBRATION = (
    Setting(
        "calibration",
        "none, temperature",
        "none",
        "temperature fits the temperature on the dev set; none keeps it",
    ),
    Setting(
        "temperature",
        "a number",
        "1.0",
        "divides the logits, 0.001 to 1000; above 1 the model is less confident",
        free=True,
    ),
    Setting(
        "abstain_below",
        "a number",
        "0.0",
        "answers with a lower score are withheld",
        free=True,
    ),
    Setting(
        "answered_accuracy",
        "a number",
        "0.0",
        "above 0, abstain_below becomes the lowest threshold that gives this "
        "accuracy on the dev set",
    ),
)

# Settings of several tasks.
_CLASSES = Setting(
    "classes",
    "a list of names",
    "from the data",
    "the class names, in the order of the outputs",
)
_TAGS = Setting(
    "classes",
    "a list of names",
    "from the data",
    "the tags, in the order of the outputs",
)
_PAIRS = Setting(
    "pairs",
    "true or false",
    "from the data",
    "whether a row is a pair of texts",
)
_STEMMER = Setting(
    "stemmer",
    "porter, none",
    "porter",
    "stemmer of the ROUGE scores: porter for English, or none",
    free=True,
)


def _of_generation(no_repeat_ngram: str, length_ratio: str) -> tuple[Setting, ...]:
    """Return the settings that the tasks with a decoder share."""
    return (
        Setting(
            "decoder",
            "a word or a path",
            "encoder",
            "what the decoder starts from: encoder (a copy of its weights), "
            "shared (the encoder's own weights), layers/hidden/heads such as "
            "3/384/6 (a new one), or another BERT",
        ),
        Setting(
            "target_vocab",
            "a folder",
            "that of the encoder",
            "the vocabulary of the targets, a folder with vocab.txt",
        ),
        Setting(
            "sizes",
            "an object",
            "from decoder and target_vocab",
            "keys of BertConfig in which the decoder differs from the encoder",
        ),
        Setting(
            "tied",
            "true or false",
            "true",
            "whether the output's table is that of the decoder's token embeddings",
        ),
        Setting(
            "label_smoothing",
            "a number",
            "0.1",
            "share of the probability that the loss spreads over all tokens",
            free=True,
        ),
        Setting(
            "beams",
            "a whole number",
            "4",
            "hypotheses of beam search, 1 to 64; 1 is greedy search; with sample, "
            "the number of samples",
            free=True,
        ),
        Setting(
            "length_penalty",
            "a number",
            "1.0",
            "exponent of the length by which log-probabilities are divided; above "
            "0 prefers long texts",
            free=True,
        ),
        Setting(
            "no_repeat_ngram",
            "a whole number",
            no_repeat_ngram,
            "no n-gram of this length is written twice; 0 allows all",
            free=True,
        ),
        Setting(
            "max_target_length",
            "a whole number",
            "128",
            "longest text in tokens, [SEP] included, in training and in answers",
            free=True,
        ),
        Setting(
            "length_ratio",
            "a number",
            length_ratio,
            "longest answer in tokens relative to the source, plus 10",
            free=True,
        ),
        Setting(
            "sample",
            "true or false",
            "false",
            "draws tokens at random instead of searching",
            free=True,
        ),
        Setting(
            "temperature",
            "a number",
            "1.0",
            "divides the logits before drawing",
            free=True,
        ),
        Setting(
            "sample_top_k",
            "a whole number",
            "0",
            "draws from this many of the most probable tokens; 0: from all",
            free=True,
        ),
        Setting(
            "sample_top_p",
            "a number",
            "1.0",
            "draws from the most probable tokens with together this probability",
            free=True,
        ),
        Setting(
            "seed",
            "a whole number",
            "0",
            "seed of the draws",
            free=True,
        ),
    )


TASK_HELP = {
    "abstractive-summarization": TaskHelp(
        data="the columns document and summary; or two files of one text per line, "
        "see --target-file",
        file="train.jsonl",
        rows='{"document": "A storm hit the coast. Nobody was hurt. Trains stopped.", '
        '"summary": "A storm stopped trains."}',
        scores="ROUGE-1, ROUGE-2 and ROUGE-L; perplexity and token accuracy",
        answers="text; texts and scores, those of all hypotheses",
        settings=(
            *_of_generation("3", "1.0"),
            _STEMMER,
        ),
    ),
    "classification": TaskHelp(
        data="the columns text and label; for pairs also text_pair",
        file="train.csv",
        rows="text,label\n"
        "Dinner at ours on Friday?,not_spam\n"
        "Claim your prize now!!!,spam",
        scores="accuracy, F1 of the positive class and of all classes, Matthews "
        "correlation, calibration error",
        answers="label, score, probabilities, classes; abstained",
        settings=(
            _CLASSES,
            Setting(
                "class_weights",
                "none, balanced",
                "none",
                "balanced gives rare classes the same total weight as frequent "
                "ones in the training loss",
            ),
            _PAIRS,
            Setting(
                "positive_class",
                "a class",
                "the second of two",
                "the class whose F1 is reported",
                free=True,
            ),
            *CALIBRATION,
        ),
    ),
    "embedding": TaskHelp(
        data="pairs of texts that belong together in the columns text and text_pair, "
        "or with a label that tells their similarity",
        file="train.csv",
        rows="text,text_pair\n"
        "How do I reset my password?,“Forgot password” is on the sign-in page.",
        scores="Spearman and Pearson correlation of cosine similarities; accuracy@1, "
        "recall@k, mean reciprocal rank",
        answers="embedding",
        settings=(
            Setting(
                "pooling",
                "mean, cls, max",
                "mean",
                "mean or max over the tokens of a text, or cls, the vector of [CLS]",
            ),
            Setting(
                "normalize",
                "true or false",
                "true",
                "whether vectors have length 1",
            ),
            Setting(
                "layers",
                "a word or numbers",
                "last",
                "the hidden states used: embeddings, last, second-to-last, "
                "last-four, all, or numbers (0: embeddings, -1: the last block). "
                "Blocks above the highest one are not trained",
            ),
            Setting(
                "combine",
                "sum, concat, weighted",
                "sum",
                "how several layers are combined: sum, concat, or weighted, a "
                "sum with learned weights",
            ),
            Setting(
                "objective",
                "ranking, similarity",
                "ranking, or similarity if there are labels",
                "ranking: the pairs belong together; similarity: the cosine "
                "similarities learn the order of the labels",
            ),
            Setting(
                "scale",
                "a number",
                "20.0",
                "the factor on the cosine similarities in the loss",
            ),
        ),
    ),
    "feature-tagging": TaskHelp(
        data="as token-classification",
        file="train.conll",
        rows="Anna B-person\nWeber I-person\nsleeps O",
        scores="as token-classification",
        answers="as token-classification",
        settings=(
            _TAGS,
            Setting(
                "layers",
                "a word",
                "concat_last_four",
                "the hidden layers that the BiLSTM reads, as in table 7 of the "
                "BERT paper: embeddings, second_to_last, last, "
                "weighted_sum_last_four, concat_last_four or weighted_sum_all",
            ),
            Setting(
                "units",
                "a whole number",
                "the hidden size of the encoder",
                "the width of each direction of the two layers of the BiLSTM, at "
                "most 4096",
            ),
            *CALIBRATION,
        ),
    ),
    "masked-lm": TaskHelp(
        data="the lines of a .txt file, or a column text",
        file="train.txt",
        rows="The cat sat on the mat.\nIt rained all day.",
        scores="loss, perplexity, accuracy, pseudo-perplexity",
        answers="tokens, probabilities [B, E, k], sequences [B, k]",
        settings=(
            Setting(
                "top_k",
                "a whole number",
                "5",
                "answers for each mask, at most 1000",
                free=True,
            ),
            Setting(
                "mask_rate",
                "a number",
                "0.15",
                "share of the tokens that are selected",
                free=True,
            ),
            Setting(
                "mask_share",
                "a number",
                "0.8",
                "share of the selected tokens that become [MASK]",
                free=True,
            ),
            Setting(
                "random_share",
                "a number",
                "0.1",
                "share of the selected tokens that become a random token; the "
                "rest is unchanged",
                free=True,
            ),
            Setting(
                "max_predictions",
                "a whole number",
                "80",
                "maximum number of tokens that are selected in one text",
                free=True,
            ),
            Setting(
                "mask_unit",
                "piece, word, ngram",
                "piece",
                "piece, word or ngram: word pieces, whole words, or runs of words",
                free=True,
            ),
            Setting(
                "pseudo_perplexity_texts",
                "a whole number",
                "0",
                "number of texts for which evaluate computes pseudo-perplexity",
                free=True,
            ),
        ),
    ),
    "multi-label": TaskHelp(
        data="as classification; label holds several names with commas between, or "
        "none; in JSONL a list",
        file="train.jsonl",
        rows='{"text": "Good soup, slow waiter", "label": ["food", "service"]}',
        scores="micro and macro F1, exact match, ranking and average precision (which "
        "selects the epoch), calibration error",
        answers="labels, probabilities, classes, [B, C] each",
        settings=(
            _CLASSES,
            Setting(
                "separator",
                "text",
                ",",
                "the text between the names in a cell; spaces around names are dropped",
            ),
            Setting(
                "thresholds",
                "a number or a list",
                "tuned on dev, else 0.5",
                "the probability from which a class is predicted: one for each "
                "class, or one for all",
                free=True,
            ),
            Setting(
                "threshold_tuning",
                "f1, none",
                "f1",
                "f1 tunes the thresholds for the highest F1 of each class on the "
                "dev set; none keeps 0.5",
            ),
            _PAIRS,
            Setting(
                "calibration",
                "none, temperature",
                "none",
                "temperature fits one temperature for all classes on the dev set",
            ),
            Setting(
                "temperature",
                "a number",
                "1.0",
                "divides the logits, 0.001 to 1000",
                free=True,
            ),
        ),
    ),
    "multiple-choice": TaskHelp(
        data="JSONL with context, choices and label; the files of SWAG and COPA",
        file="train.jsonl",
        rows='{"context": "It rained.", '
        '"choices": ["I took an umbrella.", "I ate."], "label": 0}',
        scores="accuracy, loss, calibration error",
        answers="choice, index, score, probabilities [B, C]; abstained",
        settings=(*CALIBRATION,),
    ),
    "next-sentence": TaskHelp(
        data="the columns text, text_pair and label (next or not_next), or documents "
        "in a .txt file",
        file="train.csv",
        rows="text,text_pair,label\nIt rained.,We stayed at home.,next",
        scores="accuracy, F1, Matthews correlation, calibration error",
        answers="is_next, probability; abstained",
        settings=(
            Setting(
                "labels",
                "two names",
                "next, not_next",
                "the two labels in the file: follows, does not follow",
            ),
            *CALIBRATION,
        ),
    ),
    "question-answering": TaskHelp(
        data="JSON files of SQuAD 1.1 or 2.0; to predict also the columns question "
        "and context",
        file="train.json",
        rows='{"data": [{"paragraphs": [{"context": "The tower was built in 1889.", '
        '"qas": [{"id": "1", "question": "When was it built?", '
        '"answers": [{"text": "1889", "answer_start": 23}]}]}]}]}',
        scores="EM and F1 as in the official scripts, with and without answer, best "
        "threshold; calibration error",
        answers="answer, start, end (characters, -1 for no answer), score, null_score, "
        "n_best_answers …",
        settings=(
            Setting(
                "no_answer",
                "true or false",
                "from the data",
                "whether a question can have no answer in its context",
            ),
            Setting(
                "threshold",
                "a number",
                "tuned on dev",
                "no answer is given if its score exceeds that of the best span by "
                "more than this, in logits",
                free=True,
            ),
            Setting(
                "stride",
                "a whole number",
                "128",
                "context tokens from the start of one window to the start of the "
                "next, at most half of a window; for example --set stride=64",
                free=True,
            ),
            Setting(
                "max_answer_tokens",
                "a whole number",
                "30",
                "the maximum length of an answer in tokens, at most 512",
                free=True,
            ),
            Setting(
                "max_question_tokens",
                "a whole number",
                "64",
                "longer questions are truncated",
                free=True,
            ),
            Setting(
                "n_best",
                "a whole number",
                "5",
                "number of distinct answers that are listed, at most 100",
                free=True,
            ),
            *CALIBRATION,
        ),
    ),
    "regression": TaskHelp(
        data="as classification; label is a number",
        file="train.csv",
        rows="text,label\nNever again.,1\nWe will be back!,5",
        scores="Spearman and Pearson correlation, errors",
        answers="score",
        settings=(
            Setting(
                "scaling",
                "standard, none",
                "standard",
                "standard scales the targets by their mean and standard "
                "deviation; none does not",
            ),
            Setting(
                "mean",
                "a number",
                "from the data",
                "subtracted from the targets during training",
            ),
            Setting(
                "std",
                "a number",
                "from the data",
                "divides the targets during training",
            ),
            _PAIRS,
        ),
    ),
    "summarization": TaskHelp(
        data="the columns document and summary",
        file="train.jsonl",
        rows='{"document": "A storm hit the coast. Nobody was hurt. Trains stopped.", '
        '"summary": "A storm stopped trains."}',
        scores="ROUGE-1, ROUGE-2 and ROUGE-L, next to those of the leading sentences "
        "and of the best selection",
        answers="summary, sentences, starts, ends, scores",
        settings=(
            Setting(
                "max_sentences",
                "a whole number",
                "3",
                "the maximum number of sentences in a summary, 1 to 1000",
                free=True,
            ),
            Setting(
                "trigram_blocking",
                "true or false",
                "false",
                "skips a sentence that shares three consecutive words with a "
                "selected one",
                free=True,
            ),
            _STEMMER,
        ),
    ),
    "token-classification": TaskHelp(
        data="CoNLL files: a word and its tag on each line; or JSONL with text and "
        "spans in characters",
        file="train.jsonl",
        rows='{"text": "Anna lives in Vienna.", '
        '"spans": [{"start": 0, "end": 4, "label": "person"}]}',
        scores="precision, recall and F1 of entities, per type and overall; "
        "calibration error",
        answers="for text: entities, types, starts, ends, scores; for words: tags, "
        "scores",
        settings=(
            _TAGS,
            *CALIBRATION,
        ),
    ),
    "translation": TaskHelp(
        data="the columns source and target; or two files of one text per line, see "
        "--target-file",
        file="train.jsonl",
        rows='{"source": "A dog runs.", "target": "Ein Hund rennt."}',
        scores="BLEU and chrF; perplexity and token accuracy",
        answers="text; texts and scores, those of all hypotheses",
        settings=_of_generation("0", "2.0"),
    ),
}
