"""From the files of a model folder to a `Tokenizer`: which files there are decides the road.

Knows which family's recipe goes with which files. Refuses to guess: where files do not say enough, it asks for a
tokenizer.json, which says everything.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import tokenizers
from tokenizers import AddedToken, processors

from triform.files.whole_files import FileError, MiB, parse_json, parse_text, read_inside, refuse_duplicate_keys
from triform.text.build_tokenizer import byte_level, id_of, put_cls_sep, put_ends, word_piece
from triform.text.id_checks import ANY_ROWS, check_ids, refuse_many_words
from triform.text.marian_tokenizer import SOURCE, TARGET, VOCAB, Marian, book_of
from triform.text.panic_guard import TokenizerError, shield
from triform.text.sentencepiece import core_of, parse_pieces
from triform.text.special_tokens import Id, Said, add_tokens, give_roles
from triform.text.tokenizer import Tokenizer
from triform.text.tokenizer_limits import FILE_LIMIT, load_core

T = TypeVar("T")
Core: TypeAlias = tokenizers.Tokenizer
Files: TypeAlias = dict[str, bytes]
LIMIT = 16 * MiB  # of every file but tokenizer.json; the largest released vocabulary has 7 MB


class Road(NamedTuple):
    """Files that together make a tokenizer, how, and what is put around a text when its special tokens are known."""

    files: tuple[str, ...]
    build: Callable[[Files, Said, int], Core]  # the int: rows of the model's embedding
    surround: Callable[[Core, dict[str, str], Said], None]
    families: tuple[str, ...] = ()  # tokenizer classes that read these files so; () where the files say all


def read_tokenizer(folder: Path, *, rows: int | None = None) -> Tokenizer:
    """The first road whose files are all there; compared with a model that has so many rows, where one is given."""
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder")
    try:
        return _read_tokenizer(folder, rows=ANY_ROWS if rows is None else rows)
    except TokenizerError as error:
        raise TokenizerError(f"{folder}: {error}") from error


def _read_tokenizer(folder: Path, *, rows: int) -> Tokenizer:
    said = _read(folder, "tokenizer_config.json", type=Said, empty=Said())
    config = _read(folder, "tokenizer_config.json", type=dict[str, Any], empty={})
    road, files = _choose(folder, said)
    core = road.build(files, said, rows)
    add_tokens(core, said=said, older=_read(folder, "added_tokens.json", type=dict[str, Id], empty={}))
    special = give_roles(core, said=said, map=_read(folder, "special_tokens_map.json", type=Said, empty=Said()))
    if SOURCE in files:
        tokenizer: Tokenizer = Marian(core, special=special, config=config, files=files)
    else:
        road.surround(core, special, said)
        if road.files[0].endswith(".model"):
            config.pop("tokenizer_class", None)  # the class would build its own from a .model file that has gone
        tokenizer = Tokenizer(core, special=special, config=config)
    if rows < ANY_ROWS:
        check_ids(tokenizer, rows=rows, what=VOCAB if SOURCE in files else road.files[0])
    return tokenizer


def _read(folder: Path, name: str, *, type: type[T], empty: T) -> T:
    data = read_inside(folder, name=name, limit=LIMIT)
    if data is None:
        return empty
    value = parse_json(data, type=type, what=folder / name)
    refuse_duplicate_keys(data, what=folder / name)
    return value


def _choose(folder: Path, said: Said) -> tuple[Road, Files]:
    family = (said.tokenizer_class or "").removesuffix("Fast").removesuffix("Tokenizer")
    for road in ROADS:
        limit = FILE_LIMIT if road.families == () else LIMIT
        found = {name: read_inside(folder, name=name, limit=limit) for name in road.files}
        files = {name: data for name, data in found.items() if data is not None}
        if len(files) < len(road.files):
            continue
        if road.families and family not in (*road.families, "", "PreTrained", "TokenizersBackend"):
            raise TokenizerError(
                f"how a {said.tokenizer_class} reads {' + '.join(files)} is not known here (known: "
                f"{', '.join(road.families)}); bring a tokenizer.json, which says it all"
            )
        return road, files
    raise TokenizerError(f"no tokenizer here: looked for {', '.join(' + '.join(road.files) for road in ROADS)}")


# --- tokenizer.json -----------------------------------------------------------------------------------------------


def _from_json(files: Files, said: Said, rows: int) -> Core:
    return load_core(files["tokenizer.json"], what="tokenizer.json", rows=rows)


def _as_said(core: Core, special: dict[str, str], said: Said) -> None:
    """tokenizer.json has its own frame, unless the config says which ends to add."""
    if said.add_bos_token is not None or said.add_eos_token is not None:
        put_ends(
            core,
            bos=special.get("bos") if said.add_bos_token else None,
            eos=special.get("eos") if said.add_eos_token else None,
        )


# --- SentencePiece ------------------------------------------------------------------------------------------------


def _from_marian(files: Files, said: Said, rows: int) -> Core:
    if said.separate_vocabs:
        raise TokenizerError(
            "a Marian folder with separate_vocabs is not known here, only one vocab.json for both sides"
        )
    vocab = parse_json(files[VOCAB], type=dict[str, Id], what=VOCAB)
    refuse_many_words(len(vocab), rows=rows, what=VOCAB)
    return book_of(vocab)


def _from_llama(files: Files, said: Said, rows: int) -> Core:
    (name,) = files
    model = parse_pieces(files[name], what=name)
    refuse_many_words(len(model.pieces), rows=rows, what=name)
    return core_of(model, what=name)


def _from_t5(files: Files, said: Said, rows: int) -> Core:
    """T5 numbers its sentinels after the pieces, backwards: the last id is <extra_id_0>."""
    core = _from_llama(files, said, rows)
    count = 100 if said.extra_ids is None else said.extra_ids
    with shield("adding sentinels"):
        core.add_special_tokens([AddedToken(f"<extra_id_{n}>", normalized=False) for n in reversed(range(count))])
    return core


def _llama_ends(core: Core, special: dict[str, str], said: Said) -> None:
    put_ends(
        core,
        bos=None if said.add_bos_token is False else special.get("bos"),
        eos=special.get("eos") if said.add_eos_token else None,
    )


def _t5_ends(core: Core, special: dict[str, str], said: Said) -> None:
    put_ends(core, eos=special.get("eos"))


# --- GPT-2, RoBERTa, BART, Qwen: vocab.json + merges.txt ----------------------------------------------------------


def _from_merges(files: Files, said: Said, rows: int) -> Core:
    vocab = parse_json(files["vocab.json"], type=dict[str, Id], what="vocab.json")
    refuse_many_words(len(vocab), rows=rows, what="vocab.json")
    lines = parse_text(files["merges.txt"], what="merges.txt").split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    merges = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
    if len(merges) < len(pairs):
        raise TokenizerError("merges.txt: every line must be two tokens with a space between")
    qwen = (said.tokenizer_class or "").startswith("Qwen2")
    core = byte_level(vocab, merges=merges, split="qwen2" if qwen else "gpt2", prefix_space=bool(said.add_prefix_space))
    if "<mask>" in vocab:  # RoBERTa and BART were trained with a mask that takes the space before it
        core.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return core


def _roberta_ends(core: Core, special: dict[str, str], said: Said) -> None:
    if "cls" in special and "sep" in special:
        sep, cls = ((special[role], id_of(core, token=special[role])) for role in ("sep", "cls"))
        core.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=bool(said.add_prefix_space))
    else:
        _as_said(core, special, said)


# --- BERT: vocab.txt ----------------------------------------------------------------------------------------------


def _from_vocab_txt(files: Files, said: Said, rows: int) -> Core:
    lines = parse_text(files["vocab.txt"], what="vocab.txt").removesuffix("\n").split("\n")
    refuse_many_words(len(lines), rows=rows, what="vocab.txt")
    return word_piece(
        {line.rstrip(): id for id, line in enumerate(lines)},
        unk=said.unk_token if isinstance(said.unk_token, str) else "[UNK]",
        lower=said.do_lower_case is not False,
        strip_accents=said.strip_accents,
        chinese=said.tokenize_chinese_chars is not False,
    )


def _bert_ends(core: Core, special: dict[str, str], said: Said) -> None:
    if "cls" not in special or "sep" not in special:
        raise TokenizerError("vocab.txt without [CLS] and [SEP] is not the vocabulary of a BERT")
    put_cls_sep(core, cls=special["cls"], sep=special["sep"])


ROADS = (
    Road(("tokenizer.json",), _from_json, _as_said),
    Road((SOURCE, TARGET, VOCAB), _from_marian, _as_said, ("Marian",)),
    Road(("spiece.model",), _from_t5, _t5_ends, ("T5", "MT5")),
    Road(("tokenizer.model",), _from_llama, _llama_ends, ("Llama",)),
    Road(("vocab.json", "merges.txt"), _from_merges, _roberta_ends, ("GPT2", "Roberta", "Bart", "Qwen2")),
    Road(("vocab.txt",), _from_vocab_txt, _bert_ends, ("Bert", "DistilBert")),
)
