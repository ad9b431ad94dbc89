"""`triform import` and `triform export`"""

from pathlib import Path

import click

from triform.errors import TriformError


def check_fresh(out: Path) -> None:
    """A conversion never takes the place of anything."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TriformError(f"{out} already holds something; give another name, or delete it first")


@click.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The model folder to write.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="Of a llama2.c model: its tokenizer file.")
def import_model(source: Path, out: Path, tokenizer: Path | None) -> None:
    """Turn a GGUF file or a llama2.c file into a model folder.

    \b
    Examples:
      triform import model.Q4_1.gguf --out models/smollm2
      triform import stories260K.bin --tokenizer tok512.bin --out models/stories
    """
    from triform.weights import folder, gguf, llama2c

    check_fresh(out)
    if not source.is_file():
        raise TriformError(f"there is no file {source}")
    with source.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    if is_gguf and tokenizer is not None:
        raise TriformError("a GGUF file brings its own tokenizer; leave --tokenizer out")
    model = gguf.read(source) if is_gguf else llama2c.read(source, tokenizer=tokenizer)
    folder.write(out, model=model)
    click.echo(out)


@click.command("export")
@click.argument("model")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The model folder to write.")
@click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Default: as the model is loaded, float32."
)
def export_model(model: str, out: Path, dtype: str | None) -> None:
    """Write MODEL (a folder, a name on the shelf, or a name from `triform families`) as a Hugging Face model folder.

    \b
    Examples:
      triform export models/stories --out stories-f16 --dtype float16
      triform export minilm --out minilm-copy
    """
    from triform.cli.models import open_model

    check_fresh(out)
    open_model(model).save(out, dtype=dtype)
    click.echo(out)
