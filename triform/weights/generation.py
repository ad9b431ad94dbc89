"""How a model likes to write: `generation_config.json`, and what older models say of it in config.json.

Each field has our name and, beside it, theirs; the same table reads and writes. Refuses to know how text is generated.
"""

from typing import Any

import msgspec

from triform.weights.config import Config
from triform.weights.errors import WeightsError, one_line


def _called(theirs: str, default: Any = None) -> Any:
    return msgspec.field(default=default, name=theirs)


class Generation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tokens begin, end and fill a text, and how the next one is chosen unless a person asks otherwise."""

    bos: int | None = _called("bos_token_id")
    eos: int | tuple[int, ...] | None = _called("eos_token_id")
    pad: int | None = _called("pad_token_id")
    first: int | None = _called("decoder_start_token_id")  # what the target of an encoder-decoder begins with
    forced_first: int | None = _called("forced_bos_token_id")
    forced_last: int | tuple[int, ...] | None = _called("forced_eos_token_id")
    forbidden: tuple[tuple[int, ...], ...] | None = _called("bad_words_ids")

    sample: bool | None = _called("do_sample")
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    no_repeat: int | None = _called("no_repeat_ngram_size")

    beams: int | None = _called("num_beams")
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    longest: int | None = _called("max_length")
    most_new: int | None = _called("max_new_tokens")

    @property
    def ends(self) -> tuple[int, ...]:
        """Every token that ends a text."""
        if self.eos is None:
            return ()
        return (self.eos,) if isinstance(self.eos, int) else self.eos


THEIRS = tuple(field.encode_name for field in msgspec.structs.fields(Generation))


def read(config: Config, generation: Config) -> Generation:
    """The newer file where it says something, config.json where it does not."""
    said = {name: place[name] for place in (config, generation) for name in THEIRS if place.get(name) is not None}
    try:
        return msgspec.convert(said, Generation)
    except msgspec.MsgspecError as error:
        raise WeightsError(f"generation_config.json: {one_line(error)}") from None


def write(generation: Generation) -> Config:
    said: Config = msgspec.to_builtins(generation)
    return said
