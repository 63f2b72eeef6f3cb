"""The command line `bert-keras`: one verb, one library call.

Each verb imports the heavy modules that it needs, so that `--help` is quick. Results go
to stdout, progress to stderr. A user's mistake prints one line and exits with 2.
"""

from __future__ import annotations

import os
import select
import shlex
import sys

from bert_keras.cli.parser import function_of, parse
from bert_keras.errors import BertKerasError, WorkerLostError, reason_of
from bert_keras.lazy_names import requirements
from bert_keras.runs.progress import set_quiet
from bert_keras.runs.stop_signal import EXIT_CODE, RunStopped

_EX_UNAVAILABLE = 69  # `os.EX_UNAVAILABLE`, which Windows lacks
_COMPLETING = "_ARGCOMPLETE"  # set by a shell that wants completions


def run_process() -> int:
    """Run the command of this process, which then ends; return the exit code."""
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        # A closed pipe or a full disk: Python would flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code.

    The process's standard output is left unchanged, so that a notebook may call this.

    Returns:
        0; 2 for a user's mistake; 69 if another worker has ended; 75 if the
        run was stopped and saved.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if _COMPLETING in os.environ:
        from bert_keras.cli.completion import complete

        complete()
    is_verbose = "--verbose" in arguments
    try:
        options = parse(arguments)
        if options.verbose:
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        options.command_line = shlex.join(["bert-keras", *arguments])
        if ":" in (getattr(options, "task", None) or ""):
            sys.path.append(os.getcwd())  # may hold the user's own task
        set_quiet(options.quiet)
        with requirements():
            function_of(options.verb)(options)
        sys.stdout.flush()
    except BertKerasError as error:
        if is_verbose:
            import traceback

            traceback.print_exc()
        return _mistake(str(error))
    except RunStopped as stopped:
        print(f"bert-keras: {stopped}: the same command resumes it", file=sys.stderr)
        return EXIT_CODE
    except WorkerLostError as lost:
        print(f"bert-keras: {lost}", file=sys.stderr)
        return _EX_UNAVAILABLE
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return 0  # such as `head`, which has read enough
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _mistake(f"{place}{reason_of(error)}")
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # By name, since TensorFlow is not imported here.
        memory = ("MemoryError", "ResourceExhaustedError")
        if type(error).__name__ not in memory:
            raise
        return _mistake("not enough memory; a smaller --batch-size may help")
    return 0


def _mistake(message: str) -> int:
    """Print what is wrong in one line; return the exit code."""
    print(f"bert-keras: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _reader_is_gone() -> bool:
    """Return whether standard output is a pipe whose reader has closed it."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(e & (select.POLLERR | select.POLLHUP) for _, e in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # no descriptor, as in a notebook
        return False
