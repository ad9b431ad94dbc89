"""`triform eval`"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.cli import progress, task_io
from triform.cli.layout_options import layout_options
from triform.cli.models import add_adapter_option, open_model
from triform.data.columns import Layout
from triform.data.rows import ROW_TYPES

if TYPE_CHECKING:
    from triform.tasks.task import Scores


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
    from triform.pipeline.evaluation import evaluate as evaluate_model

    loaded = open_model(model)
    with progress.counting("rows") as counted:
        report = evaluate_model(
            loaded,
            data,
            task=task,
            baseline=baseline,
            train=train,
            limit=limit,
            beams=beams,
            columns=layout.columns,
            format=layout.format,
            progress=lambda done, total: counted.update(done, total=total),
        )
    columns = {model: report.scores, **report.baselines}
    for note in report.notes:
        click.echo(note, err=True)
    if as_json:
        told = {"task": report.task, "data": data, "skipped": report.skipped, "cut": report.cut}
        click.echo(msgspec.json.encode(told | {"unknown": report.unknown, "scores": columns}))
        return
    screen = Console()
    screen.print(Text(f"{report.task}: {report.scores.rows:,} rows of {data}, {report.skipped:,} skipped"))
    screen.print(make_score_table(columns))
    if report.scores.main == "accuracy" and report.scores.counts:
        screen.print(make_confusion_table(report.scores.counts))
    if signature := report.scores.signature:
        screen.print(Text(f"{report.scores.main}: {signature}"))
    task_io.warn_of_cut(report.cut_texts, report.cut, report.scores.rows)
    task_io.warn_of_unknown(report.unknown)


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
