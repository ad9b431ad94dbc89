"""Vectors equal those of sentence-transformers on the same folder: every pooling, every layer, prompts, dimensions.

The folders are written by sentence-transformers itself; ours, saved again, are read by it again.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import triform
from triform.errors import TriformError
from triform.tasks import vector_index
from triform.tasks.search import SearchTask

sentence_transformers = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of sentence-transformers

WIDTH, LIMIT = 16, 24
R = {"use_residual": True}
TEXTS = [" ".join(f"w{(7 * i + k) % 40}" for i in range(n)) for k, n in enumerate((3, 12, 1, 30, 7))]
PROMPTS = {"query": "query : ", "passage": "passage : ", "other": "w1 w2 "}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(40)), "query", "passage", ":"]
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
POOLINGS = ("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", ("max", "mean", "lasttoken"))


@pytest.fixture(scope="module", params=["encoder", "decoder"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT; and a Qwen 3, whose tokenizer adds an end to every text."""
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    if request.param == "encoder":
        (path / "vocab.txt").write_text("\n".join(WORDS))
        config = transformers.BertConfig(
            vocab_size=len(WORDS), max_position_embeddings=64, initializer_range=0.4, **SIZES
        )
        transformers.BertModel(config).save_pretrained(path)
        transformers.BertTokenizerFast(str(path / "vocab.txt"), model_max_length=LIMIT).save_pretrained(path)
        return path
    more = {"num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64, "initializer_range": 0.4}
    transformers.Qwen3Model(transformers.Qwen3Config(vocab_size=len(WORDS), **SIZES, **more)).save_pretrained(path)
    core = tokenizers_core()
    words = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[SEP]"}
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=LIMIT, **words)
    made.save_pretrained(path)
    return path


def tokenizers_core() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    core = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)])
    return core


@pytest.fixture
def make(base: Path, tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """Their model of these modules, and its folder."""
    from sentence_transformers import models

    def made(pooling: Any, *layers: Any, prompts: dict[str, str] | None = None, **options: Any) -> tuple[Any, Path]:
        include = options.pop("include_prompt", True)
        modules = [models.Transformer(str(base)), models.Pooling(WIDTH, pooling, include_prompt=include), *layers]
        model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", prompts=prompts, **options)
        model.eval().save(str(tmp_path / "theirs"))
        return model.double(), tmp_path / "theirs"

    return made


def dense(narrow: int, wide: int, act: Any = None, **options: Any) -> Any:
    from sentence_transformers import models

    return models.Dense(narrow, wide, activation_function=act or torch.nn.Identity(), **options)


def compare(model: triform.Model, theirs: Any, **options: Any) -> Tensor:
    expected = theirs.encode(TEXTS, convert_to_tensor=True)
    found = model.embed(TEXTS, **options)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    return found


@pytest.mark.parametrize("pooling", POOLINGS, ids=str)
def test_every_pooling(make: Any, pooling: Any, tmp_path: Path) -> None:
    theirs, path = make(pooling)
    model = triform.load(path, dtype="float64")
    vectors = compare(model, theirs)
    assert vectors.shape == (len(TEXTS), WIDTH * (3 if isinstance(pooling, tuple) else 1))
    model.save(tmp_path / "ours")
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu").double()
    torch.testing.assert_close(again.encode(TEXTS, convert_to_tensor=True), vectors, atol=1e-6, rtol=1e-6)


def layers_of(name: str) -> list[Any]:
    from sentence_transformers import models

    torch.manual_seed(1)
    return {
        "normalize": lambda: [models.Normalize()],
        "dense": lambda: [dense(WIDTH, 12, torch.nn.Tanh())],
        "two dense": lambda: [dense(WIDTH, 40, bias=False), dense(40, WIDTH, bias=False), models.Normalize()],
        "normalize first": lambda: [models.Normalize(), dense(WIDTH, 6, torch.nn.GELU()), models.Normalize()],
        "layer norm": lambda: [models.LayerNorm(WIDTH), models.Dropout(0.5), dense(WIDTH, 8, torch.nn.ReLU())],
        "residual": lambda: [dense(WIDTH, WIDTH, **R), dense(WIDTH, 9, torch.nn.SiLU(), **R)],
    }[name]()  # fmt: skip


LAYERS = ("normalize", "dense", "two dense", "normalize first", "layer norm", "residual")


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_read_and_kept(make: Any, name: str, tmp_path: Path) -> None:
    theirs, path = make("mean", *layers_of(name))
    model = triform.load(path, dtype="float64")
    vectors = compare(model, theirs)
    model.save(tmp_path / "ours")
    torch.testing.assert_close(triform.load(tmp_path / "ours", dtype="float64").embed(TEXTS), vectors)
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu").double()
    torch.testing.assert_close(again.encode(TEXTS, convert_to_tensor=True), vectors, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("include", [True, False])
def test_prompts_by_name_and_by_role(make: Any, include: bool) -> None:
    theirs, path = make(("mean", "cls", "max", "weightedmean"), prompts=PROMPTS, include_prompt=include)
    model = triform.load(path, dtype="float64")
    for options, expected in (
        ({"prompt": "other"}, theirs.encode(TEXTS, prompt_name="other")),
        ({"role": "query"}, theirs.encode_query(TEXTS)),
        ({"role": "document"}, theirs.encode_document(TEXTS)),
        ({}, theirs.encode(TEXTS)),
    ):
        torch.testing.assert_close(model.embed(TEXTS, **options), torch.tensor(expected), atol=1e-6, rtol=1e-6)
    with pytest.raises(TriformError, match="unknown prompt 'qeury'; did you mean 'query'"):
        model.embed(TEXTS, prompt="qeury")


def test_dimensions(make: Any, tmp_path: Path) -> None:
    """Where the whole vector has length 1, the shortened one has too."""
    theirs, path = make("mean", *layers_of("normalize"))
    model = triform.load(path, dtype="float64")
    expected = theirs.encode(TEXTS, truncate_dim=5, normalize_embeddings=True, convert_to_tensor=True)
    torch.testing.assert_close(model.embed(TEXTS, dimensions=5), expected, atol=1e-6, rtol=1e-6)
    for wrong in (0, 17):
        with pytest.raises(TriformError, match=f"dimensions={wrong} is out of range"):
            model.embed(TEXTS, dimensions=wrong)
    theirs, path = make("mean", truncate_dim=7)
    model = triform.load(path, dtype="float64")
    assert compare(model, theirs).shape == (len(TEXTS), 7)
    model.save(tmp_path / "ours")
    assert triform.load(tmp_path / "ours", dtype="float64").embed(TEXTS).shape == (len(TEXTS), 7)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_a_search_finds_what_theirs_finds(make: Any, similarity: str, tmp_path: Path) -> None:
    """With the document prompt in the index and the query prompt in the query, by the folder's similarity."""
    theirs, path = make("mean", dense(WIDTH, 8), prompts=PROMPTS, similarity_fn_name=similarity)
    model = triform.load(path, dtype="float64")
    documents = [" ".join(f"w{(k * i) % 40}" for i in range(1, 6)) for k in range(1, 9)]
    (tmp_path / "documents.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents))
    places = [tmp_path / "documents.jsonl"]
    vector_index.build_index(places, model=model, name="m", out=tmp_path / "index", dimensions=6)
    for dimensions, index in (
        (None, vector_index.index_passages(documents, model=model)),
        (6, vector_index.read_index(tmp_path / "index")),
    ):
        short = {"truncate_dim": dimensions}
        scores = theirs.similarity(theirs.encode_query(TEXTS, **short), theirs.encode_document(documents, **short))
        answers = SearchTask().run(TEXTS, model=model, options=SearchTask().options(index=index, k=4, mode="vector"))
        for found, expected in zip(answers, scores, strict=True):
            best = expected.sort(descending=True)
            assert [hit.text for hit in found.hits] == [documents[at] for at in best.indices[:4]]
            assert [hit.score for hit in found.hits] == pytest.approx(best.values[:4].tolist(), abs=1e-5)
    whole = theirs.similarity(theirs.encode_query(TEXTS), theirs.encode_document(documents))
    reranked = model.rerank(TEXTS[1], documents)
    assert [one.score for one in reranked.ranked] == pytest.approx(sorted(whole[1].tolist(), reverse=True), abs=1e-5)
    model.save(tmp_path / "ours")
    again = triform.load(tmp_path / "ours", dtype="float64")
    assert again.pooling is not None
    assert (again.pooling.similarity, dict(again.pooling.prompts)) == (similarity, {"document": "", **PROMPTS})


def test_wrong_modules_are_refused_in_one_line(make: Any) -> None:
    from sentence_transformers import models

    _, path = make("mean", dense(WIDTH, 8, torch.nn.Softplus()))
    with pytest.raises(TriformError, match=r"activation_function is 'torch.nn.modules.activation.Softplus'; known"):
        triform.load(path, dtype="float64")
    (file,) = path.glob("2_Dense/model.safetensors")
    config = json.loads((path / "2_Dense/config.json").read_text())
    said = config | {"activation_function": "torch.nn.modules.activation.Tanh"}
    (path / "2_Dense/config.json").write_text(json.dumps(said | {"out_features": 9}))
    with pytest.raises(TriformError, match=r"linear.weight \[8, 16\].*config.json asks for linear.weight \[9, 16\]"):
        triform.load(path, dtype="float64")
    (path / "2_Dense/config.json").write_text(json.dumps(said))
    file.rename(path / "2_Dense/pytorch_model.bin")
    with pytest.raises(TriformError, match=r"2_Dense has no model\.safetensors and pytorch_model\.bin, a pickle, is"):
        triform.load(path, dtype="float64")
    _, path = make("mean", models.CNN(WIDTH, 8))
    with pytest.raises(TriformError, match="'CNN'; known are Transformer and Pooling, then any of Dense"):
        triform.load(path, dtype="float64")
