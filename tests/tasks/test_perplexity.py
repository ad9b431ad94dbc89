"""Perplexity as papers mean it, held against the reference implementation's own loss."""

import json
import math
from pathlib import Path

import pytest
import torch
from tiny_tokenizers import make_folders

from triform.core.initial_weights import build_network
from triform.data.rows import DocumentRow
from triform.families import gpt2, llama
from triform.model import Model
from triform.tasks import get_task
from triform.tasks.perplexity import get_start_tokens
from triform.text.tokenizer import Tokenizer
from triform.weights import model_folder

TEXTS = ["The fat ginger cat sat on a mat.", "Grüße aus Köln: die Straße ist schön.", "A mole of gas."]
CONTEXT = 128


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("tokenizers"))


def decoder(tokenizer: Tokenizer, family: str) -> Model:
    make = {"gpt2": gpt2, "llama": llama}[family]
    spec = make(vocab=tokenizer.vocab, width=16, layers=2, heads=2, context=CONTEXT)
    return Model(spec=spec, network=build_network(spec, seed=3), tokenizer=tokenizer)


@pytest.mark.parametrize(("name", "starts"), [("gpt2", "<|endoftext|>"), ("qwen2", "<|endoftext|>"), ("llama", "<s>")])
def test_perplexity_is_that_of_the_reference(
    name: str, starts: str, tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    """By hand: the loss of the text's own tokens behind the start token, which itself is not predicted."""
    transformers = pytest.importorskip("transformers")
    model = decoder(Tokenizer.read(tokenizers[name]), "llama" if name == "llama" else "gpt2")
    model_folder.write(tmp_path / "model", model=model)
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    start = words.convert_tokens_to_ids(starts)
    total, tokens = 0.0, 0
    for text in TEXTS:
        ids = torch.tensor([[start, *words(text, add_special_tokens=False)["input_ids"]]])
        own = ids.shape[1] - 1
        with torch.no_grad():
            total += own * reference(ids, labels=ids).loss.item()  # the mean over all tokens but the first
        tokens += own
    found = get_task("complete").evaluate([DocumentRow(text) for text in TEXTS], model=model)
    size = sum(len(text.encode()) for text in TEXTS)
    assert found.values["tokens"] == tokens
    assert found.values["perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-5)
    assert found.values["bits per byte"] == pytest.approx(total / math.log(2) / size, rel=1e-5)
    assert f"behind {starts}, no end token" in found.signature
    assert found.counts == {"counted": {"rows": len(TEXTS), "tokens": tokens, "bytes": size}}


def test_a_tokenizer_that_adds_its_start_says_what_a_text_begins_with(tokenizers: dict[str, Path]) -> None:
    for name in ("llama", "gpt2", "qwen2", "t5"):
        words = Tokenizer.read(tokenizers[name])
        (start,) = get_start_tokens(words)
        assert words.token_of(start) == {"llama": "<s>", "t5": "</s>"}.get(name, "<|endoftext|>")


def test_without_a_start_token_the_first_token_is_not_counted(tokenizers: dict[str, Path]) -> None:
    words = Tokenizer.read(tokenizers["gpt2"])
    bare = Tokenizer(words._core, special={})
    bare.special_ids = frozenset()
    model = decoder(bare, "gpt2")
    text = TEXTS[1]
    encoding = bare.encode(text)
    logprobs = model.logits([encoding.ids])[0].double().log_softmax(-1)
    total = -sum(float(logprobs[at, id]) for at, id in enumerate(encoding.ids[1:]))
    found = get_task("complete").evaluate([DocumentRow(text)], model=model)
    size = len(text[encoding.offsets[0][1] :].encode())
    assert found.values["tokens"] == len(encoding.ids) - 1
    assert found.values["bits per byte"] == pytest.approx(total / math.log(2) / size, rel=1e-5)
    assert "without a start token" in found.signature


def test_eval_says_how_it_counted(
    tokenizers: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from triform.cli import main

    model_folder.write(tmp_path / "model", model=decoder(Tokenizer.read(tokenizers["gpt2"]), "gpt2"))
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS))
    asked = ["eval", str(tmp_path / "model"), str(tmp_path / "texts.txt"), "--task", "complete"]
    with pytest.raises(SystemExit):
        main([*asked, "--json"])
    (scores,) = json.loads(capsys.readouterr().out)["scores"].values()
    assert scores["counts"]["counted"]["tokens"] == scores["values"]["tokens"]
    assert "own tokens, behind <|endoftext|>" in scores["signature"]
    with pytest.raises(SystemExit):
        main(asked)
    assert "behind <|endoftext|>" in " ".join(capsys.readouterr().out.split())
