"""One encoder that tags and classifies: a head for tokens whose labels are tags and, read at the first token, of texts.

labels = joint_labels(tagged, labelled)
examples = joint_examples(tagged, labelled, model=model)      for TokenLabels
"""

from collections.abc import Sequence

import numpy as np

from triform.data.chunks import split_chunks
from triform.data.rows import LabelledRow, TaggedRow
from triform.data.values import is_bio
from triform.errors import InputError
from triform.model import Model
from triform.tasks.classify import ClassifyTask
from triform.tasks.encoder_batches import split_into_windows
from triform.tasks.tag import TagTask, make_token_examples
from triform.train.examples import ExampleList, Examples
from triform.train.examples import TagExample as Example
from triform.train.objectives import IGNORED


def make_joint_labels(tagged: Sequence[TaggedRow], labelled: Sequence[LabelledRow]) -> tuple[str, ...]:
    """Tags first, then what a text can be."""
    of_texts = ClassifyTask().labels(labelled)
    if strange := [label for label in of_texts if is_bio(label)]:
        raise InputError(f"the label {strange[0]!r} of a text reads like a tag; give it another name")
    return (*TagTask().labels(tagged), *of_texts)


def make_joint_examples(
    tagged: Sequence[TaggedRow], labelled: Sequence[LabelledRow], *, model: Model
) -> Examples[Example]:
    """Rows of both kinds: tokens learn tags, the token before the text learns what the text is."""
    tokenizer = model.require_tokenizer()
    if tokenizer.cls is None:
        raise InputError("to classify and tag at once, texts must begin with a token of their own, as [CLS]")
    number = {label: at for at, label in enumerate(model.labels)}
    found = list(make_token_examples(tagged, model=model))
    for some in split_chunks([row for row in labelled if len(row.labels) == 1 and row.labels[0] in number]):
        for row, text in zip(some, split_into_windows([row.text for row in some], model=model), strict=True):
            for ids in text.ids:
                labels = np.full(len(ids), IGNORED, np.int32)
                labels[0] = number[row.labels[0]]
                found.append(Example(np.asarray(ids, np.int32), labels))
    if not found:
        raise InputError("there is nothing to learn: no row has labels that the model knows")
    return ExampleList(found, lengths=[len(each.ids) for each in found])
