"""A model of each form that reads words and has opinions, with a word that attacks every screen among them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from socket import create_server

import uvicorn
from tiny_models import enlarge_weights, word_tokenizer

from triform import families
from triform.core.initial_weights import build_network
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.page.export_html import render_file
from triform.page.requests import PageRun
from triform.page.session import InspectionSession
from triform.serve.http.connections import make_protocol
from triform.serve.http.limits import Limits
from triform.serve.page_routes import make_look_app
from triform.spec import ModelSpec
from triform.text.tokenizer import Tokenizer
from triform_lectures import page_lessons

HOSTILE = '</script><img/src=x/onerror="document.title=1">\u202e\u2066&amp;'
WORDS = ["the", "fat", "ginger", "cat", "sat", "on", "a", "mat", "mole", "sea", "lion", HOSTILE, "<mask>"]
SIZES = {"vocab": len(WORDS), "width": 16, "layers": 2, "heads": 4, "context": 2100}
SPECS: dict[str, ModelSpec] = {
    "encoder": families.bert(**SIZES),
    "decoder": families.llama(**SIZES, kv_heads=2),
    "encoder-decoder": families.vaswani(**SIZES),
}
FORMS = list(SPECS)
CHAPTERS = ("mask", "positions")
SPECS["long decoder"] = families.llama(**SIZES | {"context": 4096}, kv_heads=2)
TEXT = f"the fat ginger cat sat on {HOSTILE} a mat"
LONG = " ".join(WORDS[i * i % 11] for i in range(2000))
LONGEST = " ".join(WORDS[i * i % 11] for i in range(4096))


@cache
def words() -> Tokenizer:
    return word_tokenizer(WORDS, mask="<mask>")  # without an end: it writes on


@cache
def loaded(form: str) -> Model:
    return Model(
        SPECS[form],
        enlarge_weights(build_network(SPECS[form]), seed=3),
        words(),
        generation=GenerationDefaults(first=0),
    )


def looker(form: str) -> InspectionSession:
    return InspectionSession(f"tiny {form}", loaded(form))


def run(text: str = TEXT, **more: object) -> PageRun:
    return PageRun(text=text, **more)  # type: ignore[arg-type]


@cache
def page_of(form: str) -> str:
    """The page as one file, with two chapters of the lessons: the others are made alike, and take longer."""
    contents = [one for one in page_lessons.contents() if one["name"] in CHAPTERS]
    lessons = {"contents": contents, "chapters": {name: page_lessons.chapter(name) for name in CHAPTERS}}
    return render_file(looker(form), run(), lessons=lessons)


@contextmanager
def page_servers() -> Iterator[Callable[[str], str]]:
    """The address of a form's live page, on loopback; each is started when its address is first asked for."""
    running: dict[str, tuple[str, uvicorn.Server, threading.Thread]] = {}
    sockets = []

    def address(form: str) -> str:
        if form not in running:
            socket = create_server(("127.0.0.1", 0))
            sockets.append(socket)
            server = uvicorn.Server(
                uvicorn.Config(
                    make_look_app(looker(form), text=run().text),
                    http=make_protocol(Limits()),
                    log_level="error",
                    lifespan="off",
                )
            )
            thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
            thread.start()
            running[form] = (f"http://127.0.0.1:{socket.getsockname()[1]}/", server, thread)
        return running[form][0]

    yield address
    for _, server, thread in running.values():
        server.should_exit = True
        thread.join(timeout=10)
    for socket in sockets:
        socket.close()
