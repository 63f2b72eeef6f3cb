"""Kills a fine-tuning run again and again: `python killed_runs.py FOLDER KILLS`.

This process imports TensorFlow, which takes long, and starts none of its threads; so
that each try is a fork, which starts at once. A try is killed with SIGKILL some updates
after the last one, at no particular moment. Prints what became of them as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from conftest import ROWS, write_encoder

import bert_keras.training.finetune
from bert_keras.data.table import as_columns
from bert_keras.tasks.classification import Classification
from bert_keras.training.config import TrainConfig

STEPS_A_KILL = 5  # at most, from one kill to the next
SEED = 3  # of the moments
BATCH = 4


def run(folder: Path, output: str, epochs: int) -> None:
    """Train into a folder, or resume there; dropout is on, each update is saved."""
    texts, labels = zip(*ROWS, strict=True)
    rows = as_columns(text=texts, label=labels)
    bert_keras.training.finetune.train(
        Classification,
        encoder=folder / "encoder",
        train=rows,
        dev=rows,
        output=folder / output,
        config=TrainConfig(
            epochs=epochs,
            batch_size=BATCH,
            learning_rate=3e-4,
            max_length=24,
            checkpoint_every=1,
        ),
    )


def dropping(folder: Path) -> None:
    """Write a small encoder with dropout."""
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    write_encoder(folder / "encoder", num_hidden_layers=1, **rates)


def forked(function, *arguments) -> int:
    """Run a function in a separate process; return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        function(*arguments)
        code = 0
    finally:
        os._exit(code)


def step_of(run_folder: Path) -> int:
    """Return the step of the newest checkpoint, 0 if there is none."""
    names = [path.name for path in (run_folder / "checkpoints").glob("step-*")]
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def killed(folder: Path, epochs: int, chance: random.Random) -> tuple[bool, bool]:
    """Kill a run; return whether it was over before, and whether it was saving."""
    place = folder / ".killed.run"
    target = step_of(place) + chance.randint(1, STEPS_A_KILL)
    child = forked(run, folder, "killed", epochs)
    while step_of(place) < target:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True, False
        time.sleep(0.001)
    time.sleep(chance.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False, bool(list(place.glob("checkpoints/.*")) + list(place.glob(".best*")))


def main(folder: Path, kills: int) -> None:
    steps = (kills + 1) * (STEPS_A_KILL + 2)
    epochs = -(-steps // (len(ROWS) // BATCH))
    child = forked(dropping, folder)
    os.waitpid(child, 0)
    # Reported, since a fork with threads may hang.
    print(json.dumps({"threads": threading.active_count(), "epochs": epochs}))
    whole = forked(run, folder, "whole", epochs)  # in parallel, on its own core
    chance, found = random.Random(SEED), []
    for _ in range(kills):
        found.append(killed(folder, epochs, chance))
    last = forked(run, folder, "killed", epochs)
    codes = [os.waitstatus_to_exitcode(os.waitpid(n, 0)[1]) for n in (last, whole)]
    print(
        json.dumps(
            {
                "over": sum(over for over, _ in found),
                "saving": sum(saving for _, saving in found),
                "codes": codes,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
