"""How a model generates text unless a request says otherwise: special tokens, sampling, beams, lengths.

Each field has our name and, beside it, the one of `generation_config.json` (`weights/generation_config.py` reads and
writes that file).
"""

from typing import Any

import msgspec


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
    suppressed: tuple[int, ...] | None = _called("suppress_tokens")
    suppressed_first: tuple[int, ...] | None = _called("begin_suppress_tokens")
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] | None = None
    stop: str | tuple[str, ...] | None = _called("stop_strings")

    sample: bool | None = _called("do_sample")
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical: float | None = _called("typical_p")
    epsilon: float | None = _called("epsilon_cutoff")
    eta: float | None = _called("eta_cutoff")
    repetition_penalty: float | None = None
    source_penalty: float | None = _called("encoder_repetition_penalty")
    no_repeat: int | None = _called("no_repeat_ngram_size")
    no_repeat_of_source: int | None = _called("encoder_no_repeat_ngram_size")
    renormalize: bool | None = _called("renormalize_logits")

    beams: int | None = _called("num_beams")
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    length_decay: tuple[int, float] | None = _called("exponential_decay_length_penalty")
    longest: int | None = _called("max_length")  # with what the decoder has read, as `shortest`
    shortest: int | None = _called("min_length")
    most_new: int | None = _called("max_new_tokens")
    least_new: int | None = _called("min_new_tokens")

    unsupported: tuple[str, ...] = ()  # what the folder asks for and we cannot do: told when text is generated

    @property
    def ends(self) -> tuple[int, ...]:
        """Every token that ends a text."""
        return _each(self.eos)

    @property
    def last(self) -> tuple[int, ...]:
        """The tokens of which one must be the last that may be written."""
        return _each(self.forced_last)


def _each(ids: int | tuple[int, ...] | None) -> tuple[int, ...]:
    return () if ids is None else (ids,) if isinstance(ids, int) else ids
