"""`python -m bert_keras`: the command line."""

from bert_keras.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
