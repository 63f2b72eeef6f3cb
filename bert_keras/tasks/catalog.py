"""The tasks: what each reads, answers and can be set to; imports nothing heavy.

`bert-keras tasks NAME`, `bert-keras train NAME --help`, the docstrings of the tasks and
the tables of the documentation are generated from it. A test compares it with the
fields of the classes.
"""

from __future__ import annotations

import dataclasses
import itertools
import re

from bert_keras.settings import argument_lines


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting of a task."""

    name: str  # of the field of the task's class
    values: str  # what it may be
    default: str  # its value if none is given
    help: str  # what it does
    free: bool = False  # whether it can change after training


@dataclasses.dataclass(frozen=True)
class TaskHelp:
    """What a user has to know about a task."""

    place: str  # its module and class
    summary: str  # one line
    data: str  # the files and columns that it reads
    file: str  # the name of such a file
    rows: str  # its first lines
    scores: str  # what `evaluate` returns
    answers: str  # what `predict` and the SavedModel return
    settings: tuple[Setting, ...]  # what `--set` takes


def _settings(*texts: str) -> tuple[Setting, ...]:
    """Return the settings in texts of the form that `bert-keras tasks NAME` prints.

    `name: values; default: value` and below it, indented, the help. A star after the
    name marks a setting that can change after training.
    """
    found: list[Setting] = []
    for line in itertools.chain.from_iterable(map(str.splitlines, texts)):
        head = re.fullmatch(r" *(\w+)(\*?): (.+); default: (.+)", line)
        if head:
            name, star, values, default = head.groups()
            found.append(Setting(name, values, default, "", free=bool(star)))
        elif line.strip():
            help = f"{found[-1].help} {line.strip()}".lstrip()
            found[-1] = dataclasses.replace(found[-1], help=help)
    return tuple(found)


def with_settings(docstring: str | None, settings: tuple[Setting, ...]) -> str | None:
    """Return the docstring of a task's class with its settings as arguments."""
    if docstring is None:  # `python -OO`
        return None
    summary, example, rest = docstring.partition("    Example:")
    lines = argument_lines(
        {s.name: f"{s.help} ({s.values}; default: {s.default})" for s in settings}
    )
    raises = ["    Raises:", "        ConfigError: a setting is out of its range."]
    end = f"{example}{rest}"
    return "\n".join([summary.rstrip(), "", *lines, "", *raises, "", end])


# Settings of several tasks, see docs/tasks.
_CALIBRATION = """
    calibration: none, temperature; default: none
        temperature fits the temperature on the dev set; none keeps it
    temperature*: a number; default: 1.0
        divides the logits, 0.001 to 1000; above 1 the model is less confident
    abstain_below*: a number; default: 0.0
        answers with a lower score are withheld
    answered_accuracy: a number; default: 0.0
        above 0, abstain_below becomes the lowest threshold that gives this accuracy on
        the dev set
"""
_CLASSES = """
    classes*: a list of names; default: from the data
        the class names, in the order of the outputs; after training it renames them
"""
_TAGS = """
    classes*: a list of names; default: from the data
        the tags, in the order of the outputs; after training it renames them
"""
_PAIRS = """
    pairs: true or false; default: from the data
        whether a row is a pair of texts
"""
_STEMMER = """
    stemmer*: porter, none; default: porter
        stemmer of the ROUGE scores: porter for English, or none
"""


def _of_generation(no_repeat_ngram: str, length_ratio: str) -> str:
    """Return the settings that the tasks with a decoder share."""
    return f"""
        decoder: a word or a path; default: encoder
            what the decoder starts from: encoder (a copy of its weights), shared (the
            encoder's own weights), layers/hidden/heads such as 3/384/6 (a new one), or
            another BERT
        target_vocab: a folder; default: the encoder's
            the vocabulary of the targets, a folder with vocab.txt
        sizes: an object; default: from decoder and target_vocab
            keys of BertConfig in which the decoder differs from the encoder
        tied: true or false; default: true
            whether the output's table is the table of the decoder's token embeddings
        label_smoothing*: a number; default: 0.1
            share of the probability that the loss spreads over all tokens
        beams*: a whole number; default: 4
            hypotheses of beam search, 1 to 64; 1 is greedy search; with sample, the
            number of samples
        length_penalty*: a number; default: 1.0
            exponent of the length by which log-probabilities are divided; above 0
            prefers long texts
        no_repeat_ngram*: a whole number; default: {no_repeat_ngram}
            no n-gram of this length is written twice; 0 allows all
        max_target_length*: a whole number; default: 128
            longest text in tokens, [SEP] included, in training and in answers
        length_ratio*: a number; default: {length_ratio}
            longest answer in tokens relative to the source, plus 10
        sample*: true or false; default: false
            draws tokens at random instead of searching
        temperature*: a number; default: 1.0
            divides the logits before drawing
        sample_top_k*: a whole number; default: 0
            draws from this many of the most probable tokens; 0: from all
        sample_top_p*: a number; default: 1.0
            draws from the most probable tokens with this total probability
        seed*: a whole number; default: 0
            seed of the draws
    """


TASKS = {
    "abstractive-summarization": TaskHelp(
        place="bert_keras.tasks.generation:AbstractiveSummarization",
        summary="a summary or headline in words of its own",
        data="the columns document and summary; or two files with one text per line, "
        "see --target-file",
        file="train.jsonl",
        rows='{"document": "A storm hit the coast. Nobody was hurt. Trains stopped.", '
        '"summary": "A storm stopped trains."}',
        scores="ROUGE-1, ROUGE-2 and ROUGE-L; perplexity and token accuracy",
        answers="text; texts and scores of all hypotheses",
        settings=_settings(_of_generation("3", "1.0"), _STEMMER),
    ),
    "classification": TaskHelp(
        place="bert_keras.tasks.classification:Classification",
        summary="one class for a text or a pair of texts (spam, sentiment, "
        "paraphrase …)",
        data="the columns text and label; for pairs also text_pair",
        file="train.csv",
        rows="text,label\n"
        "Dinner at ours on Friday?,not_spam\n"
        "Claim your prize now!!!,spam",
        scores="accuracy, F1 of the positive class and of all classes, Matthews "
        "correlation, calibration error",
        answers="label, score, probabilities, classes; abstained",
        settings=_settings(
            _CLASSES,
            """
            class_weights: none, balanced; default: none
                balanced gives rare classes the same total weight as frequent ones in
                the training loss
            """,
            _PAIRS,
            """
            positive_class*: a class; default: the second of two
                the class whose F1 is reported
            """,
            _CALIBRATION,
        ),
    ),
    "embedding": TaskHelp(
        place="bert_keras.tasks.embedding:Embedding",
        summary="a vector for a text, trained on pairs (search, similarity, "
        "features …)",
        data="pairs of texts that belong together in the columns text and text_pair, "
        "or with a label for their similarity",
        file="train.csv",
        rows="text,text_pair\n"
        "How do I reset my password?,“Forgot password” is on the sign-in page.",
        scores="Spearman and Pearson correlation of cosine similarities; accuracy@1, "
        "recall@k, mean reciprocal rank",
        answers="embedding",
        settings=_settings("""
            pooling: mean, cls, max, mean_sqrt_len_tokens, weightedmean, lasttoken; \
default: mean
                mean or max over the tokens of a text; cls, the vector of [CLS];
                mean_sqrt_len_tokens, the sum divided by the root of their number;
                weightedmean, by their positions; lasttoken; cls+mean: both. That of the
                encoder's folder, if it says one
            normalize: true or false; default: true
                whether vectors have length 1; as in the encoder's folder, if it says
            layers: a word or numbers; default: last
                the hidden states used: embeddings, last, second-to-last, last-four,
                all, or numbers (0: embeddings, -1: the last block). Blocks above the
                highest one are not trained
            combine: sum, concat, weighted; default: sum
                how several layers are combined: sum, concat, or weighted, a sum with
                learned weights
            objective: ranking, similarity; default: ranking, or similarity with labels
                ranking: the pairs belong together; similarity: the cosine similarities
                learn the order of the labels
            scale: a number; default: 20.0
                the factor on the cosine similarities in the loss
            dense: a list of objects; default: the encoder's, or none
                layers on the pooled vector, each with units, activation and use_bias
            prompts*: an object; default: the encoder's, or none
                texts by name, put before a text: in pairs query before the first, and
                document, passage or corpus before the second
            default_prompt*: a name; default: the encoder's, or none
                the prompt before every text that has no other
        """),
    ),
    "feature-tagging": TaskHelp(
        place="bert_keras.tasks.tagging.task:FeatureTagging",
        summary="a tag for each word, by a BiLSTM on features of the frozen encoder",
        data="as token-classification",
        file="train.conll",
        rows="Anna B-person\nWeber I-person\nsleeps O",
        scores="as token-classification",
        answers="as token-classification",
        settings=_settings(
            _TAGS,
            """
            layers: a word; default: concat_last_four
                the hidden layers that the BiLSTM reads, as in table 7 of the BERT
                paper: embeddings, second_to_last, last, weighted_sum_last_four,
                concat_last_four or weighted_sum_all
            units: a whole number; default: the hidden size of the encoder
                the width of each direction of the two layers of the BiLSTM, at most
                4096
            """,
            _CALIBRATION,
        ),
    ),
    "masked-lm": TaskHelp(
        place="bert_keras.tasks.masked_lm:MaskedLM",
        summary="the words that fit at each [MASK]; adapts BERT to your own plain text",
        data="the lines of a .txt file, or a column text",
        file="train.txt",
        rows="The cat sat on the mat.\nIt rained all day.",
        scores="loss, perplexity, accuracy, pseudo-perplexity",
        answers="tokens, probabilities [B, E, k], sequences [B, k]",
        settings=_settings("""
            top_k*: a whole number; default: 5
                answers for each mask, at most 1000
            mask_rate*: a number; default: 0.15
                share of the tokens that are selected
            mask_share*: a number; default: 0.8
                share of the selected tokens that become [MASK]
            random_share*: a number; default: 0.1
                share of the selected tokens that become a random token; the rest is
                unchanged
            max_predictions*: a whole number; default: 80
                maximum number of tokens that are selected in one text
            mask_unit*: piece, word, ngram; default: piece
                piece, word or ngram: word pieces, whole words, or runs of words
            pseudo_perplexity_texts*: a whole number; default: 0
                number of texts for which evaluate computes pseudo-perplexity
        """),
    ),
    "multi-label": TaskHelp(
        place="bert_keras.tasks.multi_label:MultiLabel",
        summary="any number of classes for a text or a pair of texts (topics, "
        "emotions …)",
        data="as classification; label holds several names with commas between, a "
        "list, or nothing; or, with --label food,service, one column of 0 and 1 each",
        file="train.jsonl",
        rows='{"text": "Good soup, slow waiter", "label": ["food", "service"]}',
        scores="micro and macro F1, exact match, ranking and average precision (which "
        "selects the epoch), calibration error",
        answers="labels, probabilities, classes, [B, C] each",
        settings=_settings(
            _CLASSES,
            """
            separator: text; default: ,
                the text between the names in a cell; spaces around names are dropped
            thresholds*: a number or a list; default: tuned on dev, else 0.5
                the probability from which a class is predicted: one for each class, or
                one for all
            threshold_tuning: f1, none; default: f1
                f1 tunes the thresholds for the highest F1 of each class on the dev set;
                none keeps 0.5
            """,
            _PAIRS,
            """
            calibration: none, temperature; default: none
                temperature fits one temperature for all classes on the dev set
            temperature*: a number; default: 1.0
                divides the logits, 0.001 to 1000
            """,
        ),
    ),
    "multiple-choice": TaskHelp(
        place="bert_keras.tasks.multiple_choice:MultipleChoice",
        summary="the choice that fits a context best (SWAG, COPA, exam questions …)",
        data="JSONL with context, choices and label; the files of SWAG and COPA",
        file="train.jsonl",
        rows='{"context": "It rained.", '
        '"choices": ["I took an umbrella.", "I ate."], "label": 0}',
        scores="accuracy, loss, calibration error",
        answers="choice, index, score, probabilities [B, C]; abstained",
        settings=_settings(_CALIBRATION),
    ),
    "next-sentence": TaskHelp(
        place="bert_keras.tasks.next_sentence:NextSentence",
        summary="whether a text follows another, as BERT learned it in pretraining",
        data="the columns text, text_pair and label (next or not_next), or documents "
        "in a .txt file",
        file="train.csv",
        rows="text,text_pair,label\nIt rained.,We stayed at home.,next",
        scores="accuracy, F1, Matthews correlation, calibration error",
        answers="is_next, probability; abstained",
        settings=_settings(
            """
            labels: two names; default: next, not_next
                the two labels in the file: follows, does not follow
            """,
            _CALIBRATION,
        ),
    ),
    "question-answering": TaskHelp(
        place="bert_keras.tasks.question_answering.task:QuestionAnswering",
        summary="the span of a text that answers a question (SQuAD 1.1 and 2.0)",
        data="JSON files of SQuAD 1.1 or 2.0, or rows of question, context and "
        "answers; to predict only question and context",
        file="train.json",
        rows='{"data": [{"paragraphs": [{"context": "The tower was built in 1889.", '
        '"qas": [{"id": "1", "question": "When was it built?", '
        '"answers": [{"text": "1889", "answer_start": 23}]}]}]}]}',
        scores="EM and F1 as in the official scripts, with and without answer, best "
        "threshold; calibration error",
        answers="answer, start, end (characters, -1 for no answer), score, null_score, "
        "n_best_answers …",
        settings=_settings(
            """
            no_answer*: true or false; default: from the data
                whether a question can have no answer in its context
            threshold*: a number; default: tuned on dev
                no answer is given if its score exceeds the score of the best span by
                more than this, in logits
            stride*: a whole number; default: 128
                context tokens from the start of one window to the start of the next, at
                most half of a window; for example --set stride=64
            max_answer_tokens*: a whole number; default: 30
                the maximum length of an answer in tokens, at most 512
            max_question_tokens*: a whole number; default: 64
                longer questions are truncated
            n_best*: a whole number; default: 5
                number of distinct answers that are listed, at most 100
            """,
            _CALIBRATION,
        ),
    ),
    "regression": TaskHelp(
        place="bert_keras.tasks.regression:Regression",
        summary="one number for a text or a pair of texts (similarity, rating …)",
        data="as classification; label is a number",
        file="train.csv",
        rows="text,label\nNever again.,1\nWe will be back!,5",
        scores="Spearman and Pearson correlation, errors",
        answers="score",
        settings=_settings(
            """
            scaling: standard, none; default: standard
                standard scales the targets by their mean and standard deviation; none
                does not
            mean: a number; default: from the data
                subtracted from the targets during training
            std: a number; default: from the data
                divides the targets during training
            """,
            _PAIRS,
            """
            activation: linear, sigmoid; default: linear
                sigmoid: the answer is the sigmoid of the output, for targets from 0 to
                1, as of a CrossEncoder of sentence-transformers
            """,
        ),
    ),
    "summarization": TaskHelp(
        place="bert_keras.tasks.summarization:Summarization",
        summary="the sentences of a document that make its summary",
        data="the columns document and summary",
        file="train.jsonl",
        rows='{"document": "A storm hit the coast. Nobody was hurt. Trains stopped.", '
        '"summary": "A storm stopped trains."}',
        scores="ROUGE-1, ROUGE-2 and ROUGE-L, next to the scores of the leading "
        "sentences and of the best selection",
        answers="summary, sentences, starts, ends, scores",
        settings=_settings(
            """
            max_sentences*: a whole number; default: 3
                the maximum number of sentences in a summary, 1 to 1000
            trigram_blocking*: true or false; default: false
                skips a sentence that shares three consecutive words with a selected one
            """,
            _STEMMER,
        ),
    ),
    "token-classification": TaskHelp(
        place="bert_keras.tasks.tagging.task:TokenClassification",
        summary="a tag for each word: names of persons, places, products … in a text",
        data="CoNLL files: a word and its tag on each line; JSON with tokens and "
        "ner_tags, or with text and spans in characters, also of doccano, Label Studio "
        "and Prodigy; CoNLL-U; CSV tables of words",
        file="train.jsonl",
        rows='{"text": "Anna lives in Vienna.", '
        '"spans": [{"start": 0, "end": 4, "label": "person"}]}',
        scores="precision, recall and F1 of entities, per type and overall; "
        "calibration error",
        answers="for text: entities, types, starts, ends, scores; for words: tags, "
        "scores",
        settings=_settings(_TAGS, _CALIBRATION),
    ),
    "translation": TaskHelp(
        place="bert_keras.tasks.generation:Translation",
        summary="a text in another language, or in another form of the same",
        data="the columns source and target; or two files with one text per line, see "
        "--target-file",
        file="train.jsonl",
        rows='{"source": "A dog runs.", "target": "Ein Hund rennt."}',
        scores="BLEU and chrF; perplexity and token accuracy",
        answers="text; texts and scores of all hypotheses",
        settings=_settings(_of_generation("0", "2.0")),
    ),
}
