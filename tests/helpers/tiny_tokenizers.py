"""Tiny tokenizer files of every kind, as a person would bring them, without a network."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The fat ginger cat sat on a mat, and the lion did not.",
    "Apple sells a phone; an apple is a fruit. Don't they know 1234567890 (100%)?",
    "Grüße aus Köln: die Straße ist schön, das Mädchen läuft.",
    "naïve café déjà vu ¡hola! ¿qué tal? über Ärger",
    "The mole digs. A mole of gas. She has a mole on her cheek!",
    "def f(x):\n    return x + 1  # code\n\n\n",
    "aaaa bbbb abab ---- ==== ........",
] * 4


def hard_texts() -> st.SearchStrategy[str]:
    """Words of the corpus, white space of all sorts, accents, composed and decomposed, signs, and any other text."""
    words = st.sampled_from(sorted({word for line in CORPUS for word in line.split()}))
    odd = st.sampled_from(
        [
            " ",
            "  ",
            "\n",
            "\t",
            "\u00a0",
            "\u2581",
            "\u200b",
            "é",
            "e\u0301",
            "ﬁ",
            "Ａ",
            "中文",
            "🙂",
            "👩‍👩‍👧",
            "\x00",
            "\ufffd",
        ]
    )
    return st.lists(words | odd | st.text(max_size=4), max_size=12).map(
        lambda parts: "".join(parts) if len(parts) % 2 else " ".join(parts)
    )


def put(folder: Path, **files: object) -> Path:
    """Writes files named with `__` for the dot; what is not bytes or text becomes JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = (
            content
            if isinstance(content, bytes)
            else (content if isinstance(content, str) else json.dumps(content)).encode()
        )
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def train_bpe(
    *, special: list[str], pre: pre_tokenizers.PreTokenizer | None = None
) -> tuple[dict[str, int], list[list[str]]]:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    model = json.loads(core.to_str())["model"]
    return model["vocab"], model["merges"]


def merges_txt(merges: list[list[str]]) -> str:
    return "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges) + "\n"


def spm(**options: object) -> bytes:
    sentencepiece = pytest.importorskip("sentencepiece")
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=out, minloglevel=2, hard_vocab_limit=False, **options
    )
    return out.getvalue()


def word_piece_vocab(*, lower: bool) -> str:
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=lower)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    core.train_from_iterator(
        CORPUS[:5], trainers.WordPieceTrainer(vocab_size=250, special_tokens=special, show_progress=False)
    )
    return "".join(token + "\n" for token, _ in sorted(core.get_vocab().items(), key=lambda item: item[1]))


def marian_vocab(source: bytes, target: bytes) -> dict[str, int]:
    """One list for both sides, in another order than either, and without some pieces of each."""
    import sentencepiece

    names: list[str] = []
    for data in (target, source):
        side = sentencepiece.SentencePieceProcessor(model_proto=data)
        names += [side.id_to_piece(id) for id in range(3, side.get_piece_size()) if id % 17]
    every = ["</s>", "<unk>", *dict.fromkeys(names), ">>deu<<", "<pad>"]
    return {name: id for id, name in enumerate(every)}


def spelled_alike(text: str) -> bool:
    """Control and byte pieces written out in a text are tokens to the library, and letters to SentencePiece.
    Repeated letters have several spellings of one score, between which the rounding of floats decides."""
    return not any(mark in text for mark in ("<", "aaa", "bbb", "---", "===", "..."))


def make_folders(root: Path) -> dict[str, Path]:
    """A folder for each road, by its name."""
    vocab, merges = train_bpe(special=["<|endoftext|>"])
    gpt2 = put(root / "gpt2", vocab__json=vocab, merges__txt=merges_txt(merges))
    qwen2 = put(
        root / "qwen2",
        vocab__json=vocab,
        merges__txt=merges_txt(merges),
        tokenizer_config__json={
            "tokenizer_class": "Qwen2Tokenizer",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "bos_token": None,
            "unk_token": None,
            "added_tokens_decoder": {
                str(len(vocab)): {"content": "<|im_start|>", "special": True},
                str(len(vocab) + 1): {"content": "<|im_end|>", "special": True},
            },
        },
    )
    vocab, merges = train_bpe(special=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    roberta = put(root / "roberta", vocab__json=vocab, merges__txt=merges_txt(merges))
    bert = put(root / "bert", vocab__txt=word_piece_vocab(lower=True))
    cased = put(
        root / "cased",
        vocab__txt=word_piece_vocab(lower=False),
        tokenizer_config__json={"do_lower_case": False, "tokenizer_class": "BertTokenizer"},
    )
    llama = put(
        root / "llama",
        tokenizer__model=spm(
            model_type="bpe",
            vocab_size=500,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
        ),
    )
    t5 = put(
        root / "t5", spiece__model=spm(model_type="unigram", vocab_size=200, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    )
    source, target = (
        spm(model_type="unigram", vocab_size=150),
        spm(model_type="unigram", vocab_size=130, character_coverage=0.98),
    )
    marian = put(root / "marian", source__spm=source, target__spm=target, vocab__json=marian_vocab(source, target))
    return {path.name: path for path in (gpt2, qwen2, roberta, bert, cased, llama, t5, marian)}
