"""Which tests touch which line of the package, and how long each takes: one run of the tests under coverage."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]


class Watcher:
    """A plugin: each test is a context of its own, its parameters left out."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.measured.switch_context(name_of(item.nodeid))
        yield
        self.measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[name_of(report.nodeid)] += report.duration


def name_of(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def main(out: str, *tests: str) -> int:
    measured = coverage.Coverage(source=[str(ROOT / "triform")], data_file=None, branch=False)
    watcher = Watcher(measured)
    measured.start()
    code = pytest.main(["-q", "-p", "no:xdist", "-p", "no:cacheprovider", *tests], plugins=[watcher])
    measured.stop()
    lines: dict[str, dict[int, list[str]]] = {}
    data = measured.get_data()
    for file in data.measured_files():
        by_line = data.contexts_by_lineno(file)
        lines[str(Path(file).relative_to(ROOT))] = {line: sorted(set(found) - {""}) for line, found in by_line.items()}
    Path(out).write_text(json.dumps({"seconds": watcher.seconds, "lines": lines}))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
