"""`complete`, `chat` and `fill` as a person meets them, on tiny random models with real tokenizers."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch

import triform
from triform import families
from triform.cli import main
from triform.cli.task_command import print_parts
from triform.errors import TriformError
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.tasks import get_task
from triform.tasks.classify import Classification, LabelProbability
from triform.tasks.fill import Candidate, FilledText
from triform.text.chat_template import ChatTemplate
from triform.text.train_tokenizer import train_tokenizer

TEXTS = ["the fat ginger cat sat on a mat", "an apple and an orange", "one mole of carbon dioxide"] * 5
SIZES = {"width": 16, "layers": 1, "heads": 2, "context": 64}


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_tokenizer(TEXTS, kind="bpe", vocab=300)
    spec = families.gpt2(vocab=tokenizer.vocab, **SIZES)
    network = triform.build(spec, seed=3).network
    template = ChatTemplate("{% for m in messages %}{{ m.content }} {% endfor %}", special=tokenizer.special)
    model = Model(spec, network, tokenizer, template, generation=GenerationDefaults(eos=tokenizer.eos))
    folder = tmp_path_factory.mktemp("models") / "decoder"
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_tokenizer(TEXTS, kind="wordpiece", vocab=200)
    spec = families.bert(vocab=tokenizer.vocab, **SIZES)
    folder = tmp_path_factory.mktemp("models") / "masked"
    Model(spec, triform.build(spec).network, tokenizer).save(folder)
    return folder


def test_complete_streams_what_it_would_give_whole(decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ("complete", str(decoder), "the cat", "--max-tokens", "8", "--temperature", "0.9", "--seed", "5")
    code, streamed, _ = run(capsys, *base, "--stream")
    assert code == 0
    assert run(capsys, *base, "--no-stream")[1] == streamed
    assert json.loads(run(capsys, *base, "--json")[1])["text"] == streamed.removesuffix("\n")
    assert triform.load(decoder).complete(["the cat"], max_tokens=8, temperature=0.9, seed=5)[0].text == streamed[:-1]


def test_complete_for_machines(decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(
        capsys, "complete", str(decoder), "a", "--n", "3", "--max-tokens", "4", "--logprobs", "2", "--json", "--stats"
    )
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == 3
    assert all(len(token["alternatives"]) == 2 for answer in answers for token in answer["tokens"])
    assert answers[0]["finish"] in ("length", "eos")
    assert "tokens, first after" in err
    assert "cache" in err


def test_complete_reads_standard_input(
    decoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = run(capsys, "complete", str(decoder), "the mat", "--max-tokens", "4", "--temperature", "0")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the mat\n")))
    assert run(capsys, "complete", str(decoder), "--max-tokens", "4", "--temperature", "0") == typed


def test_complete_with_beams(decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "complete", str(decoder), "a", "--beams", "3", "--max-tokens", "4", "--json")
    assert code == 0
    assert len(json.loads(out)["tokens"]) <= 4


def test_chat_answers_once_and_in_a_row(
    decoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--max-tokens", "4", "--temperature", "0")
    code, once, _ = run(capsys, "chat", str(decoder), "an apple", *options)
    assert code == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"an apple\nan orange\n")))
    _, twice, _ = run(capsys, "chat", str(decoder), *options)
    assert twice.startswith(once)
    assert len(twice) > len(once)


def test_chat_for_machines_and_from_a_file(decoder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ("--max-tokens", "4", "--temperature", "0", "--json")
    code, once, _ = run(capsys, "chat", str(decoder), "an apple", *options)
    assert (code, json.loads(once)["message"]["role"]) == (0, "assistant")
    talks = [{"messages": [{"role": "user", "content": text}]} for text in ("an apple", "an orange")]
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, talks)))
    (tmp_path / "talks.txt").write_text("an apple\nan orange\n")
    code, of_talks, _ = run(capsys, "chat", str(decoder), "--file", str(tmp_path / "talks.jsonl"), *options)
    assert (code, of_talks.splitlines()[0] + "\n") == (0, once)
    assert run(capsys, "chat", str(decoder), "--file", str(tmp_path / "talks.txt"), *options)[1] == of_talks
    told = run(capsys, "chat", str(decoder), "an apple", "--system", "an orange", *options)[1]
    assert told != once


def test_complete_takes_several_texts(decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--max-tokens", "4", "--temperature", "0")
    code, out, _ = run(capsys, "complete", str(decoder), "the cat", "an apple", *options, "--json")
    alone = [run(capsys, "complete", str(decoder), text, *options, "--json")[1] for text in ("the cat", "an apple")]
    assert code == 0
    assert [json.loads(line)["text"] for line in out.splitlines()] == [json.loads(each)["text"] for each in alone]
    code, _, err = run(capsys, "complete", str(decoder), "the cat", "an apple", "--beams", "2")
    assert (code, "each has one answer" in err) == (2, True)


class Keys:
    """A person at the keyboard: lines, and a Ctrl-C where one stands."""

    def __init__(self, *lines: str | type[BaseException]) -> None:
        self.lines = iter(lines)

    def __call__(self, prompt: str = "") -> str:
        line = next(self.lines, EOFError)
        if isinstance(line, type):
            raise line
        return line


def test_a_conversation_at_the_keyboard(
    decoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    saved = tmp_path / "talk.json"
    keys = Keys(
        "the cat", KeyboardInterrupt, "/stats", f"/save {saved}", f"/save {saved}", "/reset", "/what", "", "/quit"
    )
    monkeypatch.setattr("builtins.input", keys)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    code, out, _ = run(capsys, "chat", str(decoder), "--max-tokens", "4")
    assert code == 0
    assert [message["role"] for message in json.loads(saved.read_text())["messages"]] == ["user", "assistant"]
    for said in ("tokens, first after", "saved 2 messages", "is already there", "forgotten", "/reset clears"):
        assert said in out


def test_ctrl_c_stops_the_answer_and_not_the_program(
    decoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from triform.cli import chat
    from triform.generate.engine import Engine

    steps = iter([None, KeyboardInterrupt])
    step = Engine.step

    def pressed(self: Engine) -> list[object]:
        if next(steps, None) is KeyboardInterrupt:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Engine, "step", pressed)
    talk = chat.Conversation(
        triform.load(decoder), name="decoder", system=None, chosen={"max_tokens": 20, "temperature": 0.0}
    )
    talk.say("the cat")
    assert not talk.engine.busy
    talk.say("the mat")
    assert [message["role"] for message in talk.messages] == ["user", "assistant", "user", "assistant"]
    assert capsys.readouterr().out


def test_fill_gives_candidates_for_each_mask(masked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "fill", str(masked), "the [MASK] cat [MASK] on a mat", "-k", "3", "--json")
    masks = json.loads(out)["masks"]
    assert code == 0
    assert [len(row) for row in masks] == [3, 3]
    assert all(row[0]["probability"] >= row[1]["probability"] for row in masks)
    assert run(capsys, "fill", str(masked), "the [MASK] cat")[0] == 0


BAD = {
    "the prompt is empty": ("complete", "decoder", ""),
    "max_tokens=0 is out of range": ("complete", "decoder", "a", "--max-tokens", "0"),
    "temperature=-1.0 is out of range": ("complete", "decoder", "a", "--temperature", "-1"),
    "temperature=nan is out of range": ("complete", "decoder", "a", "--temperature", "nan"),
    "top_p=1.5 is out of range": ("complete", "decoder", "a", "--top-p", "1.5"),
    "so it cannot complete; it can: fill, embed": ("complete", "masked", "a"),
    "so it cannot chat; it can: fill, embed": ("chat", "masked", "a"),
    "so it cannot fill; it can: complete, chat": ("fill", "decoder", "a"),
    "the text has no mask; write [MASK]": ("fill", "masked", "a"),
    "there is no folder 'nobody'": ("chat", "nobody", "a"),
}


@pytest.mark.parametrize("says", BAD)
def test_bad_input_is_one_line(
    says: str,
    decoder: Path,
    masked: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path))
    folders = {"decoder": str(decoder), "masked": str(masked)}
    code, _, err = run(capsys, *(folders.get(word, word) for word in BAD[says]))
    assert code == 2
    assert says in err
    assert "Traceback" not in err


def test_a_prompt_longer_than_the_context_says_both_counts(decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "complete", str(decoder), "cat " * 200)
    assert code == 2
    assert "64" in err


def test_text_needs_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    triform.build(families.gpt2(vocab=20, **SIZES)).save(tmp_path / "bare")
    code, _, err = run(capsys, "complete", str(tmp_path / "bare"), "a")
    assert code == 2
    assert "tokenizer" in err
    assert torch.is_tensor(triform.load(tmp_path / "bare").logits([[1]]))


def test_conversions_take_the_place_of_nothing(
    decoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "export", str(decoder), "--out", str(tmp_path / "half"), "--dtype", "float16")
    assert (code, out.strip()) == (0, str(tmp_path / "half"))
    before = (tmp_path / "half" / "model.safetensors").read_bytes()
    code, _, err = run(capsys, "export", "tiny-decoder", "--out", str(tmp_path / "half"))
    assert code == 2
    assert "already holds something" in err
    assert (tmp_path / "half" / "model.safetensors").read_bytes() == before
    code, _, err = run(capsys, "import", str(tmp_path / "half" / "config.json"), "--out", str(tmp_path / "new"))
    assert code == 2
    assert "not a llama2.c file" in err
    assert not (tmp_path / "new").exists()


def test_models_on_the_shelf(
    decoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path))
    assert "no models in" in run(capsys, "models")[1]
    triform.load(decoder).save(tmp_path / "models" / "mine")
    assert "complete, chat" in run(capsys, "models")[1]
    (row,) = json.loads(run(capsys, "models", "--json")[1])
    assert (row["name"], row["form"], row["tasks"]) == ("mine", "decoder", ["complete", "chat", "decide", "score"])
    assert run(capsys, "complete", "mine", "a", "--max-tokens", "2")[0] == 0


# --- as strangers type ----------------------------------------------------------------------------------------------


def typed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_commands_of_a_conversation_work_on_standard_input_too(
    decoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = ("--max-tokens", "3", "--temperature", "0")
    typed(monkeypatch, f"the cat\n\n/save {tmp_path}/a.json\n/reset\n/quit\nthe mat\n".encode())
    code, out, _ = run(capsys, "chat", str(decoder), *options)
    assert code == 0
    assert "forgotten" in out
    said = json.loads((tmp_path / "a.json").read_text())["messages"]
    assert [message["role"] for message in said] == ["user", "assistant"]
    assert said[1]["content"] == said[1]["content"].strip()
    typed(monkeypatch, b"the cat\n/save /nowhere/at/all.json\n")
    code, _, err = run(capsys, "chat", str(decoder), *options)
    assert code == 2
    assert "/nowhere/at/all.json cannot be written: No such file" in err


@pytest.mark.parametrize("command", ["complete", "chat"])
def test_bytes_that_are_no_text_are_one_line(
    command: str, decoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, b"the \xff\n")
    code, _, err = run(capsys, command, str(decoder))
    assert code == 2
    assert "0xff at byte 5" in err


def test_alternatives_are_shown_as_text(decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = triform.load(decoder).tokenizer
    assert tokenizer is not None
    base = ("complete", str(decoder), "the cat", "--max-tokens", "2", "--temperature", "0", "--logprobs", "2")
    tokens = json.loads(run(capsys, *base, "--json")[1])["tokens"]
    for other in (other for token in tokens for other in token["alternatives"]):
        assert f"{tokenizer.decode([other['token']])!r} {other['logprob']:.3f}" in run(capsys, *base)[1]


def test_a_model_says_which_tokens_it_cannot_spell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = train_tokenizer(TEXTS, kind="characters", vocab=60)
    spec = families.gpt2(vocab=tokenizer.vocab, **SIZES)
    Model(spec, triform.build(spec).network, tokenizer).save(tmp_path / "letters")
    (tmp_path / "in.txt").write_text("a cat\n日本\n")
    base = ("--max-tokens", "2")
    assert "unknown tokens: 2" in run(capsys, "complete", str(tmp_path / "letters"), "日本", *base)[2]
    asked = ("complete", str(tmp_path / "letters"), "--file", str(tmp_path / "in.txt"), *base)
    assert "unknown tokens: 2" in run(capsys, *asked)[2]


def test_python_has_the_same_names(decoder: Path, masked: Path) -> None:
    model = triform.load(decoder)
    asked = {"max_tokens": 4, "temperature": 0.0}
    said = model.chat("the cat", **asked)
    assert str(said) == said.message.content
    assert model.run("the cat", **asked) == said
    assert model.run(["the cat"], **asked) == [said]
    longer = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]
    assert model.chat([*longer, {"role": "user", "content": "the mat"}], **asked).message.role == "assistant"
    for wrong in ("", [], [{"role": "cat", "content": "miaow"}]):
        with pytest.raises(TriformError, match="this is no conversation"):
            model.chat(wrong)
    assert len(triform.load(masked).fill("the [MASK] cat", k=2).masks[0]) == 2


def test_labels_and_words_that_look_like_markup_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    chances = (LabelProbability("[/nothing]", 0.75), LabelProbability("[red]", 0.25))
    print_parts(get_task("classify").render(Classification(labels=("[/nothing]",), chances=chances)))
    out = capsys.readouterr().out
    assert "[/nothing]" in out
    assert "[red]" in out
    print_parts(get_task("fill").render(FilledText(text="a [/b] c", masks=((Candidate(1, "[/b]", 0.5),),))))
    assert capsys.readouterr().out.count("[/b]") == 2


def test_a_draft_model_changes_no_answer(
    decoder: Path, masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = triform.load(decoder)
    small = families.gpt2(vocab=model.spec.vocab, **(SIZES | {"width": 8}))
    model.replace(spec=small, network=triform.build(small, seed=4).network).save(tmp_path / "small")
    base = ("complete", str(decoder), "the cat", "--max-tokens", "20", "--temperature", "0.7", "--seed", "5")
    plain = run(capsys, *base)
    assert plain[0] == 0
    assert run(capsys, *base, "--draft", str(tmp_path / "small")) == plain
    code, _, said = run(capsys, *base, "--draft", str(masked))
    assert (code, "the draft model is of the form encoder" in said) == (2, True)
    assert run(capsys, "complete", str(tmp_path / "small"), "the cat", "--draft", str(decoder))[0] == 2
    assert run(capsys, "serve", str(decoder), "--draft", str(tmp_path / "small"), "--check")[0] == 0
    code, _, said = run(capsys, "serve", str(decoder), str(masked), "--draft", str(tmp_path / "small"), "--check")
    assert (code, "serve one model" in said) == (2, True)


def test_a_long_prompt_is_kept_in_a_folder(decoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = triform.load(decoder)
    long = families.gpt2(vocab=model.spec.vocab, **(SIZES | {"context": 512}))
    model.replace(spec=long, network=triform.build(long, seed=4).network).save(tmp_path / "long")
    base = ("complete", str(tmp_path / "long"), "the fat ginger cat sat on a mat " * 15, "--max-tokens", "5")
    plain = run(capsys, *base)
    for _ in range(2):
        assert run(capsys, *base, "--prefix-cache", str(tmp_path / "kv")) == plain
        assert len(list((tmp_path / "kv").iterdir())) >= 1
    assert run(capsys, *base, "--prefix-cache", str(decoder / "config.json"))[0] == 2
