"""Scores of given texts: those of transformers to 1e-9, batched as alone, over windows, with sources, masked."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from served_models import encoder, run, serving
from tiny_models import enlarge_weights
from tiny_tasks import begun, tokenizer
from tiny_tokenizers import make_folders

from triform.cli import main
from triform.core.initial_weights import build_network
from triform.errors import InputError, TriformError
from triform.families import bert, gpt2, llama, vaswani
from triform.model import Model
from triform.tasks import tasks_of
from triform.tasks.rerank import RerankTask
from triform.tasks.task import CannotDo
from triform.text.tokenizer import Tokenizer
from triform.weights import model_folder

ROOT = Path(__file__).parents[2]
TEXTS = ["Jack went to Rome.", "Florence loves New York.", "Rose", "Where did Rose go? Rose went to Paris." * 3]
SIZES = {"width": 16, "layers": 2, "heads": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("tokenizers"))


def make_model(family: Any, words: Tokenizer, **more: Any) -> Model:
    spec = family(vocab=words.vocab, **SIZES | {"context": 128} | more)
    return Model(spec=spec, network=enlarge_weights(build_network(spec, seed=3).double()), tokenizer=words)


@pytest.fixture(scope="module")
def decoder(folders: dict[str, Path]) -> Model:
    return make_model(gpt2, Tokenizer.read(folders["gpt2"]))


@pytest.fixture(scope="module")
def pair() -> Model:
    return make_model(vaswani, tokenizer("encoder-decoder"))


@pytest.fixture(scope="module")
def masked() -> Model:
    return make_model(bert, tokenizer("encoder"))


def by_hand(model: Model, ids: list[int], *, first: int) -> list[float]:
    """log p of ids[first:], one softmax per position."""
    logits = model.logits([ids[:-1]])[0].log_softmax(-1)
    return [float(logits[at - 1, ids[at]]) for at in range(first, len(ids))]


def test_a_decoders_scores_are_those_of_its_logits(decoder: Model) -> None:
    words = decoder.require_tokenizer()
    start = words.encode("<|endoftext|>").ids
    for text, found in zip(TEXTS, decoder.score(TEXTS), strict=True):
        ids = [*start, *words.encode(text).ids]
        expected = by_hand(decoder, ids, first=1)
        assert [token.logprob for token in found.tokens] == pytest.approx(expected, abs=1e-9)
        assert "".join(token.text for token in found.tokens) == text
        assert found.logprob == found.score == pytest.approx(sum(expected))
        assert found.perplexity == pytest.approx(math.exp(-sum(expected) / len(expected)))
        assert found.bits_per_byte == pytest.approx(-sum(expected) / math.log(2) / len(text.encode()))
        assert found.count == len(expected)
        alone = decoder.score(text)
        assert alone.logprob == pytest.approx(found.logprob, abs=1e-9)
        assert decoder.score(text, totals=True).tokens is None


def test_the_source_of_a_decoder_is_read_and_not_scored(decoder: Model) -> None:
    whole = decoder.score("Where did Jack go? To Rome.")
    last = decoder.score(" To Rome.", source="Where did Jack go?")
    assert "".join(token.text for token in last.tokens) == " To Rome."
    assert last.tokens == whole.tokens[-len(last.tokens) :]
    assert last.logprob == pytest.approx(sum(token.logprob for token in last.tokens))


def test_greedy_says_that_each_token_was_the_likeliest(decoder: Model) -> None:
    words = decoder.require_tokenizer()
    text = "Where did Jack go?"
    ids = [*words.encode("<|endoftext|>").ids, *words.encode(text).ids]
    best = int(decoder.logits([ids])[0, -1].argmax())
    likeliest = words.decode([best])
    if words.encode(text + likeliest).ids == (*ids[1:], best):
        assert decoder.score(likeliest, source=text).greedy
    assert not decoder.score(" zebra Rome", source=text).greedy


@pytest.mark.parametrize("count", [64, 65, 120])
def test_long_texts_are_scored_in_windows(folders: dict[str, Path], count: int) -> None:
    """Each token once, behind at least half a context where the text has as much."""
    model = make_model(gpt2, Tokenizer.read(folders["gpt2"]), context=32)
    words, text = model.require_tokenizer(), " ".join(["cat", "mole", "lion"][n % 3] for n in range(count))
    ids = [*words.encode("<|endoftext|>").ids, *words.encode(text).ids]
    expected: list[float] = []
    while len(expected) < len(ids) - 1:
        begin = max(0, len(expected) - 16) if expected else 0
        window = ids[begin : begin + 33]
        expected += by_hand(model, window, first=len(expected) + 1 - begin)
    assert [token.logprob for token in model.score(text).tokens] == pytest.approx(expected, abs=1e-9)


def test_a_first_token_without_a_start_has_no_score(folders: dict[str, Path]) -> None:
    words = Tokenizer.read(folders["gpt2"])
    bare = Tokenizer(words._core, special={})
    bare.special_ids = frozenset()
    model = make_model(gpt2, bare)
    found = model.score("The fat cat")
    assert found.tokens[0].logprob is None
    ids = list(bare.encode("The fat cat").ids)
    expected = by_hand(model, ids, first=1)
    assert found.logprob == pytest.approx(sum(expected))
    skipped = len(found.tokens[0].text.encode())
    assert found.bits_per_byte == pytest.approx(-sum(expected) / math.log(2) / (len("The fat cat") - skipped))


def test_an_encoder_decoder_scores_the_target_behind_its_source(pair: Model) -> None:
    words = pair.require_tokenizer()
    sources, targets = TEXTS[:2], ["Rose went to Rome.", "Paris"]
    for source, target, found in zip(sources, targets, pair.score(targets, source=sources), strict=True):
        read, wanted = list(words.encode(source).ids), list(words.encode(target).ids)
        begin = next(id for id in (words.bos, words.pad, words.eos) if id is not None)
        logits = pair.logits([read], target=[[begin, *wanted[:-1]]])[0].log_softmax(-1)
        expected = [float(logits[at, id]) for at, id in enumerate(wanted)]
        assert wanted[-1] == words.eos
        assert [token.logprob for token in found.tokens] == pytest.approx(expected, abs=1e-9)
    with pytest.raises(InputError, match="text 1 has no source; an encoder-decoder scores a text behind its source"):
        pair.score("Paris")


def test_an_encoder_scores_each_token_where_it_is_masked(masked: Model) -> None:
    words = masked.require_tokenizer()
    for text, found in zip(TEXTS[:3], masked.score(TEXTS[:3]), strict=True):
        ids = list(words.encode(text).ids)
        expected = []
        for at in range(1, len(ids) - 1):
            hidden = [*ids[:at], words.mask, *ids[at + 1 :]]
            expected.append(float(masked.logits([hidden])[0, at].log_softmax(-1)[ids[at]]))
        assert [token.logprob for token in found.tokens] == pytest.approx(expected, abs=1e-9)
        assert found.logprob == pytest.approx(sum(expected))
    with pytest.raises(InputError, match="an encoder scores whole texts, which have no source"):
        masked.score("Rome", source="Jack")
    with pytest.raises(InputError, match=r"text 1 has .* tokens, the model reads 128 at once; shorten it"):
        masked.score("Rome " * 200)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_reference_finds_texts_as_likely(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = make_model({"gpt2": gpt2, "llama": llama}[family], Tokenizer.read(folders[family]))
    model_folder.write(tmp_path / "model", model=model)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float64).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    start = {"gpt2": "<|endoftext|>", "llama": "<s>"}[family]
    for text, found in zip(TEXTS, model.score(TEXTS), strict=True):
        own = words(text, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[words.convert_tokens_to_ids(start), *own]])
        with torch.no_grad():
            logprobs = theirs(ids).logits[0, :-1].log_softmax(-1)
        expected = logprobs.gather(1, ids[0, 1:, None])[:, 0]
        bound = {"gpt2": 1e-9, "llama": 1e-5}[family]  # their norm of Llama computes in float32
        assert [token.logprob for token in found.tokens] == pytest.approx(expected.tolist(), abs=bound)
        assert found.perplexity == pytest.approx(math.exp(-float(expected.mean())), rel=bound)


def test_the_recipes_of_the_documentation(
    decoder: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "score.md").read_text(), re.DOTALL)
    assert [len(block.splitlines()) for block in blocks[1:]] == [3, 3, 3]
    model_folder.write(tmp_path / "models" / "smollm2", model=decoder)
    pairs = [{"sentence_good": "Rose went to Rome.", "sentence_bad": "Rose to went Rome."}] * 2
    (tmp_path / "blimp.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (tmp_path / "lambada.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS[:2]))
    (tmp_path / "wiki.test.raw").write_text("\n".join(TEXTS * 4))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path))
    exec("\n".join(blocks), {})
    blimp, lambada, wiki = capsys.readouterr().out.splitlines()
    good, bad = (decoder.score(pairs[0][name]).logprob for name in ("sentence_good", "sentence_bad"))
    assert blimp == f"BLiMP accuracy {float(good > bad):.1%}"
    assert lambada.startswith("LAMBADA accuracy ")
    whole = decoder.score("\n".join(TEXTS * 4)).perplexity
    assert wiki.startswith(f"WikiText-2 {whole:.2f}, ")


# --- from the command line and over HTTP ----------------------------------------------------------------------------


def test_the_command_scores_texts_files_and_pairs(
    decoder: Model, pair: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*args: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["score", *args])
        out, err = capsys.readouterr()
        assert (stop.value.code or 0) == code, err
        return str(out or err)

    model_folder.write(tmp_path / "gpt", model=decoder)
    model_folder.write(tmp_path / "pair", model=pair)
    gpt = str(tmp_path / "gpt")
    expected = decoder.score(TEXTS[0])
    assert json.loads(said(gpt, TEXTS[0], "--json"))["logprob"] == pytest.approx(expected.logprob, abs=1e-3)
    shown = said(gpt, TEXTS[0])
    assert "logprob" in shown
    assert "bits per byte" in shown
    assert "tokens" not in json.loads(said(gpt, TEXTS[0], "--json", "--totals"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    said(gpt, "--file", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "scores.csv"))
    header, *lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert header.startswith("id,input,logprob,perplexity,bits_per_byte,count")
    assert len(lines) == len(TEXTS)
    (tmp_path / "pairs.csv").write_text("en,de\nJack went to Rome.,Paris\n")
    columns = ("--source-column", "en", "--target-column", "de")
    out = said(str(tmp_path / "pair"), "--file", str(tmp_path / "pairs.csv"), *columns, "--json")
    wanted = pair.score("Paris", source="Jack went to Rome.").logprob
    assert json.loads(out)["logprob"] == pytest.approx(wanted, abs=1e-3)
    same = said(str(tmp_path / "pair"), "Paris", "--source", "Jack went to Rome.", "--json")
    assert json.loads(same)["logprob"] == pytest.approx(wanted, abs=1e-3)
    assert "has no source" in said(str(tmp_path / "pair"), "Paris", code=2)


def test_http_scores_texts_and_pairs(decoder: Model) -> None:
    cross = begun(RerankTask(), [])
    embedder = encoder("embed")
    models = {"gpt": decoder, "cross": cross, "embed": embedder}

    async def ask() -> None:
        async with serving(models) as (_, client):
            body: dict[str, Any] = {"model": "gpt", "text": TEXTS[:2], "source": "Well:"}
            answer = (await client.post("/v1/score", json=body)).json()
            assert {*answer} == {"id", "object", "created", "model", "data", "usage"}
            for index, (one, wanted) in enumerate(
                zip(answer["data"], decoder.score(TEXTS[:2], source="Well:"), strict=True)
            ):
                assert (one["index"], one["object"]) == (index, "score")
                assert one["score"] == one["logprob"] == pytest.approx(wanted.logprob)
                assert one["tokens"][0]["logprob"] == pytest.approx(wanted.tokens[0].logprob)
            body = {"text_1": TEXTS[0], "text_2": TEXTS[1:]}  # as vLLM takes them
            for name in ("cross", "embed"):
                data = (await client.post("/v1/score", json=body | {"model": name})).json()["data"]
                ranked = models[name].rerank(TEXTS[0], TEXTS[1:]).ranked
                wanted_scores = [one.score for one in sorted(ranked, key=lambda one: one.index)]
                assert [one["score"] for one in data] == pytest.approx(wanted_scores, abs=1e-6)
                assert {*data[0]} == {"index", "object", "score"}
            for wrong, param in (
                ({}, "text"),
                ({"text": "a", "text_1": "b"}, "text"),
                ({"text_1": "b"}, "text"),
                ({"text": ["a", "b"], "source": ["c"]}, "source"),
                ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_2"),
                ({"text": "  "}, "text"),
                ({"text": "a", "totls": True}, "totls"),
                ({"text_1": "a", "text_2": "b"}, "text_1"),
            ):
                refused = await client.post("/v1/score", json={"model": "gpt"} | wrong)
                assert refused.status_code == 400, wrong
                assert refused.json()["error"]["param"] == param, refused.text

    run(ask())


def test_what_cannot_be_scored(decoder: Model) -> None:
    for texts in ("", "  ", ["a", " "]):
        with pytest.raises(TriformError, match="is empty"):
            decoder.score(texts)
    with pytest.raises(InputError, match="2 texts have 1 sources; give one per text"):
        decoder.score(["a", "b"], source=["c"])
    tagger = encoder("tag")
    assert "score" not in tasks_of(tagger)
    with pytest.raises(CannotDo, match="a token classifier without a language-model head, so it cannot score"):
        tagger.score("a")
    cross = begun(RerankTask(), [])
    with pytest.raises(CannotDo, match="predicts no tokens, so it cannot score a text; it scores pairs"):
        cross.score("a")
