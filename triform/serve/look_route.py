"""`POST /v1/look`: what the page asks of a model, under the same bounds as everything else."""

from typing import Any

from triform.page.answer_requests import answer
from triform.serve.http.http_errors import Refusal, unavailable
from triform.serve.http.request_context import Call
from triform.serve.page_routes import Posted, named


async def look(call: Call, posted: Posted) -> dict[str, Any]:
    """One at a time for a model, beside the event loop; never in the worker, which has others to serve.

    Whoever hangs up while waiting is never computed; a pass that has begun keeps its turn till it ends by itself.
    """
    if call.service.stopping:
        raise unavailable("stopping")
    lookers = call.service.lookers
    if posted.model and posted.model not in lookers:
        raise Refusal(f"the model {posted.model[:80]!r} is not served here", status=404, param="model")
    if not posted.model and len(lookers) > 1:
        raise Refusal(f"several models are served; name one: {', '.join(lookers)}", param="model")
    looker = named(lookers, posted.model)
    call.notes["model"] = looker.name
    return await call.service.models[looker.name].lanes.views.run(lambda: answer(looker, posted.ask))
