"""From the files of a model folder to a `Tokenizer`: the files that are there decide the format.

Knows which recipe of a family goes with which files. Never guesses: where the files do not say enough, the error asks
for a tokenizer.json, which says everything.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import tokenizers
from tokenizers import AddedToken, processors

from triform.files.errors import FileError
from triform.files.safe_folder import MiB, read_inside
from triform.files.strict_json import parse_json, parse_text
from triform.text.build_tokenizer import add_cls_sep, add_ends, build_byte_level, build_word_piece, require_id
from triform.text.m2m_tokenizer import PIECES, M2M100Tokenizer, build_m2m_vocabulary
from triform.text.marian_tokenizer import SOURCE, TARGET, VOCAB, MarianTokenizer, build_vocabulary
from triform.text.panic_guard import TokenizerError, guard_library
from triform.text.sentencepiece import build_from_pieces, parse_pieces
from triform.text.special_tokens import Id, TokenizerConfig, add_tokens, assign_roles
from triform.text.tokenizer import Tokenizer
from triform.text.tokenizer_limits import ANY_ROWS, MAX_FILE_BYTES, check_ids, load_tokenizer_json, refuse_many_words

T = TypeVar("T")
Core: TypeAlias = tokenizers.Tokenizer
Files: TypeAlias = dict[str, bytes]
MAX_OTHER_FILE_BYTES = 16 * MiB  # every file except tokenizer.json; the largest released vocabulary has 7 MB


class TokenizerFormat(NamedTuple):
    """The files of a format, how they are built into a tokenizer, and how special tokens are put around a text."""

    files: tuple[str, ...]
    build: Callable[[Files, TokenizerConfig, int], Core]  # the int: rows of the model's embedding
    surround: Callable[[Core, dict[str, str], TokenizerConfig], None]
    families: tuple[str, ...] = ()  # tokenizer classes that read the files this way; () if the files say everything


def read_tokenizer(folder: Path, *, rows: int | None = None) -> Tokenizer:
    """By the first format whose files are all there; with `rows`, ids must be below the rows of the embedding."""
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder")
    try:
        return _read_tokenizer(folder, rows=ANY_ROWS if rows is None else rows)
    except TokenizerError as error:
        raise TokenizerError(f"{folder}: {error}") from error


def _read_tokenizer(folder: Path, *, rows: int) -> Tokenizer:
    config = _read(folder, "tokenizer_config.json", type=TokenizerConfig, empty=TokenizerConfig())
    fields = _read(folder, "tokenizer_config.json", type=dict[str, Any], empty={})
    format, files = _choose(folder, config)
    core = format.build(files, config, rows)
    add_tokens(core, config=config, older=_read(folder, "added_tokens.json", type=dict[str, Id], empty={}))
    tokens_map = _read(folder, "special_tokens_map.json", type=TokenizerConfig, empty=TokenizerConfig())
    special = assign_roles(core, config=config, tokens_map=tokens_map)
    if SOURCE in files:
        tokenizer: Tokenizer = MarianTokenizer(core, special=special, config=fields, files=files)
    elif PIECES in files:
        tokenizer = M2M100Tokenizer(core, special=special, config=fields, files=files)
    else:
        format.surround(core, special, config)
        if format.files[0].endswith(".model"):
            fields.pop("tokenizer_class", None)  # the class would look for the .model file, which is not saved
        tokenizer = Tokenizer(core, special=special, config=fields)
    if rows < ANY_ROWS:
        check_ids(tokenizer, rows=rows, what=VOCAB if VOCAB in files else format.files[0])
    return tokenizer


def _read(folder: Path, name: str, *, type: type[T], empty: T) -> T:
    data = read_inside(folder, name=name, limit=MAX_OTHER_FILE_BYTES)
    return empty if data is None else parse_json(data, type=type, what=folder / name, unique_keys=True)


def _choose(folder: Path, config: TokenizerConfig) -> tuple[TokenizerFormat, Files]:
    family = (config.tokenizer_class or "").removesuffix("Fast").removesuffix("Tokenizer")
    for format in FORMATS:
        limit = MAX_OTHER_FILE_BYTES if format.families else MAX_FILE_BYTES
        contents = {name: read_inside(folder, name=name, limit=limit) for name in format.files}
        files = {name: data for name, data in contents.items() if data is not None}
        if len(files) < len(format.files):
            continue
        if format.families and family not in (*format.families, "", "PreTrained", "TokenizersBackend"):
            raise TokenizerError(
                f"reading {' + '.join(files)} as a {config.tokenizer_class} is not supported (supported: "
                f"{', '.join(format.families)}); add a tokenizer.json to the folder"
            )
        return format, files
    looked_for = ", ".join(" + ".join(format.files) for format in FORMATS)
    raise TokenizerError(f"the folder has no tokenizer: looked for {looked_for}")


# --- tokenizer.json -----------------------------------------------------------------------------------------------


def _load_json(files: Files, config: TokenizerConfig, rows: int) -> Core:
    return load_tokenizer_json(files["tokenizer.json"], what="tokenizer.json", rows=rows)


def _add_configured_ends(core: Core, special: dict[str, str], config: TokenizerConfig) -> None:
    """tokenizer.json says itself what is put around a text, unless the config names the ends to add."""
    if config.add_bos_token is not None or config.add_eos_token is not None:
        add_ends(
            core,
            bos=special.get("bos") if config.add_bos_token else None,
            eos=special.get("eos") if config.add_eos_token else None,
        )


# --- SentencePiece ------------------------------------------------------------------------------------------------


def _load_marian(files: Files, config: TokenizerConfig, rows: int) -> Core:
    if config.separate_vocabs:
        raise TokenizerError(
            "a Marian folder with separate_vocabs is not supported, only one vocab.json for both sides"
        )
    vocab = parse_json(files[VOCAB], type=dict[str, Id], what=VOCAB)
    refuse_many_words(len(vocab), rows=rows, what=VOCAB)
    return build_vocabulary(vocab)


def _load_m2m(files: Files, config: TokenizerConfig, rows: int) -> Core:
    vocab = parse_json(files[VOCAB], type=dict[str, Id], what=VOCAB)
    refuse_many_words(len(vocab), rows=rows, what=VOCAB)
    return build_m2m_vocabulary(vocab)


def _load_llama(files: Files, config: TokenizerConfig, rows: int) -> Core:
    (name,) = files
    model = parse_pieces(files[name], what=name)
    refuse_many_words(len(model.pieces), rows=rows, what=name)
    return build_from_pieces(model, what=name)


def _load_t5(files: Files, config: TokenizerConfig, rows: int) -> Core:
    """T5 numbers its sentinel tokens after the pieces, backwards: the last id is <extra_id_0>."""
    core = _load_llama(files, config, rows)
    count = 100 if config.extra_ids is None else config.extra_ids
    with guard_library("adding sentinels"):
        core.add_special_tokens([AddedToken(f"<extra_id_{n}>", normalized=False) for n in reversed(range(count))])
    return core


def _add_llama_ends(core: Core, special: dict[str, str], config: TokenizerConfig) -> None:
    add_ends(
        core,
        bos=None if config.add_bos_token is False else special.get("bos"),
        eos=special.get("eos") if config.add_eos_token else None,
    )


def _add_t5_ends(core: Core, special: dict[str, str], config: TokenizerConfig) -> None:
    add_ends(core, eos=special.get("eos"))


# --- GPT-2, RoBERTa, BART, Qwen: vocab.json + merges.txt ----------------------------------------------------------


def _load_merges(files: Files, config: TokenizerConfig, rows: int) -> Core:
    vocab = parse_json(files["vocab.json"], type=dict[str, Id], what="vocab.json")
    refuse_many_words(len(vocab), rows=rows, what="vocab.json")
    lines = parse_text(files["merges.txt"], what="merges.txt").split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    merges = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
    if len(merges) < len(pairs):
        raise TokenizerError("merges.txt: every line must be two tokens with a space between")
    qwen = (config.tokenizer_class or "").startswith("Qwen2")
    core = build_byte_level(
        vocab, merges=merges, split="qwen2" if qwen else "gpt2", prefix_space=bool(config.add_prefix_space)
    )
    if "<mask>" in vocab:  # the mask of RoBERTa and BART includes the space before it
        core.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return core


def _add_roberta_ends(core: Core, special: dict[str, str], config: TokenizerConfig) -> None:
    if "cls" in special and "sep" in special:
        sep, cls = ((special[role], require_id(core, token=special[role])) for role in ("sep", "cls"))
        core.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=bool(config.add_prefix_space))
    else:
        _add_configured_ends(core, special, config)


# --- BERT: vocab.txt ----------------------------------------------------------------------------------------------


def _load_vocab_txt(files: Files, config: TokenizerConfig, rows: int) -> Core:
    lines = parse_text(files["vocab.txt"], what="vocab.txt").removesuffix("\n").split("\n")
    refuse_many_words(len(lines), rows=rows, what="vocab.txt")
    return build_word_piece(
        {line.rstrip(): id for id, line in enumerate(lines)},
        unk=config.unk_token if isinstance(config.unk_token, str) else "[UNK]",
        lower=config.do_lower_case is not False,
        strip_accents=config.strip_accents,
        chinese=config.tokenize_chinese_chars is not False,
    )


def _add_bert_ends(core: Core, special: dict[str, str], config: TokenizerConfig) -> None:
    if "cls" not in special or "sep" not in special:
        raise TokenizerError("vocab.txt has no [CLS] and [SEP]: it is not a BERT vocabulary")
    add_cls_sep(core, cls=special["cls"], sep=special["sep"])


FORMATS = (
    TokenizerFormat(("tokenizer.json",), _load_json, _add_configured_ends),
    TokenizerFormat((SOURCE, TARGET, VOCAB), _load_marian, _add_configured_ends, ("Marian",)),
    TokenizerFormat((PIECES, VOCAB), _load_m2m, _add_configured_ends, ("M2M100",)),
    TokenizerFormat(("spiece.model",), _load_t5, _add_t5_ends, ("T5", "MT5")),
    TokenizerFormat(("tokenizer.model",), _load_llama, _add_llama_ends, ("Llama",)),
    TokenizerFormat(
        ("vocab.json", "merges.txt"), _load_merges, _add_roberta_ends, ("GPT2", "Roberta", "Bart", "Qwen2")
    ),
    TokenizerFormat(("vocab.txt",), _load_vocab_txt, _add_bert_ends, ("Bert", "DistilBert")),
)
