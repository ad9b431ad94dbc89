"""`POST /v1/look`: what the page asks of a model, under the same bounds as everything else."""

from typing import Any

from triform.page.answers import answer
from triform.serve.beside import beside
from triform.serve.call import Call
from triform.serve.faults import Refusal, unavailable
from triform.serve.page import Posted, named

MOST = 8  # questions that may wait for their turn at one model


async def look(call: Call, posted: Posted) -> dict[str, Any]:
    """One at a time for a model, beside the event loop; never in the worker, which has others to serve.

    Whoever hangs up while waiting is never computed; a pass that has begun keeps its turn till it ends by itself.
    """
    if call.service.stopping:
        raise unavailable("stopping")
    lookers = call.service.lookers
    if posted.model and posted.model not in lookers:
        raise Refusal(f"the model {posted.model[:80]!r} is not served here", status=404, param="model")
    looker = named(lookers, posted.model)
    call.notes["model"] = looker.name
    waiting = call.service.looking
    if waiting[looker.name] >= MOST:
        raise unavailable("busy")
    turn = call.service.turns[looker.name]
    waiting[looker.name] += 1

    def ended() -> None:
        turn.release()
        waiting[looker.name] -= 1

    try:
        await turn.acquire()
    except BaseException:
        waiting[looker.name] -= 1
        raise
    return await beside(lambda: answer(looker, posted.ask), ended=ended)
