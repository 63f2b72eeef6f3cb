"""`python -m bert_keras`: the command line."""

from bert_keras.cli.main import run_process

if __name__ == "__main__":
    raise SystemExit(run_process())
