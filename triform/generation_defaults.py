"""How a model generates text by default: special tokens, sampling, beams, lengths.

Each field has our name and the name in `generation_config.json` (`weights/generation_config.py` reads and
writes that file).
"""

from typing import Any

import msgspec


def _field(theirs: str, default: Any = None) -> Any:
    return msgspec.field(default=default, name=theirs)


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Special tokens, and how the next token is chosen unless a request says otherwise."""

    bos: int | None = _field("bos_token_id")
    eos: int | tuple[int, ...] | None = _field("eos_token_id")
    pad: int | None = _field("pad_token_id")
    first: int | None = _field("decoder_start_token_id")  # the first token of the target of an encoder-decoder
    forced_first: int | None = _field("forced_bos_token_id")
    forced_last: int | tuple[int, ...] | None = _field("forced_eos_token_id")
    forbidden: tuple[tuple[int, ...], ...] | None = _field("bad_words_ids")
    suppressed: tuple[int, ...] | None = _field("suppress_tokens")
    suppressed_first: tuple[int, ...] | None = _field("begin_suppress_tokens")
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] | None = None
    stop: str | tuple[str, ...] | None = _field("stop_strings")

    sample: bool | None = _field("do_sample")
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical: float | None = _field("typical_p")
    epsilon: float | None = _field("epsilon_cutoff")
    eta: float | None = _field("eta_cutoff")
    repetition_penalty: float | None = None
    source_penalty: float | None = _field("encoder_repetition_penalty")
    no_repeat: int | None = _field("no_repeat_ngram_size")
    no_repeat_of_source: int | None = _field("encoder_no_repeat_ngram_size")
    renormalize: bool | None = _field("renormalize_logits")

    beams: int | None = _field("num_beams")
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    length_decay: tuple[int, float] | None = _field("exponential_decay_length_penalty")
    longest: int | None = _field("max_length")  # prompt included, as in `shortest`
    shortest: int | None = _field("min_length")
    most_new: int | None = _field("max_new_tokens")
    least_new: int | None = _field("min_new_tokens")

    unsupported: tuple[str, ...] = ()  # settings of the folder that are not supported: reported when text is generated

    @property
    def ends(self) -> tuple[int, ...]:
        """Every token that ends a text."""
        return _as_tuple(self.eos)

    @property
    def last(self) -> tuple[int, ...]:
        """Tokens of which one must end a text at the length limit."""
        return _as_tuple(self.forced_last)


def _as_tuple(ids: int | tuple[int, ...] | None) -> tuple[int, ...]:
    return () if ids is None else (ids,) if isinstance(ids, int) else ids
