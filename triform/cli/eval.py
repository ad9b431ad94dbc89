"""`triform eval`"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.cli import progress, task_io
from triform.cli.layout_options import layout_options
from triform.cli.models import add_adapter_option, open_model
from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.rows import ROW_TYPES

if TYPE_CHECKING:
    from triform.model import Model
    from triform.tasks.task import Scores, Task


@click.command("eval")
@add_adapter_option
@click.argument("model")
@click.argument("data")
@click.option("--task", help="The task; default: what the model was trained for.")
@click.option("--baseline", is_flag=True, help="Also evaluate simple baselines on the same rows.")
@click.option("--train", help="Rows that the baselines are trained on; default: those of the folder DATA.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N rows.")
@click.option("--beams", type=click.IntRange(min=1), help="Beam search of this width, if the model generates text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: all scores, with how they were computed.")
@layout_options(*ROW_TYPES)
def evaluate(
    model: str,
    data: str,
    task: str | None,
    baseline: bool,
    train: str | None,
    limit: int | None,
    beams: int | None,
    as_json: bool,
    layout: Layout,
) -> None:
    """Evaluate MODEL on the rows of DATA: a file, two parallel files as test.en-de, or a folder with a test file.

    Perplexity counts each text's own tokens, behind the start token the model was trained with; no end token.

    \b
    Examples:
      triform eval models/en-de data/test_2016_flickr.en-de --beams 5
      triform eval models/sst2 data/test.tsv --baseline --train data/train.tsv
      triform eval models/stories book.txt --task complete --json
    """
    from triform.pipeline.evaluation_rows import read_rows, read_training_rows
    from triform.tasks.task_of_model import choose_task

    loaded = open_model(model)
    found = choose_task(loaded, task)
    rows, skipped = read_rows(data, kind=found.kind, limit=limit, layout=layout)
    beside: dict[str, Scores] = {}
    if baseline:
        beside = baselines(found, rows, loaded, train=read_training_rows(found, data=data, train=train, layout=layout))
    tally = task_io.Tally()
    options = found.options(**({} if beams is None else {"beams": beams}))
    columns = {model: evaluate_rows(found, rows, loaded, tally, options), **beside}
    if as_json:
        told = {"task": found.name, "data": data, "skipped": skipped, "cut": tally.cut_tokens, "unknown": tally.unknown}
        click.echo(msgspec.json.encode(told | {"scores": columns}))
        return
    screen = Console()
    screen.print(Text(f"{found.name}: {len(rows):,} rows of {data}, {skipped:,} skipped"))
    screen.print(make_score_table(columns))
    if columns[model].main == "accuracy" and (counts := columns[model].counts):
        screen.print(make_confusion_table(counts))
    if signature := columns[model].signature:
        screen.print(Text(f"{columns[model].main}: {signature}"))
    task_io.warn(tally)


def baselines(
    task: "Task[Any, Any, Any]", rows: Sequence[Any], model: "Model", *, train: Sequence[Any]
) -> "dict[str, Scores]":
    """Simpler means, the frozen model it began with among them, where that is still here."""
    from triform.errors import TriformError
    from triform.pipeline.evaluation_rows import score_frozen_baseline

    found = dict(task.baselines(rows, train=train))
    try:
        return found | dict(score_frozen_baseline(task, rows, train=train, model=model))
    except TriformError as error:
        click.echo(f"without a linear fit on frozen vectors: {error}", err=True)
        return found


def evaluate_rows(
    task: "Task[Any, Any, Any]",
    rows: Sequence[Any],
    model: "Model",
    tally: task_io.Tally,
    options: Any,
) -> "Scores":
    """With a bar where answers come one by one."""
    from triform.tasks.task import Task

    if type(task).evaluate is not Task.evaluate:
        with progress.status(f"evaluating {len(rows):,} rows"):
            return task.evaluate(rows, model=model, options=options)
    answers = []
    with progress.counting("rows", total=lambda: len(rows)) as counted:
        for some in split_chunks(map(task.question, rows), first=task_io.FIRST_CHUNK):
            for answer in task.run(some, model=model, options=options):
                answers.append(answer)
                tally.add_answer(answer)
                counted.advance(1)
    return task.judge_answers(answers, rows, model=model)


def make_score_table(columns: "Mapping[str, Scores]") -> Table:
    """One line per score, one column for the model and for each baseline."""
    table = Table("")
    for name in columns:
        table.add_column(Text(name), justify="right")
    every = list(columns.values())
    for name in dict.fromkeys(name for scores in every for name in scores.values):
        cells = (scores.format_value(name) for scores in every)
        table.add_row(Text(name, style="bold" if name == every[0].main else ""), *cells)
    return table


MAX_SHOWN_LABELS = 20


def make_confusion_table(counts: Mapping[str, Mapping[str, int]]) -> Table:
    """One line per true label, one column per predicted label."""
    names = sorted({*counts, *(name for row in counts.values() for name in row)})
    table = Table("true \\ predicted", title="confusion matrix", title_justify="left")
    for name in names[:MAX_SHOWN_LABELS]:
        table.add_column(Text(name), justify="right", overflow="fold")
    for right in names[:MAX_SHOWN_LABELS]:
        row = counts.get(right, {})
        table.add_row(Text(right), *(str(row[name]) if row.get(name) else "·" for name in names[:MAX_SHOWN_LABELS]))
    if len(names) > MAX_SHOWN_LABELS:
        table.caption = f"the first {MAX_SHOWN_LABELS} of {len(names)} labels"
    return table
