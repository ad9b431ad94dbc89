"""The process in which a PDF is read: a script of its own, with limits on its time and memory.

Prints one JSON line per page with text: its number and its text. Imports no other part of Triform.
"""

import json
import sys
import warnings
from contextlib import suppress

REFUSED = 3  # exit code: standard output says why
MAX_SECONDS = 300  # processor time of one file
MAX_MEMORY_BYTES = 2 << 30
MAX_PAGES = 20_000
MAX_CHARACTERS = 1 << 26


def limit_process() -> None:
    """Limits of time and memory, where the system has them."""
    with suppress(ImportError):
        import resource

        for name, most in (("RLIMIT_AS", MAX_MEMORY_BYTES), ("RLIMIT_CPU", MAX_SECONDS), ("RLIMIT_FSIZE", 0)):
            with suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, name), (most, most))


def refuse(reason: str) -> None:
    print(reason)
    sys.exit(REFUSED)


def print_pages(path: str) -> None:
    """Prints every page that has text, or why the file cannot be read."""
    import logging

    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.disable(logging.CRITICAL)
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            refuse("it needs a password")
        if len(reader.pages) > MAX_PAGES:
            refuse(f"it has {len(reader.pages):,} pages; at most {MAX_PAGES:,} are read")
        left = MAX_CHARACTERS
        for number, page in enumerate(reader.pages, start=1):
            text = page.extract_text().encode("utf-8", "replace").decode()
            left -= len(text)
            if left < 0:
                refuse(f"it has more than {MAX_CHARACTERS:,} characters")
            if text.strip():
                print(json.dumps([number, text]))
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        refuse(f"it is no PDF that can be read: {' '.join(str(error).split())[:120]}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    limit_process()
    print_pages(sys.argv[1])
