"""A process that tries a pattern on hard texts: backtracking can take hours, and no thread can stop it.

A script of its own, started with the folder of the tokenizers library as argument; it imports no other part of Triform.
Its standard input is JSON: a list of patterns. It exits with 0 if each text is split within the processor time;
a signal, an error or a panic of the library means that a pattern is too slow.
"""

import json
import re
import signal
import sys

MAX_SECONDS = 1.0  # of processor time, for all texts of one pattern; a linear pattern needs a tenth
TEXT_CHARACTERS = 2_000  # released patterns take at most quadratic time
MAX_UNITS = 24
UNITS = ("a", "A", "1", " ", "\n", "!", "'", "é", "中", "a1", "a ", " \n", "Aa")
ENDS = ("", "!", "\0")


def make_hard_texts(pattern: str) -> list[str]:
    """Repetitions of the pattern's own characters and of usual ones, with an end that may not match.

    One end has all characters of the pattern: a matcher that misses one in a text gives up before it begins.
    """
    mentioned = sorted({*re.findall(r"[^\W\d_]+|\d+", pattern), *re.findall(r"[^\\\s]", pattern)}, key=len)
    units = [*dict.fromkeys((*UNITS, *mentioned[: MAX_UNITS - len(UNITS)]))]
    return [unit * (TEXT_CHARACTERS // len(unit)) + end for unit in units for end in (*ENDS, "\0" + "".join(mentioned))]


def main() -> None:
    """Tries patterns on hard texts; ends by a signal where one takes too long."""
    sys.path[:0] = sys.argv[1:]
    from tokenizers import Regex, pre_tokenizers

    for pattern in json.load(sys.stdin):
        # No handler: the signal ends the process even inside one long operation of the library.
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        for text in make_hard_texts(pattern):
            split.pre_tokenize_str(text)
    signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
