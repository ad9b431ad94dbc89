"""Languages of translation models: the reference's tokens, in front of the source and of the target; and refusals."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from reference_models import draw
from tiny_models import word_tokenizer
from tokenizers import models, pre_tokenizers, processors

import triform
from triform import families
from triform.errors import InputError, UnknownName
from triform.model import Model
from triform.serve.http.http_errors import to_request_error
from triform.tasks.task import CannotDo
from triform.tasks.translate import TranslateTask
from triform.train.examples import ExamplePlace

WORDS = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁w{n}" for n in range(20))]
SIZES = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 24,
    "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
    "scale_embedding": False,
}  # fmt: skip
CUSTOMS = {
    # the codes, what the tokenizer puts around a text, the model
    "nllb": (("eng_Latn", "deu_Latn", "fra_Latn"), ("$lang", "$A", "</s>"), "M2M100"),
    "nllb-older": (("eng_Latn", "deu_Latn", "fra_Latn"), ("$A", "</s>", "$lang"), "M2M100"),
    "mbart-50": (("en_XX", "de_DE", "fr_XX"), ("$lang", "$A", "</s>"), "MBart"),
}
TEXTS = ["w3 w4 w5", "w7", "w1 w2 w1 w2 w9 w9 w9"]


def write_tokenizer(folder: Path, *, codes: tuple[str, ...], around: tuple[str, ...], **config: Any) -> list[str]:
    words = [*WORDS, *codes]
    core = tokenizers.Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, "<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    template = [codes[0] if part == "$lang" else part for part in around]
    core.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(word, words.index(word)) for word in (codes[0], "</s>")]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", bos_token="<s>",
        additional_special_tokens=list(codes),
    )  # fmt: skip
    fast.save_pretrained(folder)
    return words


def make_lively(model: Any) -> None:
    """Its next token depends on more than the last one: its blocks speak louder than its embeddings."""
    draw(model)
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if weight.dim() == 2 and "embed" not in path and "shared" not in path:
                weight.mul_(4.0)


@pytest.fixture(scope="module", params=CUSTOMS)
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Model]:
    codes, around, family = CUSTOMS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    words = write_tokenizer(folder, codes=codes, around=around)
    config = getattr(transformers, f"{family}Config")(**SIZES, vocab_size=len(words))
    their = getattr(transformers, f"{family}ForConditionalGeneration")(config).double().eval()
    make_lively(their)
    their.save_pretrained(folder)
    return request.param, their, triform.load(folder, dtype="float64")


def their_tokens(their: Any, name: str, text: str, *, source: str, target: str) -> list[int]:
    codes, around, _ = CUSTOMS[name]
    words = [*WORDS, *codes]
    parts = {"$lang": [words.index(source)], "</s>": [2], "$A": [words.index(f"▁{word}") for word in text.split()]}
    ids = torch.tensor([[id for part in around for id in parts[part]]])
    out = their.generate(
        ids, attention_mask=torch.ones_like(ids), forced_bos_token_id=words.index(target), max_new_tokens=9,
        num_beams=1, do_sample=False,
    )  # fmt: skip
    return out[0, 1:].tolist()


class TokensOf(TranslateTask):
    def answer(self, question: str, prompt: Any, written: Any, *, model: Model) -> Any:
        return list(written.tokens)


def test_tokens_are_the_references(translator: tuple[str, Any, Model]) -> None:
    name, their, model = translator
    english, german, french = CUSTOMS[name][0]
    task = TokensOf()
    found = {}
    for source, target in ((english, german), (french, german), (german, english)):
        options = task.options(from_lang=source, to_lang=target, max_tokens=9)
        found[source, target] = list(task.run(TEXTS, model=model, options=options))
        theirs = [their_tokens(their, name, text, source=source, target=target) for text in TEXTS]
        assert found[source, target] == theirs
    assert len({str(tokens) for tokens in found.values()}) > 1  # languages do change what is written


def test_what_is_asked_of_a_user(translator: tuple[str, Any, Model]) -> None:
    name, _, model = translator
    english, german, _ = CUSTOMS[name][0]
    with pytest.raises(InputError, match="must be told to_lang: one of") as error:
        model.translate("w1", from_lang=english)
    assert error.value.field == "to_lang"
    with pytest.raises(InputError, match="must be told from_lang"):
        model.translate("w1", to_lang=german)
    with pytest.raises(UnknownName, match=f"unknown language '{german}n'; did you mean '{german}'") as unknown:
        model.translate("w1", from_lang=english, to_lang=f"{german}n")
    assert to_request_error(unknown.value).param == "to_lang"


def test_a_long_text_keeps_its_language(translator: tuple[str, Any, Model]) -> None:
    name, _, model = translator
    _, german, french = CUSTOMS[name][0]

    class Prompts(TranslateTask):
        def answer(self, question: str, prompt: Any, written: Any, *, model: Model) -> Any:
            return prompt

    options = Prompts().options(from_lang=french, to_lang=german, max_tokens=3)
    (prompt,) = Prompts().run(["w1 " * 60], model=model, options=options)
    token = model.require_tokenizer().id_of(french)
    assert len(prompt.ids) == model.spec.context
    assert prompt.ids.count(token) == 1
    assert prompt.cut > 0


def test_the_folder_may_name_its_languages(translator: tuple[str, Any, Model]) -> None:
    name, _, model = translator
    english, german, _ = CUSTOMS[name][0]
    tokenizer = model.require_tokenizer()
    tokenizer._config |= {"src_lang": english, "tgt_lang": german}
    try:
        assert model.translate("w1 w2").text == model.translate("w1 w2", from_lang=english, to_lang=german).text
    finally:
        del tokenizer._config["src_lang"], tokenizer._config["tgt_lang"]


def test_madlad_says_the_target_before_the_text(tmp_path: Path) -> None:
    words = write_tokenizer(tmp_path, codes=("<2de>", "<2fr>"), around=("$A", "</s>"))
    config = transformers.T5Config(
        vocab_size=len(words), d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu",
        decoder_start_token_id=1, pad_token_id=1, eos_token_id=2,
    )  # fmt: skip
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    model = triform.load(tmp_path)

    class Prompts(TranslateTask):
        def answer(self, question: str, prompt: Any, written: Any, *, model: Model) -> Any:
            return prompt.ids

    (ids,) = Prompts().run(["w1"], model=model, options=Prompts().options(to_lang="de", max_tokens=2))
    assert ids[0] == words.index("<2de>")
    with pytest.raises(InputError, match="say which language to translate into: to_lang=de, fr"):
        model.translate("w1")
    with pytest.raises(InputError, match="reads any language; leave from_lang='de' out"):
        model.translate("w1", from_lang="de", to_lang="fr")
    assert model.translate("<2de> w1", max_tokens=2).text == model.translate("w1", to_lang="de", max_tokens=2).text


def test_a_model_without_languages_says_so() -> None:
    tokenizer = word_tokenizer(["<unk>", "a", "b", "</s>"], eos="</s>")
    model = triform.build(families.bart(vocab=4, width=8, layers=1, heads=2, context=8)).replace(tokenizer=tokenizer)
    with pytest.raises(InputError, match="no language tokens; leave to_lang='de' out"):
        model.translate("a", to_lang="de")


def test_training_needs_both_languages(translator: tuple[str, Any, Model]) -> None:
    from triform.data.rows import PairRow

    name, _, model = translator
    english, german, _ = CUSTOMS[name][0]
    rows = [PairRow(source="w1 w2", target="w3")]
    with pytest.raises(CannotDo, match="must name src_lang and tgt_lang"):
        TranslateTask().examples(rows, model=model)
    tokenizer = model.require_tokenizer()
    tokenizer._config |= {"src_lang": english, "tgt_lang": german}
    try:
        if name == "nllb-older":
            with pytest.raises(CannotDo, match="behind the text"):
                TranslateTask().examples(rows, model=model)
            return
        example = TranslateTask().examples(rows, model=model).at(ExamplePlace(0, 0, 0))
        assert example.source.tolist()[0] == tokenizer.id_of(english)
        assert example.target.tolist() == [tokenizer.id_of(german), WORDS.index("▁w3"), 2]
        assert TranslateTask().finish_model(rows, model=model).generation.forced_first == tokenizer.id_of(german)
    finally:
        del tokenizer._config["src_lang"], tokenizer._config["tgt_lang"]
