"""Quality of ways to fine-tune on small sets and long texts, on a GPU with torch.

    python benchmarks/gpu_quality.py prepare FOLDER
    python benchmarks/gpu_quality.py run FOLDER RESULTS.jsonl [--tables reviews \
probed variants methods frozen students setfit] [--draws 5] [--processes 12] \
[--seconds 500]
    python benchmarks/gpu_quality.py show RESULTS.jsonl

`prepare` needs bert_keras, and writes the texts of `shared/data` as token ids, and the
weights of all-MiniLM-L6-v2. `run` needs torch and transformers alone. It repeats the
recipe of `train` in torch (batches, rates, epochs, dev rows, best epoch; `contrastive`
and `linear` likewise), since hundreds of runs take days on a processor:

- `reviews`: 400 movie reviews, by how long texts are read, and what the head reads;
- `probed`: the same from a head that is fitted first, as `train` does on an encoder of
  vectors of texts, by epochs and learning rate;
- `variants`: five small sets, each variant beside plain fine-tuning without dev rows:
  `decay` gives each block 0.8 times the rate of the block above it, `top` starts the
  top block anew (Zhang et al. 2021, arXiv:2006.05987), `average` is the mean of the
  weights after each update of the second half;
- `methods`: 16 to 1,024 rows of three sets, by the method of `train`;
- `frozen`: contrastive on balanced rows and on the e-mails of `examples/data`, with the
  embeddings and so many blocks as they are, by updates and learning rate;
- `students`: half of the blocks of a model of MRPC, by the pairs without labels that
  its teacher answers: of STS-B, of SICK, the training pairs the other way round, and
  sentences of different training pairs;
- `setfit`: SetFit itself on the rows of `frozen`, with 20 pairs of each kind for a row
  (needs setfit, datasets and evaluate).

Draws choose rows and seeds. Matrix products are in bfloat16, weights in float32.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

UNK, CLS, SEP, MASK = 100, 101, 102, 103
HIDDEN, BLOCKS = 384, 6
POOLINGS = ("pooler", "mean")
READINGS: dict[str, dict[str, Any]] = {
    **{str(length): {"length": length} for length in (128, 256, 512)},
    "head-tail-512": {"length": 512, "long": "head-tail"},
    **{
        f"windows-{length}": {"length": length, "long": "windows"}
        for length in (128, 256, 512)
    },
}
VARIANTS = ("plain", "decay", "top", "average")
SMALL_SETS = {"news": 96, "sms": 96, "cola": 96, "mrpc": 96, "sick": 96}
SIZES = (16, 64, 256, 1024)
METHOD_SETS = {
    "news": (*SIZES, 4096),
    "sms": (*SIZES, 3000),
    "cola": SIZES,
    "banking": (*SIZES[2:], 4096),
}
UPDATE_SETS = (
    ("sms", 16),
    ("sms", 64),
    ("news", 16),
    ("news", 64),
    ("banking", 256),
)
METHODS = ("linear", "contrastive", "finetune")
FEW_SETS = {
    "news": {"per_class": 8},
    "banking": {"per_class": 5},
    "emails": {"rows": 392},
}
FEW = [*FEW_SETS.items(), ("banking", {"per_class": 10})]
TEMPERATURE = 2.0  # of the teacher's answers
_ALL = ["stsb", "sick", "swapped", "crossed"]
UNLABELLED: dict[str, dict[str, Any]] = {
    "none": {"unlabeled": []},
    "stsb": {"unlabeled": ["stsb"]},
    "stsb sick": {"unlabeled": ["stsb", "sick"]},
    "swapped crossed": {"unlabeled": ["swapped", "crossed"]},
    "all": {"unlabeled": _ALL},
    "all, soft alone": {"unlabeled": _ALL, "weight": 1.0},
    "all, 8 epochs": {"unlabeled": _ALL, "epochs": 8},
}


# Data, here.


def texts_of_sets() -> dict[str, Any]:
    """Return training and test rows of each set: first texts, second texts, labels."""
    from inputs import messages, other_pairs, read, table

    def pairs(name: str, first: int, second: int, label: int) -> list[Any]:
        found = [table(f"{name}/{part}.tsv")[1:] for part in ("train", "dev")]
        return [
            [[row[place] for row in rows] for place in (first, second, label)]
            for rows in found
        ]

    def singles(rows: Any) -> list[Any]:
        texts, labels = map(list, zip(*rows, strict=True))
        return [texts, None, labels]

    def both(parts: list[Any]) -> list[Any]:
        return [[a + b for a, b in zip(*parts, strict=True)]]

    spam = [(text, label) for label, text in messages()]
    emails = Path(__file__).parents[1] / "examples/data/emails"
    mails = [row for path in sorted(emails.glob("*.csv")) for row in read(str(path))]
    mrpc, sick = pairs("glue_mrpc", 3, 4, 0), pairs("sick", 0, 1, 2)
    seen = {text for part in mrpc for texts in part[:2] for text in texts}
    unseen = other_pairs(seen)
    cola = [
        singles([(row[3], row[1]) for row in table(f"glue_cola/{part}.tsv")])
        for part in ("train", "dev")
    ]
    news = [read(f"agnews/{part}.tsv", tabs=True) for part in ("pool", "val")]
    banking = [read(f"banking77/{part}.csv") for part in ("train", "test")]
    return {
        "reviews": [singles(read("movie_reviews/reviews.csv"))],
        "sms": [singles(spam)],
        "cola": cola,
        "news": [singles(rows) for rows in news],
        "banking": [singles(rows) for rows in banking],
        "mrpc": mrpc,
        "sick": sick,
        "emails": [singles(mails)],
        "paraphrases": both(mrpc),
        "stsb": [[*unseen, [""] * len(unseen[0])]],
    }


def prepare(folder: Path) -> None:
    """Write ids and weights; the words that no set uses are left out of the weights."""
    import tensorflow as tf
    from inputs import encoder_path
    from safetensors.numpy import load_file

    from bert_keras import WordPieceTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = WordPieceTokenizer.from_folder(encoder_path())
    arrays: dict[str, Any] = {}
    sets = texts_of_sets()
    for name, parts in sets.items():
        classes = sorted(set(parts[0][2]))
        for number, (*texts, labels) in enumerate(parts):
            for place, column in enumerate(texts):
                if column is None:
                    continue
                pieces = tokenizer(tf.constant(column))
                key = f"{name}/{number}/{place}"
                arrays[f"{key}/sizes"] = pieces.row_lengths().numpy()
                arrays[f"{key}/ids"] = pieces.values.numpy()
            arrays[f"{name}/{number}/labels"] = np.array(
                [classes.index(label) for label in labels]
            )
    ids = [array for key, array in arrays.items() if key.endswith("/ids")]
    used = np.unique(np.concatenate([[0, UNK, CLS, SEP, MASK], *ids]))
    for key in list(arrays):
        if key.endswith("/ids"):
            arrays[key] = np.searchsorted(used, arrays[key]).astype("uint16")
    arrays["special"] = np.searchsorted(used, [CLS, SEP])
    np.savez_compressed(folder / "data.npz", **arrays)
    weights = load_file(f"{encoder_path()}/model.safetensors")
    weights = {key.removeprefix("bert."): value for key, value in weights.items()}
    words = "embeddings.word_embeddings.weight"
    weights[words] = weights[words][used]
    halves = {
        key: value.astype("float16")
        for key, value in weights.items()
        if value.dtype.kind == "f"
    }
    np.savez(folder / "weights.npz", allow_pickle=False, **halves)
    words = Path(encoder_path(), "vocab.txt").read_text(encoding="utf-8").splitlines()
    kept = "".join(f"{words[number]}\n" for number in used)
    (folder / "vocab.txt").write_text(kept, encoding="utf-8")
    raw = {name: sets[name] for name in FEW_SETS}
    (folder / "texts.json").write_text(json.dumps(raw), encoding="utf-8")
    print({key: array.shape for key, array in arrays.items()})


# Texts, there.


class Texts:
    """Rows of a set: tokens of each text, or of both of a pair, and labels."""

    def __init__(self, data: Any, name: str, number: int) -> None:
        self.parts = []
        for place in range(2):
            key = f"{name}/{number}/{place}"
            if f"{key}/ids" in data:
                ends = np.cumsum(data[f"{key}/sizes"])[:-1]
                self.parts.append(np.split(data[f"{key}/ids"].astype("int64"), ends))
        self.labels = data[f"{name}/{number}/labels"]
        self.special = data["special"].tolist()

    def rows(
        self, row: int, job: dict[str, Any], draw: np.random.Generator | None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return ids and segments of the rows that a text is read in.

        With `draw`, at most `train_windows` windows: one of each part of the text.
        """
        cls, sep = self.special
        length, texts = job["length"], [part[row] for part in self.parts]
        if len(texts) == 2:
            a, b = texts
            while len(a) + len(b) > length - 3:
                a, b = (a[:-1], b) if len(a) > len(b) else (a, b[:-1])
            ids = np.concatenate([[cls], a, [sep], b, [sep]])
            segments = np.repeat([0, 1], [len(a) + 2, len(b) + 1])
            return [(ids, segments)]
        (text,) = texts
        room = length - 2
        if job.get("long") == "windows":
            found = [text[at : at + room] for at in range(0, max(len(text), 1), room)]
            most = job.get("train_windows", 4)
            if draw is not None and len(found) > most:
                edges = np.linspace(0, len(found), most + 1)
                places = (edges[:-1] + draw.random(most) * np.diff(edges)).astype(int)
                found = [found[place] for place in places]
        elif job.get("long") == "head-tail" and len(text) > room:
            found = [np.concatenate([text[: room // 2], text[room // 2 - room :]])]
        else:
            found = [text[:room]]
        return [
            (np.concatenate([[cls], each, [sep]]), np.zeros(len(each) + 2, int))
            for each in found
        ]


_STATE: dict[str, Any] = {}


def start(folder: str) -> None:
    """Read data and weights once in each process."""
    import torch

    torch.set_num_threads(1)
    with np.load(f"{folder}/data.npz") as data:
        arrays = dict(data)
    names = {key.split("/")[0] for key in arrays} - {"special"}
    _STATE["sets"] = {
        name: [
            Texts(arrays, name, number)
            for number in range(2)
            if f"{name}/{number}/labels" in arrays
        ]
        for name in names
    }
    with np.load(f"{folder}/weights.npz") as weights:
        _STATE["weights"] = {
            key: torch.from_numpy(value.astype("float32"))
            for key, value in weights.items()
        }
    _STATE["folder"] = Path(folder)
    _STATE["device"] = "cuda" if torch.cuda.is_available() else "cpu"


class Split:
    """The rows of a run: training, dev and test."""

    def __init__(self, job: dict[str, Any]) -> None:
        parts = _STATE["sets"][job["set"]]
        rng = np.random.default_rng(job["draw"])
        order = rng.permutation(len(parts[0].labels))
        self.train_texts, self.test_texts = parts[0], parts[-1]
        if "per_class" in job:
            of = parts[0].labels[order]
            places = [
                np.flatnonzero(of == label)[: job["per_class"]]
                for label in np.unique(of)
            ]
            at = np.concatenate(places)
            order = np.concatenate([order[at], np.delete(order, at)])
            job = {**job, "rows": len(at)}
        chosen, rest = order[: job["rows"]], order[job["rows"] :]
        if len(parts) == 1:
            self.test = rest[: job["test_rows"]]
        else:
            self.test = np.arange(len(parts[1].labels))[: job["test_rows"]]
        labels = parts[0].labels[chosen]
        self.dev = chosen[:0]
        if job.get("dev", True):
            held = [
                chosen[labels == label][: round(0.1 * (labels == label).sum())]
                for label in np.unique(labels)
            ]
            if min(map(len, held)) >= 5:
                self.dev = np.concatenate(held)
        self.train = chosen[~np.isin(chosen, self.dev)]
        self.classes = int(max(parts[0].labels)) + 1


# Networks.


def pretrained() -> Any:
    """Return the encoder of the weights."""
    from transformers import BertConfig, BertModel

    weights = _STATE["weights"]
    config = BertConfig(
        vocab_size=len(weights["embeddings.word_embeddings.weight"]),
        hidden_size=HIDDEN,
        num_hidden_layers=BLOCKS,
        num_attention_heads=12,
        intermediate_size=4 * HIDDEN,
    )
    encoder = BertModel(config)
    given = {name: weights[name] for name in encoder.state_dict()}
    encoder.load_state_dict(given)
    return encoder


class Network:
    """Encoder and head, whose outputs are of texts in one or several rows."""

    def __init__(self, job: dict[str, Any], classes: int) -> None:
        import torch

        torch.manual_seed(job["draw"])
        self.job, self.device = job, _STATE["device"]
        self.encoder = pretrained()
        if job.get("variant") == "top":
            for module in self.encoder.encoder.layer[-1].modules():
                if isinstance(module, torch.nn.Linear):
                    torch.nn.init.normal_(module.weight, std=0.02)
                    torch.nn.init.zeros_(module.bias)
                elif isinstance(module, torch.nn.LayerNorm):
                    module.reset_parameters()
        if job.get("frozen"):
            kept = [self.encoder.embeddings, *self.encoder.encoder.layer]
            for module in kept[: job["frozen"] + 1]:
                module.requires_grad_(False)
        self.head = torch.nn.Linear(HIDDEN, classes)
        torch.nn.init.trunc_normal_(self.head.weight, std=0.02, a=-0.04, b=0.04)
        torch.nn.init.zeros_(self.head.bias)
        self.dropout = torch.nn.Dropout(0.1)
        self.all = torch.nn.ModuleList([self.encoder, self.head, self.dropout])
        self.all.to(self.device)

    def vectors(self, texts: Texts, rows: Any, draw: Any = None) -> Any:
        """Return the vectors [B, H] of texts; of several rows, their mean."""
        import torch

        found: list[Any] = []
        owners: list[int] = []
        for number, row in enumerate(rows):
            parts = texts.rows(row, self.job, draw)
            found += parts
            owners += [number] * len(parts)
        vectors = self.encoded(found)
        if len(found) == len(rows):
            return vectors
        at = torch.tensor(owners, device=self.device)
        sums = torch.zeros(len(rows), HIDDEN, device=self.device)
        counts = torch.bincount(at, minlength=len(rows))[:, None]
        return sums.index_add(0, at, vectors) / counts

    def encoded(self, found: Sequence[Any]) -> Any:
        """Return the vectors [B, H] of rows, each ids and segments."""
        import torch

        longest = max(len(ids) for ids, _ in found)
        longest += -longest % 8
        packed = np.zeros((3, len(found), longest), np.int64)
        for place, (ids, segments) in enumerate(found):
            packed[0, place, : len(ids)] = ids
            packed[1, place, : len(ids)] = segments
            packed[2, place, : len(ids)] = 1
        ids, segments, mask = torch.from_numpy(packed).to(self.device)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            outputs = self.encoder(
                input_ids=ids,
                token_type_ids=segments,
                attention_mask=mask,
                output_hidden_states=True,
            )
        if self.job["pooling"] == "pooler":
            return outputs.pooler_output.float()
        weight = mask[:, :, None].float()
        unit = torch.nn.functional.normalize
        means = [
            (states.float() * weight).sum(1) / weight.sum(1)
            for states in outputs.hidden_states
        ]
        if self.job.get("method") == "linear":
            return torch.cat([unit(each) for each in means], dim=1)
        return unit(means[-1]) if self.job.get("probe") else means[-1]

    def logits(self, texts: Texts, rows: Any, draw: Any = None) -> Any:
        return self.head(self.dropout(self.vectors(texts, rows, draw)))

    def logits_of(self, texts: Sequence[tuple[Texts, int]]) -> Any:
        """Return the logits of rows of several sets."""
        parts = [of.rows(row, self.job, None)[0] for of, row in texts]
        return self.head(self.dropout(self.encoded(parts)))

    def predicted(self, texts: Texts, rows: Any, *, of: str = "logits") -> Any:
        """Return logits or vectors of many texts, similar lengths together."""
        import torch

        self.all.eval()
        order = np.argsort([len(texts.parts[0][row]) for row in rows])
        found = []
        with torch.inference_mode():
            for at in range(0, len(rows), 64):
                found.append(getattr(self, of)(texts, rows[order[at : at + 64]]).cpu())
        self.all.train()
        return torch.cat(found)[np.argsort(order)].float().numpy()

    def probe(self, split: Split) -> None:
        """Fit the head on the encoder's vectors of the training rows."""
        import torch

        from bert_keras.training.linear_head import (
            cross_validate,
            fit_head,
            stratified_folds,
        )

        x = self.predicted(split.train_texts, split.train, of="vectors")
        labels = split.train_texts.labels[split.train]
        targets = (labels[:, None] == np.arange(split.classes)).astype("float64")
        strata = [(str(label),) for label in labels]
        folds = stratified_folds(strata, seed=self.job["draw"])
        l2 = cross_validate(x, targets, folds, loss="softmax").l2
        (head,) = fit_head(x, targets, loss="softmax", l2=l2)
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(head.kernel.T.copy()))
            self.head.bias.copy_(torch.from_numpy(head.bias))

    def optimizer(self, steps: int, rate: float) -> Any:
        import torch

        groups: dict[Any, list[Any]] = {}
        for name, weight in self.all.named_parameters():
            factor = 1.0
            if self.job.get("variant") == "decay":
                parts = name.split(".")
                if "layer" in parts:
                    block = int(parts[parts.index("layer") + 1]) + 1
                else:
                    block = 0 if "embeddings" in parts else BLOCKS + 1
                factor = 0.8 ** (BLOCKS + 1 - block)
            decays = not (name.endswith("bias") or "LayerNorm" in name)
            groups.setdefault((factor, decays), []).append(weight)
        optimizer = torch.optim.AdamW(
            [
                {
                    "params": weights,
                    "lr": factor * rate,
                    "weight_decay": 0.01 * decays,
                }
                for (factor, decays), weights in groups.items()
            ],
            eps=1e-6,
            fused=self.device == "cuda",
        )
        warm = max(int(0.1 * steps), 1)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda n: min((n + 1) / warm, max(steps - n, 0) / max(steps - warm, 1)),
        )
        return optimizer, schedule

    def update(self, loss: Any, optimizer: Any, schedule: Any) -> None:
        import torch

        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.all.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def rank(logits: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return accuracy and the negative mean loss."""
    top = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    losses = total - logits[np.arange(len(labels)), labels]
    return float((logits.argmax(1) == labels).mean()), -float(losses.mean())


def finetuned(job: dict[str, Any]) -> float:
    """Return the test accuracy of fine-tuning."""
    import torch

    split = Split(job)
    network = Network(job, split.classes)
    if job.get("probe"):
        network.probe(split)
    texts, labels = split.train_texts, split.train_texts.labels
    count = len(split.train)
    batch = job.get("batch", 16 if count < 1000 else 32)
    steps = -(-count // batch)
    epochs = job.get("epochs") or min(max(-(-500 // steps), 4), 20)
    rate = job.get("rate", 1e-4)
    optimizer, schedule = network.optimizer(epochs * steps, rate)
    draw = np.random.default_rng(job["draw"])
    best: tuple[float, float] = (-1.0, 0.0)
    kept = total = None
    made = stalled = 0
    lowest = 0.0
    for epoch in range(epochs):
        order = split.train[draw.permutation(count)]
        for at in range(0, count, batch):
            rows = order[at : at + batch]
            wanted = torch.from_numpy(labels[rows]).to(network.device)
            logits = network.logits(texts, rows, draw)
            loss = torch.nn.functional.cross_entropy(logits, wanted)
            network.update(loss, optimizer, schedule)
            if job.get("variant") == "average":
                done = epoch * steps + at // batch
                if 2 * done >= epochs * steps:
                    made += 1
                    now = [weight.detach() for weight in network.all.parameters()]
                    total = total or [torch.zeros_like(weight) for weight in now]
                    torch._foreach_add_(total, now)
        if len(split.dev):
            found = rank(network.predicted(texts, split.dev), labels[split.dev])
            is_better = found[0] > best[0] or found[1] > lowest + 0.01
            stalled = 0 if is_better or epoch == 0 else stalled + 1
            lowest = found[1] if epoch == 0 else max(lowest, found[1])
            if found >= best:
                best = found
                kept = [w.detach().clone() for w in network.all.parameters()]
            half = max(-(-epochs // 2), 3)
            if not job.get("epochs") and stalled >= half and epoch >= epochs / 2:
                break
    final = kept if total is None else [each / made for each in total]
    if final is not None:
        with torch.no_grad():
            for weight, value in zip(network.all.parameters(), final, strict=True):
                weight.copy_(value)
    logits = network.predicted(split.test_texts, split.test)
    return rank(logits, split.test_texts.labels[split.test])[0]


def headed(job: dict[str, Any]) -> list[float]:
    """Return the test accuracies of heads on vectors: `linear` and `contrastive`.

    The first is as in `train`, the others have rows weighted so that classes are equal.
    """
    import torch

    from bert_keras.training.balanced_batches import balanced_batches, updates_for
    from bert_keras.training.linear_head import balanced, fit_head

    split = Split({**job, "dev": False})
    network = Network(job, split.classes)
    texts, labels = split.train_texts, split.train_texts.labels
    present = np.unique(labels[split.train])
    targets = (labels[split.train][:, None] == present).astype("float64")
    l2 = 1 / targets.size
    if job["method"] == "contrastive":
        steps = math.ceil(job.get("updates", 1) * updates_for(len(split.train)))
        optimizer, schedule = network.optimizer(steps, job.get("rate", 1e-4))
        for rows in balanced_batches(targets, steps, seed=job["draw"]):
            x = network.vectors(texts, split.train[rows])
            x = torch.nn.functional.normalize(x)
            cosines = x @ x.T
            of = torch.from_numpy(targets[rows]).float().to(network.device)
            shared = of @ of.T
            others = 1 - torch.eye(len(rows), device=network.device)
            alike, unlike = shared * others, (1 - shared) * others
            near = (alike * (cosines - 1) ** 2).sum() / alike.sum().clamp(min=1)
            far = (unlike * cosines**2).sum() / unlike.sum().clamp(min=1)
            network.update((near + far) / 2, optimizer, schedule)
    x, test = (
        network.predicted(of, rows, of="vectors")
        for of, rows in ((texts, split.train), (split.test_texts, split.test))
    )
    power = 0.0
    if job["method"] == "linear":
        scale, l2, power = chosen_layers(x, targets, job["draw"])
        x, test = x * scale, test * scale
    else:
        x, test = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, test))
    found = []
    for factor, weight in [(1.0, power), (1.0, 1.0), (0.1, 1.0)]:
        weights = balanced(targets, None, weight)
        (head,) = fit_head(x, targets, loss="softmax", l2=factor * l2, weights=weights)
        answers = present[head(test).argmax(axis=1)]
        is_right = answers == split.test_texts.labels[split.test]
        found.append(float(is_right.mean()))
    return found


def chosen_layers(
    x: np.ndarray, targets: np.ndarray, draw: int
) -> tuple[np.ndarray, float, float]:
    """Return the scale of the layers, L2 and the power of the classes' weights."""
    from bert_keras.training.linear_head import (
        DECAYS,
        MOST_FOR_LAYERS,
        chosen_decay,
        cross_validate,
        layer_scales,
        powers_of,
        stratified_folds,
    )

    classes = targets.argmax(axis=1)
    folds = stratified_folds([(str(each),) for each in classes], seed=draw)
    tried: dict[float, tuple[Any, float, Any]] = {}
    decays = DECAYS if len(x) <= MOST_FOR_LAYERS else (0.0,)
    for decay, power in itertools.product(decays, powers_of(targets, "softmax")):
        scaled = x * layer_scales(decay, BLOCKS + 1, HIDDEN)
        found = cross_validate(scaled, targets, folds, loss="softmax", power=power)
        right = (found.logits.argmax(axis=1) == classes[found.rows]).mean()
        if decay not in tried or (right, -found.loss) > tried[decay][0]:
            tried[decay] = (right, -found.loss), power, found
    losses = {decay: found.losses for decay, (_, _, found) in tried.items()}
    decay = chosen_decay(losses) if len(losses) > 1 else 0.0
    _, power, found = tried[decay]
    return layer_scales(decay, BLOCKS + 1, HIDDEN), found.l2, power


def unlabeled_pairs(
    kind: str, split: Split, rng: np.random.Generator
) -> list[tuple[Texts, int]]:
    """Return pairs without labels: of a set, or made of the training pairs."""
    if kind not in ("swapped", "crossed"):
        sets = _STATE["sets"][kind]
        return [(each, row) for each in sets for row in range(len(each.labels))]
    first, second = split.train_texts.parts
    if kind == "swapped":
        parts, rows = [second, first], split.train
    else:
        a, b = (rng.permutation(split.train) for _ in range(2))
        parts, rows = [[first[n] for n in a], [second[n] for n in b]], np.arange(len(a))
    made = object.__new__(Texts)
    made.parts, made.special = parts, split.train_texts.special
    return [(made, row) for row in rows]


def taught(job: dict[str, Any]) -> list[float]:
    """Return the test accuracies of a student and of its teacher."""
    import torch
    from torch.nn.functional import cross_entropy, kl_div, log_softmax

    split = Split({**job, "dev": False})
    labels = split.train_texts.labels
    texts = [(split.train_texts, row) for row in split.train]
    known = len(texts)
    rng = np.random.default_rng(job["draw"])
    for kind in job["unlabeled"]:
        texts += unlabeled_pairs(kind, split, rng)
    teacher = Network(job, split.classes)

    def train(network: Network, count: int, epochs: int, answers: Any = None) -> None:
        steps = -(-count // 32)
        optimizer, schedule = network.optimizer(epochs * steps, 1e-4)
        for _ in range(epochs):
            order = rng.permutation(count)
            for at in range(0, count, 32):
                rows = order[at : at + 32]
                logits = network.logits_of([texts[row] for row in rows])
                own = rows < known
                loss = logits.sum() * 0
                wanted = labels[split.train[rows[own]]]
                if own.any():
                    wanted = torch.from_numpy(wanted).to(network.device)
                    loss = loss + cross_entropy(logits[own], wanted)
                if answers is not None:
                    soft = kl_div(
                        log_softmax(logits / TEMPERATURE, -1),
                        log_softmax(answers[rows] / TEMPERATURE, -1),
                        log_target=True,
                        reduction="batchmean",
                    )
                    weight = job.get("weight", 0.5)
                    loss = (1 - weight) * loss + weight * TEMPERATURE**2 * soft
                network.update(loss, optimizer, schedule)

    train(teacher, known, 3)
    teacher.all.eval()
    found = []
    with torch.inference_mode():
        for at in range(0, len(texts), 64):
            found.append(teacher.logits_of(texts[at : at + 64]).float())
    teacher.all.train()
    answers = torch.cat(found).clone()
    student = Network(job, split.classes)
    given = teacher.all.state_dict()
    student.all.load_state_dict(given)
    layers = student.encoder.encoder.layer
    student.encoder.encoder.layer = torch.nn.ModuleList(
        [layers[number] for number in job["keep"]]
    )
    student.encoder.config.num_hidden_layers = len(job["keep"])
    train(student, len(texts), job["epochs"], answers)
    wanted = split.test_texts.labels[split.test]
    return [
        rank(network.predicted(split.test_texts, split.test), wanted)[0]
        for network in (student, teacher)
    ]


def setfit(job: dict[str, Any]) -> float:
    """Return the test accuracy of SetFit."""
    import few_labels

    split = Split({**job, "dev": False})
    parts = json.loads((_STATE["folder"] / "texts.json").read_text(encoding="utf-8"))
    train, test = (
        [(texts[row], labels[row]) for row in rows]
        for (texts, _, labels), rows in (
            (parts[job["set"]][0], split.train),
            (parts[job["set"]][-1], split.test),
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        encoder_folder(Path(folder))
        given = {"encoder": folder, "device": _STATE["device"]}
        accuracy, _ = few_labels.setfit(train, test, job["draw"], **given)
    return accuracy


def encoder_folder(folder: Path) -> None:
    """Write the encoder as sentence-transformers does, with the words of the sets."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer
    from transformers import BertTokenizerFast

    pretrained().save_pretrained(folder / "bert")
    words = (_STATE["folder"] / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    BertTokenizerFast(vocab=vocabulary).save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"), max_seq_length=256)
    modules = [transformer, Pooling(HIDDEN), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))


# Jobs.


Ways = Iterator[tuple[str, dict[str, Any]]]  # names and settings of runs
REVIEWS = {"set": "reviews", "rows": 400, "test_rows": 400}


def readings() -> Ways:
    for pooling, (name, reading) in itertools.product(POOLINGS, READINGS.items()):
        yield f"{name} {pooling}", {**REVIEWS, "pooling": pooling, **reading}


def probed() -> Ways:
    common = {**REVIEWS, "pooling": "mean", "probe": True, "batch": 4}
    for (epochs, rate), (name, reading) in itertools.product(
        [(3, 5e-5), (3, 1e-4), (5, 5e-5), (5, 1e-4)], READINGS.items()
    ):
        job = {**common, **reading, "epochs": epochs, "rate": rate}
        if name == "windows-128":
            job["train_windows"] = 16
        yield f"{name}, {epochs} epochs, rate {rate}", job


def rates() -> Ways:
    for name, rate in itertools.product(("windows-512",), (5e-5, 2e-4)):
        job = {**REVIEWS, "pooling": "mean", "rate": rate, **READINGS[name]}
        yield f"{name} {rate}", job


def variants() -> Ways:
    common = {"test_rows": 1000, "length": 128, "epochs": 10, "dev": False}
    every = itertools.product(SMALL_SETS.items(), POOLINGS, VARIANTS)
    for (name, rows), pooling, variant in every:
        job = {"set": name, "rows": rows, "pooling": pooling, "variant": variant}
        yield f"{name} {pooling} {variant}", {**common, **job}


def by_method(name: str, rows: int, method: str, pooling: str) -> dict[str, Any]:
    job = {"set": name, "rows": rows, "method": method, "pooling": pooling}
    return {**job, "test_rows": 2000, "length": 128}


def methods() -> Ways:
    sets = [(name, rows) for name, sizes in METHOD_SETS.items() for rows in sizes]
    for (name, rows), method, pooling in itertools.product(sets, METHODS, POOLINGS):
        if method == "finetune" or pooling == "mean":
            job = by_method(name, rows, method, pooling)
            yield f"{name} {rows} {method} {pooling}", job


def more_updates() -> Ways:
    for (name, rows), factor in itertools.product(UPDATE_SETS, (2, 4)):
        job = by_method(name, rows, "contrastive", "mean")
        yield f"{name} {rows} contrastive {factor} times", {**job, "updates": factor}


def few(name: str, given: dict[str, int]) -> tuple[str, dict[str, Any]]:
    job = {"set": name, "length": 128, "pooling": "mean", "test_rows": 2000, **given}
    return f"{name} {given.get('per_class', given.get('rows'))}", job


def frozen() -> Ways:
    ways = [(0, 1e-4), (2, 1e-4), (3, 1e-4), (3, 2e-4), (4, 2e-4)]
    for given, updates, (blocks, rate) in itertools.product(FEW, (0.5, 1), ways):
        name, job = few(*given)
        more = {"frozen": blocks, "rate": rate, "updates": updates}
        full = {**job, **more, "method": "contrastive"}
        yield f"{name} frozen {blocks} rate {rate} updates {updates}", full


def students() -> Ways:
    common = {
        "set": "paraphrases",
        "rows": 3000,
        "test_rows": 1075,
        "length": 64,
        "pooling": "mean",
        "keep": [0, 2, 4],
        "epochs": 4,
        "method": "student",
    }
    for name, given in UNLABELLED.items():
        yield name, {**common, **given}


def setfits() -> Ways:
    for given in FEW:
        name, job = few(*given)
        yield name, {**job, "method": "setfit"}


TABLES = {
    "reviews": readings,
    "probed": probed,
    "frozen": frozen,
    "students": students,
    "setfit": setfits,
    "rates": rates,
    "updates": more_updates,
    "variants": variants,
    "methods": methods,
}


RUNS = {
    "finetune": finetuned,
    "linear": headed,
    "contrastive": headed,
    "student": taught,
    "setfit": setfit,
}


def jobs(tables: Sequence[str], draws: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the runs of the tables, each draw of all of them before the next."""
    for draw, table in itertools.product(draws, TABLES):
        if table in tables:
            for name, job in TABLES[table]():
                yield {"table": table, "name": name, **job, "draw": draw}


def result(job: dict[str, Any]) -> dict[str, Any]:
    begun = time.perf_counter()
    found = RUNS[job.get("method", "finetune")](job)
    value, *others = found if isinstance(found, list) else [found]
    seconds = time.perf_counter() - begun
    return {**job, "accuracy": value, "others": others, "seconds": seconds}


def run(options: argparse.Namespace) -> None:
    """Write a line for each run until all are made, or the seconds are over."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of NumPy in each process
    first = options.first_draw
    wanted = list(jobs(options.tables, range(first, first + options.draws)))
    done = set()
    if options.results.is_file():
        lines = map(json.loads, options.results.read_text().splitlines())
        done = {(line["table"], line["name"], line["draw"]) for line in lines}
    wanted = [
        job
        for job in wanted
        if options.only in job["name"]
        and (job["table"], job["name"], job["draw"]) not in done
    ]
    begun = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with (
        context.Pool(options.processes, start, (str(options.folder),)) as pool,
        options.results.open("a") as file,
    ):
        found = pool.imap_unordered(result, wanted)
        for number in range(1, len(wanted) + 1):
            left = options.seconds - (time.perf_counter() - begun)
            try:
                line = found.next(timeout=max(left, 0.1))
            except multiprocessing.TimeoutError:
                print(f"{number - 1} of {len(wanted)} runs in {options.seconds} s")
                break
            file.write(json.dumps(line) + "\n")
            file.flush()
        pool.terminate()


def show(path: Path) -> None:
    """Print mean and standard deviation of each way."""
    found: dict[tuple[str, str], list[float]] = {}
    seconds: dict[tuple[str, str], list[float]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        key = row["table"], row["name"]
        found.setdefault(key, []).append(row["accuracy"])
        seconds.setdefault(key, []).append(row["seconds"])
    for key, values in sorted(found.items()):
        spread = np.std(values, ddof=1) if len(values) > 1 else float("nan")
        print(
            f"{key[0]:<10}{key[1]:<32}{np.mean(values):.3f} ± {spread:.3f}  "
            f"{len(values)} draws, {np.mean(seconds[key]):.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("prepare").add_argument("folder", type=Path)
    given = verbs.add_parser("run")
    given.add_argument("folder", type=Path)
    given.add_argument("results", type=Path)
    tables = list(TABLES)
    given.add_argument("--tables", nargs="+", choices=tables, default=tables)
    given.add_argument("--only", default="", help="a part of the names of ways")
    given.add_argument("--draws", type=int, default=5)
    given.add_argument("--first-draw", type=int, default=1)
    given.add_argument("--processes", type=int, default=12)
    given.add_argument("--seconds", type=float, default=1e6)
    verbs.add_parser("show").add_argument("results", type=Path)
    options = parser.parse_args()
    if options.verb == "prepare":
        prepare(options.folder)
    elif options.verb == "run":
        run(options)
    else:
        show(options.results)


if __name__ == "__main__":
    main()
