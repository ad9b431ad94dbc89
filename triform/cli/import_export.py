"""`triform import` and `triform export`"""

from pathlib import Path

import click

from triform.cli.models import add_adapter_option
from triform.errors import TriformError
from triform.hints import Hint
from triform.weight_kinds import AUTO, CHOICES, check_choice

# How files that are neither begin, and what to do with them.
OTHER_FILES = {
    b"PK\x03\x04": "is a zip archive (perhaps PyTorch's own format); give a GGUF or llama2.c file, unpacked",
    b"\x1f\x8b": "is packed with gzip; unpack it first",
    b"<!do": "is a web page, not a model; download the file itself",
    b"<!DO": "is a web page, not a model; download the file itself",
    b"<htm": "is a web page, not a model; download the file itself",
    b"vers": "is a Git LFS pointer, not the file itself; fetch it with: git lfs pull",
}


def read_first_bytes(source: Path) -> bytes:
    """The four bytes that say which kind of file it is; refused with the way out where it can be no model."""
    if source.is_dir():
        raise TriformError(f"{source} is a folder; {describe_way(source)}")
    if not source.is_file():
        raise TriformError(f"there is no file {source}")
    if source.suffix == ".safetensors":
        raise TriformError(f"{source} holds weights alone; use the folder it lies in, with its config.json")
    with source.open("rb") as file:
        begins = file.read(4)
    for magic, trouble in OTHER_FILES.items():
        if begins.startswith(magic):
            raise TriformError(f"{source} {trouble}")
    return begins


def describe_way(folder: Path) -> str:
    """What to do with a folder that was given where a file is imported."""
    if (folder / "config.json").is_file():
        command = Hint.CHECK.replace("MODEL", str(folder))
        return f"it needs no import: use it as it is, `{command}` or triform.load({str(folder)!r})"
    files = sorted(path.name for path in folder.iterdir() if path.suffix in (".gguf", ".bin"))
    if files:
        return f"give one of its files: {', '.join(files[:8])}"
    return "it holds neither a config.json nor a .gguf or .bin file"


@click.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The model folder to write.")
@click.option(
    "--weights",
    default="float32",
    show_default=True,
    metavar="KIND",
    help=f"Kind of weights: {', '.join(CHOICES)}. auto: a GGUF file's own blocks, as they lie.",
)
@click.option("--tokenizer", type=click.Path(path_type=Path), help="The tokenizer file of a llama2.c model.")
def import_model(source: Path, out: Path, weights: str, tokenizer: Path | None) -> None:
    """Convert a GGUF file or a llama2.c file to a model folder.

    A Hugging Face folder needs no import: give it to any command as it is.

    \b
    Examples:
      triform import model.Q4_1.gguf --out models/smollm2
      triform import model.Q8_0.gguf --weights auto --out models/small
      triform import stories260K.bin --tokenizer tok512.bin --out models/stories
    """
    from triform.weights import gguf, llama2c, model_folder

    check_choice(weights)
    model_folder.check_free(out)
    is_gguf = read_first_bytes(source) == b"GGUF"
    if is_gguf and tokenizer is not None:
        raise TriformError("a GGUF file brings its own tokenizer; leave --tokenizer out")
    if is_gguf:
        model = gguf.read(source, weights=weights)
    else:
        model = llama2c.read(source, tokenizer=tokenizer)
        model = model if weights in (AUTO, "float32") else model.with_weights(weights)
    model_folder.write(out, model=model)
    click.echo(out)


@click.command("export")
@add_adapter_option
@click.argument("model")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The model folder to write.")
@click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Default: as the model is loaded, float32."
)
def export_model(model: str, out: Path, dtype: str | None) -> None:
    """Write MODEL as a Hugging Face model folder: a folder, a name in the model store, or one of `triform families`.

    \b
    Examples:
      triform export models/stories --out stories-f16 --dtype float16
      triform export minilm --out minilm-copy
      triform export smollm2 --adapter lora --out merged
    """
    from triform.cli.models import open_model
    from triform.weights import model_folder

    model_folder.check_free(out)  # before the model is read
    open_model(model, weights="float32").save(out, dtype=dtype)
    click.echo(out)
