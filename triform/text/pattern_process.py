"""A process that tries a pattern on hard texts: a backtracking matcher may take hours, and no thread can end it.

A script of its own, started with the places of the tokenizers library as its arguments; it imports no other part of
Triform. On its standard input it is given JSON: a list of patterns. It ends with 0 where each text is split within the
bound of processor time; a signal, an error or a panic of the library mean that a pattern is too slow.
"""

import json
import re
import signal
import sys

SECONDS = 1.0  # of processor time, for all texts of one pattern; one that grows with the text's length needs a tenth
LENGTH = 2_000  # characters of a text; released patterns take time with its square at most
MAX_UNITS = 24
UNITS = ("a", "A", "1", " ", "\n", "!", "'", "é", "中", "a1", "a ", " \n", "Aa")
ENDS = ("", "!", "\0")


def hard_texts(pattern: str) -> list[str]:
    """Runs of what the pattern speaks of and of the usual kinds of characters, with an end that may not match.

    One end has all that the pattern speaks of: a matcher that misses a letter in a text gives up before it begins.
    """
    spoken = sorted({*re.findall(r"[^\W\d_]+|\d+", pattern), *re.findall(r"[^\\\s]", pattern)}, key=len)
    units = [*dict.fromkeys((*UNITS, *spoken[: MAX_UNITS - len(UNITS)]))]
    return [unit * (LENGTH // len(unit)) + end for unit in units for end in (*ENDS, "\0" + "".join(spoken))]


def main() -> None:
    sys.path[:0] = sys.argv[1:]
    from tokenizers import Regex, pre_tokenizers

    for pattern in json.load(sys.stdin):
        # No handler: the signal ends the process even inside one long operation of the library.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        for text in hard_texts(pattern):
            split.pre_tokenize_str(text)
    signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
