"""The small routes: what is served, whether it lives, what it counts, how a text is cut into tokens."""

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from triform.serve.answers import Health, ModelCard, ModelList, Tokenized
from triform.serve.asks import TokenizeAsk
from triform.serve.call import Call, cut
from triform.serve.faults import Refusal


async def health(call: Call) -> Health:
    """The process answers; that is all it says."""
    return Health("ok")


async def ready(call: Call) -> Health:
    if why := call.service.why_not_ready:
        raise Refusal(why, status=503, code="not_ready", wait=1)
    return Health("ok")


async def metrics(call: Call) -> Response:
    return Response(call.service.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def models(call: Call) -> ModelList:
    return ModelList(data=tuple(served.card for served in call.service.models.values()))


async def model(call: Call, name: str) -> ModelCard:
    return call.service.known(name).card


async def tokenize(call: Call, asked: TokenizeAsk) -> Tokenized:
    served = call.service.known(asked.model)
    tokenizer = served.model.words
    texts = [asked.text]
    (encoding,) = await cut(lambda: tokenizer.encode_many(texts, special=asked.special), texts=texts)
    return Tokenized(
        ids=encoding.ids,
        tokens=tuple(tokenizer.token_of(id) for id in encoding.ids),
        offsets=encoding.offsets,
        count=len(encoding.ids),
        context=served.model.spec.context,
    )
