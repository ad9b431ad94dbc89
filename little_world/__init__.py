"""The little world: small true sentences in English and German, made by a grammar from a seed, labelled for all tasks.

    sentences(split="train", seed=1, count=3)           sentences with everything that is known about them
    rows("answer", split="test", seed=1, count=3)       rows of a task
    write("translate", "train.en-de", split=...)        the same as files
    grammatical("A lion.")  translate("A lion.")        the grammar as a judge and as a translator
    examples()                                          the lectures' own sentences

Words are seen in training, combinations are held out: a hash of verb, adjectives and noun decides the split.
`python -m little_world` shows some of it.
"""

from little_world.export import write
from little_world.grammar_engine import Split
from little_world.rows import TASKS, Label, Row, Task, rows
from little_world.sentences import SPLITS, Sentence, examples, grammatical, read, sentences, translate
from little_world.topics import TOPICS

__all__ = [
    "SPLITS",
    "TASKS",
    "TOPICS",
    "Label",
    "Row",
    "Sentence",
    "Split",
    "Task",
    "examples",
    "grammatical",
    "read",
    "rows",
    "sentences",
    "translate",
    "write",
]
