"""`python -m triform.text FOLDER TEXT`: how the tokenizer of a model folder splits a text, one line per token."""

import sys

from triform.errors import TriformError
from triform.text.tokenizer import Tokenizer


def main(folder: str, text: str) -> None:
    """Prints the tokens of a text."""
    tokenizer = Tokenizer.read(folder)
    encoding = tokenizer.encode(text)
    for id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        print(f"{id:>7}  {tokenizer.token_of(id)!r:<24} {start:>5}–{end:<5} {text[start:end]!r}")
    unknown = tokenizer.count_unknown(encoding.ids)
    print(f"{len(encoding.ids)} tokens, {unknown} unknown, vocabulary {tokenizer.vocab:,}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except TriformError as error:
        sys.exit(str(error))
