"""`triform quantize`"""

from pathlib import Path

import click
from rich.console import Console

from triform.cli import progress
from triform.cli.input_rows import read_whole_text
from triform.cli.models import open_model
from triform.weight_kinds import KINDS


@click.command()
@click.argument("model")
@click.option("--to", "kind", required=True, metavar="KIND", help=f"The kind of weights: {', '.join(KINDS[1:])}.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The model folder to write.")
@click.option("--calibrate", metavar="FILE", help="A text like those to come: the scales of q4 are tuned to it.")
@click.option("--text", "texts", multiple=True, metavar="FILE", help="Also compare with float32 on this text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the comparison with float32.")
def quantize(model: str, kind: str, out: Path, calibrate: str | None, texts: tuple[str, ...], as_json: bool) -> None:
    """Write MODEL with weights of few bits: a folder that loads at once, smaller and faster, and a little less exact.

    How much less is measured: KL, same likeliest token and perplexity beside float32, printed and written to the
    folder's README.md. q8 has 8 bits per weight, q4 has 4 (token table and language-model head 8), bfloat16 has 16;
    32 weights share a scale. Norms, biases and positions stay float32.

    \b
    Examples:
      triform quantize minilm --to q8 --out minilm-q8
      triform quantize models/stories --to q4 --calibrate stories.txt --out stories-q4
      triform quantize smollm2 --to q8 --out smollm2-q8 --text my-notes.txt
    """
    from triform.pipeline import quantize_model as pipeline
    from triform.weights import model_folder

    chosen = pipeline.quantized_kind(kind)
    model_folder.check_free(out)
    read = {name: read_whole_text(name) for name in texts}
    calibration = None if calibrate is None else read_whole_text(calibrate)
    opened = open_model(model, weights="float32")
    with progress.status(f"quantising {model}") as status:
        small = pipeline.quantize_model(
            opened, kind=chosen, calibrate=calibration, what=str(calibrate), said=status.update
        )
        status.update("comparing with float32")
        report = pipeline.compare_with_float32(opened, small, texts=read)
        card = pipeline.write_card(Path(model).name, report, calibrated_on=calibrate)
        pipeline.write_quantized(out, model=small, card=card)
    if as_json:
        click.echo(report.to_json())
        return
    Console().print(report)
    click.echo(out)
