"""Vectors as the makers of a sentence-transformers folder meant them: cut at its limit, behind its prompts.

sentence-transformers is written out here with transformers: tokenize with truncation, mean over tokens, length 1.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from served_models import run, serving
from torch import Tensor
from torch.nn import functional as F

import triform
from triform.cli import main
from triform.errors import TriformError
from triform.tasks import vector_index as indexes
from triform.tasks.embed import EmbedTask
from triform.tasks.search import SearchTask
from triform.weights import model_folder

LIMIT = 20
TEXTS = [" ".join(f"w{(7 * i + k) % 40}" for i in range(n)) for k, n in enumerate((3, 12, 30, 90))]
PROMPTS = {"query": "query : ", "passage": "passage : "}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As sentence-transformers 6 writes it: the limit stands in tokenizer_config.json alone."""
    path = tmp_path_factory.mktemp("sentences")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(40)), "query", "passage", ":"]
    (path / "vocab.txt").write_text("\n".join(words))
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(
        vocab_size=len(words), max_position_embeddings=64, initializer_range=0.4, **sizes
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BertModel(config).double().save_pretrained(path)
    transformers.BertTokenizerFast(str(path / "vocab.txt"), model_max_length=LIMIT).save_pretrained(path)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": at, "type": f"sentence_transformers.models.{kind}"} for at, kind in kinds.items()]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean", "include_prompt": True}))
    return path


def say(path: Path, name: str, **fields: Any) -> None:
    (path / name).write_text(json.dumps(fields))


def theirs(path: Path, texts: list[str], *, limit: int = LIMIT) -> Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float64)
    with torch.no_grad():
        rows = [
            model(**tokenizer(text, truncation=True, max_length=limit, return_tensors="pt"))
            .last_hidden_state[0]
            .mean(0)
            for text in texts
        ]
    return F.normalize(torch.stack(rows), dim=-1)


def test_the_limit_of_tokenizer_config_json_cuts(made: Path) -> None:
    model = triform.load(made, dtype="float64")
    torch.testing.assert_close(model.embed(TEXTS), theirs(made, TEXTS))
    assert [answer.cut for answer in EmbedTask().run(TEXTS, model=model)] == [0, 0, 12, 72]


def test_the_limit_of_sentence_bert_config_json_goes_before(made: Path) -> None:
    say(made, "sentence_bert_config.json", max_seq_length=9, do_lower_case=False)
    try:
        torch.testing.assert_close(triform.load(made, dtype="float64").embed(TEXTS), theirs(made, TEXTS, limit=9))
    finally:
        (made / "sentence_bert_config.json").unlink()


def test_a_tokenizer_without_a_limit_leaves_the_models(made: Path, tmp_path: Path) -> None:
    model = triform.load(made, dtype="float64")
    model.save(tmp_path / "copy")
    said = json.loads((made / "tokenizer_config.json").read_text()) | {"model_max_length": int(1e30)}
    (tmp_path / "copy" / "tokenizer_config.json").write_text(json.dumps(said))
    (tmp_path / "copy" / "sentence_bert_config.json").unlink()
    (tmp_path / "copy" / "manifest.json").unlink()
    again = triform.load(tmp_path / "copy", dtype="float64")
    assert again.pooling is not None
    assert again.pooling.longest is None
    torch.testing.assert_close(again.embed(TEXTS), theirs(made, TEXTS, limit=64))


def test_windows_are_another_vector_where_a_text_is_long(made: Path) -> None:
    """A negative control: what was the default is no longer taken for it."""
    model = triform.load(made, dtype="float64")
    near = F.cosine_similarity(model.embed(TEXTS), model.embed(TEXTS, windows=True))
    torch.testing.assert_close(near[:2], torch.ones(2, dtype=torch.float64))
    assert float(near[2:].max()) < 0.999


@pytest.fixture
def prompted(made: Path) -> Any:
    say(made, "config_sentence_transformers.json", prompts=PROMPTS, default_prompt_name="passage")
    yield triform.load(made, dtype="float64")
    (made / "config_sentence_transformers.json").unlink()


def test_prompts_stand_before_the_texts_they_are_meant_for(prompted: triform.Model, made: Path, tmp_path: Path) -> None:
    for role, prompt in {"text": "passage", "query": "query", "document": "passage"}.items():
        expected = theirs(made, [f"{prompt} : {text}" for text in TEXTS])
        torch.testing.assert_close(prompted.embed(TEXTS, role=role), expected)
    assert float((prompted.embed(TEXTS) - theirs(made, TEXTS)).abs().max()) > 0.01
    prompted.save(tmp_path / "again")
    torch.testing.assert_close(triform.load(tmp_path / "again", dtype="float64").embed(TEXTS), prompted.embed(TEXTS))
    with pytest.raises(TriformError, match="role='question' is out of range"):
        prompted.embed(TEXTS, role="question")


def test_an_index_remembers_how_it_was_made(prompted: triform.Model, made: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("\n\n".join(TEXTS[:2]) + "\n\n" + TEXTS[3])
    for windows in (False, True):
        out = tmp_path / f"index-{windows}"
        made_index = indexes.build_index([tmp_path / "docs"], model=prompted, name="m", out=out, windows=windows).made
        texts = [passage.text for passage in made_index.passages]
        expected = prompted.embed(texts, windows=windows, role="document").float()
        torch.testing.assert_close(made_index.read_vectors(), expected)
        assert indexes.read_index(out).note.windows is windows
        assert indexes.build_index([tmp_path / "docs"], model=prompted, name="m", out=out).kept == 1
        with pytest.raises(TriformError, match="was made with" if windows else "was made without"):
            indexes.build_index([tmp_path / "docs"], model=prompted, name="m", out=out, windows=not windows)
        (found,) = SearchTask().run(
            [TEXTS[3]], model=prompted, options=SearchTask().options(index=indexes.read_index(out), k=1, mode="vector")
        )
        query = prompted.embed(TEXTS[3], windows=windows, role="query").float()
        assert found.hits[0].score == pytest.approx(float((made_index.read_vectors() @ query).max()), abs=1e-6)
        assert found.cut == (0 if windows else 74)


def test_an_index_of_other_prompts_is_of_another_model(prompted: triform.Model, made: Path) -> None:
    plain = triform.load(made, dtype="float64")
    other = plain.replace(pooling=plain.pooling._replace(prompts=(("query", "q: "),)))  # type: ignore[union-attr]
    assert indexes.hash_weights(plain) != indexes.hash_weights(other)
    bare = plain.pooling._replace(prompts=(), default_prompt=None)  # type: ignore[union-attr]
    assert indexes.hash_weights(plain.replace(pooling=bare)) != indexes.hash_weights(plain)


def test_what_a_folder_cannot_mean_is_refused(made: Path) -> None:
    try:
        for said, trouble in (
            ({"prompts": {"query": 3}}, "prompts"),
            ({"prompts": {}, "default_prompt_name": "query"}, "default_prompt_name"),
            ({"similarity_fn_name": "cosin"}, "similarity_fn_name is 'cosin'; known are cosine"),
            ({"truncate_dim": 0}, "truncate_dim is 0; it must be a whole number from 1 up"),
        ):
            say(made, "config_sentence_transformers.json", **said)
            with pytest.raises(TriformError, match=trouble):
                model_folder.read(made)
        say(made / "1_Pooling", "config.json", pooling_mode="median")
        with pytest.raises(TriformError, match=r"1_Pooling/config\.json pools by 'median'; known are mean, cls"):
            model_folder.read(made)
    finally:
        (made / "config_sentence_transformers.json").unlink()
        say(made / "1_Pooling", "config.json", pooling_mode="mean", include_prompt=True)


@pytest.mark.parametrize(
    ("name", "query", "document"),
    [
        ("multilingual-e5-small", "query: ", "passage: "),
        ("intfloat--e5-base-v2", "query: ", "passage: "),
        ("BAAI--bge-small-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("my-e5-small", "", ""),
    ],
)
def test_makers_that_register_no_prompts(made: Path, tmp_path: Path, name: str, query: str, document: str) -> None:
    """Known by the name of the release; a folder that registers prompts keeps its own."""
    triform.load(made).save(tmp_path / name)
    say(tmp_path / name, "config_sentence_transformers.json", prompts={"query": "", "document": ""})
    (tmp_path / name / "manifest.json").unlink()
    pooling = triform.load(tmp_path / name).pooling
    assert pooling is not None
    assert (pooling.prompt("query"), pooling.prompt("document"), pooling.prompt("text")) == (query, document, "")
    say(tmp_path / name, "config_sentence_transformers.json", prompts={"query": "ask: "})
    own = triform.load(tmp_path / name).pooling
    assert own is not None
    assert dict(own.prompts) == {"query": "ask: "}


def test_a_pulled_model_is_known_by_its_source(made: Path, tmp_path: Path) -> None:
    triform.load(made).save(tmp_path / "mine")
    (tmp_path / "mine" / "source.json").write_text(json.dumps({"name": "intfloat/e5-small-v2", "version": "1"}))
    (tmp_path / "mine" / "manifest.json").unlink()
    pooling = triform.load(tmp_path / "mine").pooling
    assert pooling is not None
    assert pooling.prompt("query") == "query: "


# --- from the command line and over HTTP ----------------------------------------------------------------------------


def test_the_commands_put_prompts_and_shorten(
    prompted: triform.Model, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*args: str) -> tuple[str, str]:
        with pytest.raises(SystemExit) as stop:
            main(list(args))
        assert stop.value.code in (0, None, 2)
        out, err = capsys.readouterr()
        return str(out), str(err)

    folder = str(made)
    out, _ = said("embed", folder, TEXTS[0], "--prompt", "query", "--dimensions", "5", "--json")
    expected = prompted.embed(TEXTS[0], prompt="query", dimensions=5)
    assert json.loads(out)["vector"] == pytest.approx(expected.tolist(), abs=1e-5)
    (tmp_path / "docs.txt").write_text(TEXTS[0])
    _, err = said("index", str(tmp_path / "docs.txt"), "--model", folder, "--out", str(tmp_path / "index"))
    assert "each passage is read behind the prompt 'passage : '" in err
    out, _ = said("search", str(tmp_path / "index"), TEXTS[0], "--mode", "vector", "--json")
    vectors = [prompted.embed(TEXTS[0], role=role) for role in ("query", "document")]
    cosine = float(F.cosine_similarity(*vectors, dim=0))
    assert json.loads(out)["hits"][0]["score"] == pytest.approx(cosine, abs=1e-5)
    _, err = said("embed", folder, TEXTS[0], "--prompt", "qeury")
    assert "unknown prompt 'qeury'; did you mean 'query'? Known: passage, query" in err
    assert err.count("\n") == 1


def test_http_has_openais_dimensions_and_prompts_by_name(prompted: triform.Model) -> None:
    async def ask() -> None:
        async with serving({"m": prompted}) as (_, client):
            body: dict[str, Any] = {"model": "m", "input": TEXTS[:2]}
            for more, options in (
                ({"dimensions": 4}, {"dimensions": 4}),
                ({"prompt_name": "query"}, {"prompt": "query"}),
            ):
                answer = await client.post("/v1/embeddings", json=body | more)
                vectors = [one["embedding"] for one in answer.json()["data"]]
                torch.testing.assert_close(torch.tensor(vectors).double(), prompted.embed(TEXTS[:2], **options))
            ids = prompted.require_tokenizer().encode(TEXTS[0]).ids
            answer = await client.post("/v1/embeddings", json={"model": "m", "input": ids, "dimensions": 3})
            assert len(answer.json()["data"][0]["embedding"]) == 3
            for more, param in (
                ({"dimensions": 17}, "dimensions"),
                ({"dimensions": 0}, "dimensions"),
                ({"prompt_name": "qeury"}, "prompt_name"),
                ({"prompt_name": "query", "input": list(ids)}, "prompt_name"),
            ):
                refused = await client.post("/v1/embeddings", json=body | more)
                assert refused.status_code == 400, refused.text
                assert refused.json()["error"]["param"] == param

    run(ask())
