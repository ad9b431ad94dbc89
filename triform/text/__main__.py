"""`python -m triform.text FOLDER TEXT`: how the tokenizer of a model folder cuts a text, a line a token."""

import sys

from triform.errors import TriformError
from triform.text.tokenizer import Tokenizer


def main(folder: str, text: str) -> None:
    tokenizer = Tokenizer.read(folder)
    found = tokenizer.encode(text)
    for id, (start, end) in zip(found.ids, found.offsets, strict=True):
        print(f"{id:>7}  {tokenizer.token_of(id)!r:<24} {start:>5}–{end:<5} {text[start:end]!r}")
    print(f"{len(found.ids)} tokens, {tokenizer.count_unknown(found.ids)} unknown, vocabulary {tokenizer.vocab:,}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except TriformError as error:
        sys.exit(str(error))
