"""Looking: one head of a GPT-2-small-shaped model over 512 tokens, and how soon the page of a small model is there.

Each time is of a new text, so that nothing was kept from before. `.venv/bin/python -m bench.look`
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socket import create_server
from threading import Thread
from typing import Any

from bench.harness import Claim, limits, report

TOKENS, ROUNDS = 512, 7
LAYER, HEAD = 5, 2
CHROMIUM = os.environ.get("TRIFORM_CHROMIUM") or shutil.which("chromium")


def main() -> None:
    claims = [*heads(), *page()]
    report("look", [], limits(), claims=claims)


def heads() -> Iterator[Claim]:
    """By the library (a whole pass, logits included), and by all that the page's view of it asks."""
    import torch

    from triform import families
    from triform.core.initial_weights import build_network
    from triform.inspect.view import look
    from triform.model import Model
    from triform.page import requests
    from triform.page.answer_requests import answer_request
    from triform.page.session import InspectionSession

    torch.set_num_threads(2)
    spec = families.gpt2()
    model = Model(spec, build_network(spec))
    looker = InspectionSession("gpt2", model)
    texts = [[(7 * i + 31 * turn) % spec.vocab for i in range(TOKENS)] for turn in range(ROUNDS + 1)]

    def library(ids: list[int]) -> object:
        return look(model, ids).attention(LAYER, HEAD)

    def view(ids: list[int]) -> object:
        where: dict[str, Any] = {
            "run": requests.PageRun(text=" ".join(map(str, ids))),
            "stack": "decoder",
            "kind": "self",
            "layer": LAYER,
        }
        window: dict[str, Any] = {"queries": (0, 32), "keys": (0, 32)}
        answer_request(looker, requests.HeadsRequest(**where, **window))
        answer_request(looker, requests.FormulaRequest(**where, head=HEAD, **window))
        return answer_request(looker, requests.OverviewRequest(**where, head=HEAD))

    for name, does in {"the library": library, "the page's attention view": view}.items():
        yield claim(f"one head of GPT-2 small, {TOKENS} tokens, asked by {name}", 2.0, does, texts)


def claim(what: str, most: float, does: Callable[[Any], object], given: list[Any]) -> Claim:
    seconds = []
    for one in given:
        began = time.perf_counter()
        does(one)
        seconds.append(time.perf_counter() - began)
    kept = sorted(seconds[1:])  # the first warms up
    return Claim(what, statistics.median(kept), most, {"best": kept[0], "worst": kept[-1]})


# --- the page -------------------------------------------------------------------------------------------------------


def page() -> Iterator[Claim]:
    """First paint, and the first view drawn, of a small decoder's page on loopback, in a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("without playwright there is no first paint to measure")
        return
    with served() as address, sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        times = [opened(browser, address) for _ in range(ROUNDS + 1)][1:]
        browser.close()
    for at, name in enumerate(("first paint", "first view drawn")):
        each = sorted(one[at] for one in times)
        points = {"best": each[0], "worst": each[-1]}
        yield Claim(f"{name} of a small model's page", statistics.median(each), 1.0, points)


def opened(browser: Any, address: str) -> tuple[float, float]:
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(address)
    tab.wait_for_function("() => document.getElementById('view').dataset.shown")
    drawn = tab.evaluate("performance.now()") / 1000
    paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0") / 1000
    context.close()
    return paint, drawn


@contextmanager
def served() -> Iterator[str]:
    import uvicorn

    from triform import families
    from triform.core.initial_weights import build_network
    from triform.model import Model
    from triform.page.session import InspectionSession
    from triform.serve.page_routes import make_look_app

    spec = families.gpt2(vocab=2000, width=128, layers=4, heads=4, context=256)
    socket = create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        make_look_app(InspectionSession("small", Model(spec, build_network(spec)))), log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{socket.getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=10)
    socket.close()


if __name__ == "__main__":
    main()
