"""The soak itself: its oracle knows every route and notices a wrong answer, and a short run of it holds."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served_models import TEXTS, all_models, run, serving
from soak_bad_requests import expect_refusal
from soak_cases import Oracle, expect, vectors_in, written_in
from soak_report import MORE, MiB, Report, Sample, floors, slope_of
from soak_server import Counts
from soak_traffic import error_code

from triform.serve.http.docs_page import DOCS_ROUTES
from triform.serve.routes import ROUTES
from triform.tasks import vector_index

HERE = Path(__file__).parent
FEW = "reset in mid-answer,worker exception,disk full,clock step"


def stream(*events: Any) -> httpx2.Response:
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=text)


def piece(text: str, ids: list[int], reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "token_ids": ids, "finish_reason": reason}]}


def test_a_wrong_text_is_noticed_whole_or_streamed() -> None:
    judge = expect([("the cat", [1, 2], "stop")], written_in)
    assert not judge(httpx2.Response(200, json=piece("the cat", [1, 2], "stop")))
    assert not judge(stream(piece("the ", [1]), piece("cat", [2], "stop")))
    assert judge(stream(piece("the ", [1]), piece("cap", [2], "stop")))
    assert judge(stream(piece("the ", [1]), piece("cat", [3], "stop")))
    assert judge(stream(piece("the ", [1]), piece("cat", [2])))
    assert judge(httpx2.Response(200, headers={"content-type": "text/event-stream"}, text='data: {"choices": []}\n\n'))
    assert judge(httpx2.Response(500, json={}))


def test_numbers_are_compared_to_rounding() -> None:
    judge = expect([[0.5, 0.25]], vectors_in)
    assert not judge(httpx2.Response(200, json={"data": [{"embedding": [0.500001, 0.25]}]}))
    assert judge(httpx2.Response(200, json={"data": [{"embedding": [0.501, 0.25]}]}))
    assert judge(httpx2.Response(200, json={"data": []}))


def test_a_refusal_has_its_status_and_its_shape() -> None:
    error = {"message": "no", "type": "invalid_request_error", "param": None, "code": "busy"}
    assert not expect_refusal(400)(httpx2.Response(400, json={"error": error}))
    assert expect_refusal(400)(httpx2.Response(404, json={"error": error}))
    assert expect_refusal(400)(httpx2.Response(400, text="no"))
    assert error_code(httpx2.Response(400, json={"error": error})) == "busy"
    assert error_code(stream(piece("the", [1]), {"error": error})) == "busy"
    assert error_code(stream(piece("the", [1], "stop"))) is None


def test_the_slope_is_that_of_the_floors() -> None:
    """A fault that takes memory for a while does not count, what is never given back does."""
    grown = [Sample(second, 100 * MiB + second * MiB // 60 + (second % 60 > 5) * 50 * MiB) for second in range(3600)]
    assert slope_of(floors(grown, bucket=60)) == pytest.approx(60, abs=0.1)
    assert slope_of(grown[:2]) is None


def report_of(**changed: Any) -> Report:
    counts = Counts(100 * MiB, 15, 14, 2)
    held: dict[str, Any] = {
        "seed": 1, "seconds": 7200.0, "requests": {}, "refused": {}, "reconnects": 0, "faults": {}, "wrong": 0,
        "hangs": 0, "examples": [], "slope": 0.5, "slope_seconds": 6000.0, "rss_start": 100 * MiB,
        "rss_end": 101 * MiB, "counts_start": counts, "counts_end": counts, "log_events": {}, "log_lines": [],
        "exit_code": 0,
    }  # fmt: skip
    report = Report(**(held | changed), failures=[])
    report.judge()
    return report


@pytest.mark.parametrize(
    "changed",
    [
        {"wrong": 1},
        {"hangs": 1},
        {"slope": 1.1},
        {"slope_seconds": 60.0, "rss_end": 200 * MiB},
        {"exit_code": 1},
        {"exit_code": None},
        *({"counts_end": Counts(0, 15, 14, 2)._replace(**{name: 100})} for name in MORE),
    ],
    ids=str,
)
def test_each_thing_that_does_not_hold_fails_the_soak(changed: dict[str, Any]) -> None:
    assert not report_of().failures
    assert len(report_of(**changed).failures) == 1


def test_the_oracle_draws_every_route_and_agrees_with_the_service(tmp_path: Path) -> None:
    """What is new on the table of routes is missing here until it has an oracle."""
    models, texts = all_models(), [json.dumps({"text": text}) for text in sorted(set(TEXTS))]
    (tmp_path / "texts.jsonl").write_text("\n".join(texts))
    vector_index.build_index(
        [str(tmp_path / "texts.jsonl")], model=models["embed"], name="embed", out=tmp_path / "index"
    )
    oracle = Oracle(tmp_path / "index")
    assert {f"{route.method} {route.path}" for route in (*ROUTES, *DOCS_ROUTES)} <= oracle.drawers.keys()

    async def ask() -> None:
        async with serving(models) as (_, client):
            for route in ("POST /v1/responses", "POST /v1/messages", "POST /v1/messages/count_tokens"):
                for seed in range(4):
                    case = oracle.draw_of(route, random.Random(seed))
                    assert not case.find_fault(await client.post(case.path, json=case.body)), case

    run(ask())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files are counted in /proc")
def test_a_short_soak_holds() -> None:
    """Twenty seconds of traffic and a few faults; every route is asked, and nothing is wrong."""
    given = ["--minutes", "0.33", "--every", "4", "--hold", "1", "--clients", "3", "--faults", FEW, "--json"]
    done = subprocess.run([sys.executable, HERE / "run.py", *given], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert {f"{route.method} {route.path}" for route in (*ROUTES, *DOCS_ROUTES)} <= report["requests"].keys()
    assert sum(report["faults"].values()) > 0
