"""The small routes: the models, health, metrics, and how a text is tokenized."""

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from triform.model import Model
from triform.serve.http.http_errors import RequestError
from triform.serve.http.limits import Limits
from triform.serve.http.request_context import RequestContext, refuse_if_long, refuse_if_surely_long
from triform.serve.openai.request_types import TokenizeAsk
from triform.serve.openai.response_types import Health, ModelCard, ModelList, Tokenized
from triform.serve.prechecks import refuse_in_pieces


async def health(call: RequestContext) -> Health:
    """The process answers; nothing more is checked."""
    return Health("ok")


async def ready(call: RequestContext) -> Health:
    if why := call.service.why_not_ready:
        raise RequestError(why, status=503, code="not_ready", wait=1)
    return Health("ok")


async def metrics(call: RequestContext) -> Response:
    return Response(call.service.metrics.render_text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def models(call: RequestContext) -> ModelList:
    return ModelList(data=tuple(served.card for served in call.service.models.values()))


async def model(call: RequestContext, name: str) -> ModelCard:
    return call.service.find_model(name).card


async def tokenize(call: RequestContext, asked: TokenizeAsk) -> Response:
    """A `Tokenized`, made outside the event loop."""
    served, limits = call.service.find_model(asked.model), call.service.limits
    model = served.model
    call.notes["model"] = asked.model
    most = limits.prompt_tokens
    refuse_if_surely_long(
        asked.text, model.require_tokenizer(), param="text", limit_text=f"at most {most:,} are accepted", most=most
    )
    body = await served.queues.tokenized.run(lambda: tokenize_text(asked, model, limits))
    return Response(body, media_type="application/json")


def tokenize_text(asked: TokenizeAsk, model: Model, limits: Limits) -> bytes:
    """The tokens of a text, with their places in it."""
    tokenizer = model.require_tokenizer()
    refuse_in_pieces([asked.text], tokenizer, most=limits.prompt_tokens)
    (encoding,) = tokenizer.encode_many([asked.text], special=asked.special)
    refuse_if_long(len(encoding.ids), most=limits.prompt_tokens)
    found = Tokenized(
        ids=encoding.ids,
        tokens=tuple(tokenizer.token_of(id) for id in encoding.ids),
        offsets=encoding.offsets,
        count=len(encoding.ids),
        context=model.spec.context,
    )
    return msgspec.json.encode(found)
