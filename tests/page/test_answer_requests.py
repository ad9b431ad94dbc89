"""What a page is told is what the model did: the numbers add up, and what is too much or not there is refused."""

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from page_models import FORMS, LONG, TEXT, loaded, looker, run
from served_models import encoder
from tiny_models import EVERY, enlarge_weights

from triform.core import inputs
from triform.core.initial_weights import build_network
from triform.errors import TriformError
from triform.inspect.ablations import steering_vector
from triform.inspect.compare_models import compare as compare_models
from triform.inspect.parse_changes import ChangeSources
from triform.inspect.taps import tap_outputs
from triform.inspect.view import look
from triform.model import Model
from triform.page import requests
from triform.page.answer_requests import ANSWERS, answer_request
from triform.page.diagram import make_diagram
from triform.page.prediction_answers import merge_ranges
from triform.page.requests import Interventions, OffFeedforward, OffHead, PageRun
from triform.page.rounding import MAX_NUMBERS, round_to_lists
from triform.page.session import InspectionSession
from triform.parameters import count_parameters
from triform.spec import replace
from triform.tasks.classify import ClassifyTask

IDS = "3 4 5 6 7 8 9"


def questions(looker: InspectionSession, run: PageRun) -> list[requests.AnyPageRequest]:
    """One of every kind that this model can answer."""
    start = answer_request(looker, requests.StartRequest(run=run))
    stack = list(start["stacks"])[-1]
    n = len(start["stacks"][stack]["tokens"])
    own = {"run": run, "stack": stack, "kind": "self", "layer": 1}
    off = Interventions(
        heads=(OffHead(stack=stack, kind="self", layer=0, head=1),), feedforward=(OffFeedforward(stack=stack, layer=1),)
    )
    asks: list[requests.AnyPageRequest] = [
        requests.HeadsRequest(**own, queries=(0, n), keys=(0, n)),
        requests.FormulaRequest(**own, head=1, queries=(0, n), keys=(0, n)),
        requests.OverviewRequest(**own, head=1),
        requests.BirdseyeRequest(run=run),
        requests.BlockRequest(run=run, stack=stack, layer=1, query=1),
        requests.AddedRequest(**own, head=1, query=1),
        requests.StreamRequest(run=run, stack=stack, tokens=(0, n)),
        requests.PositionsRequest(stack=stack),
        requests.CostsRequest(phase="reading"),
        requests.AnswerRequest(run=run, position=1),
        requests.AnswerRequest(run=msgspec.structs.replace(run, change=off), position=1),
    ]
    if start["speaks"]:
        asks.append(requests.LensRequest(run=run, tokens=(0, 2)))
    if start["writes"]:
        asks.append(requests.StepsRequest(run=run, count=3))
    return asks


@pytest.mark.parametrize("name", EVERY)
def test_every_family_answers_every_question(name: str) -> None:
    one = InspectionSession(name, Model(EVERY[name], build_network(EVERY[name])))
    for question in questions(one, PageRun(text=IDS)):
        assert b"NaN" not in msgspec.json.encode(answer_request(one, question))


def test_no_question_is_forgotten() -> None:
    assert set(ANSWERS) == set(requests.AnyPageRequest.__args__)


@pytest.mark.parametrize("name", EVERY)
def test_the_diagram_holds_every_parameter(name: str) -> None:
    """Parts before, blocks of all layers, after, and the head: nothing is left out and nothing is told twice."""
    spec = EVERY[name]
    drawn = make_diagram(spec)
    tables = {part.path: part.parameters for one in drawn.stacks for part in (*one.before, *one.after)}
    blocks = sum(part.in_all for one in drawn.stacks for part in one.block)
    for one in drawn.stacks:
        stored = 1 if spec.stacks[one.name].shared else one.layers
        lacking = 0 if spec.stacks[one.name].first_norm else spec.width
        assert sum(part.in_all for part in one.block) == stored * sum(part.parameters for part in one.block) - lacking
    assert sum(tables.values()) + blocks + drawn.head.parameters == count_parameters(EVERY[name]) == drawn.parameters


@pytest.mark.parametrize("form", FORMS)
def test_one_head_adds_up(form: str) -> None:
    one, given = looker(form), run()
    stack = list(one.model.spec.stacks)[-1]
    n = len(answer_request(one, requests.StartRequest(run=given))["stacks"][stack]["tokens"])
    where = {"run": given, "stack": stack, "kind": "self", "layer": 1}
    found = answer_request(one, requests.FormulaRequest(**where, head=2, queries=(0, n), keys=(0, n)))
    mask = np.array([[-np.inf if x is None else x for x in row] for row in found["mask"]])
    masked = np.array(found["scores"]) + mask
    weights = np.exp(masked) / np.exp(masked).sum(-1, keepdims=True)
    assert np.abs(weights - np.array(found["weights"])).max() < 1e-4
    assert np.abs(weights @ np.array(found["v"]) - np.array(found["mixed"])).max() < 1e-3
    assert (
        np.abs(np.array(found["q"]) @ np.array(found["k"]).T * found["scale"] - np.array(found["scores"])).max() < 2e-3
    )
    together = answer_request(one, requests.HeadsRequest(**where, queries=(0, n), keys=(0, n)))
    assert together["weights"][2] == found["weights"]
    sum_of = answer_request(one, requests.AddedRequest(**where, head=2, query=1))
    parts = sum(np.array(sum_of[name]["numbers"]) for name in ("before", "head", "others"))
    assert np.abs(parts - np.array(sum_of["after"]["numbers"])).max() < 1e-3


def test_keys_outside_the_window_are_told_as_a_sum() -> None:
    one = looker("decoder")
    found = answer_request(
        one,
        requests.FormulaRequest(run=run(), stack="decoder", kind="self", layer=1, head=0, queries=(5, 8), keys=(5, 8)),
    )
    assert np.abs(np.array(found["weights"]).sum(-1) + np.array(found["outside"]) - 1).max() < 1e-4
    assert max(found["outside"]) > 0.01


@pytest.mark.parametrize("form", FORMS)
def test_looking_is_not_felt_outside(form: str) -> None:
    """While the page runs a changed model, the model itself gives the same bits."""
    model, one = loaded(form), looker(form)
    stack = list(model.spec.stacks)[-1]
    ids = [one.encode_text(TEXT)]
    goal = [one.encode_target(run())] if one.has_target else None

    def logits() -> torch.Tensor:
        return inputs.compute_logits(model.network, model.spec, ids, target=goal)

    before = logits()
    heads = tuple(OffHead(stack=stack, kind="self", layer=0, head=head) for head in range(4))
    from triform.page.session import apply_switches

    with apply_switches(one.model.network, Interventions(heads=heads, temperature=3.0)):
        inside = inputs.compute_logits(one.model.network, model.spec, ids, target=goal)
        assert torch.equal(logits(), before)
    assert not torch.equal(inside, before)
    shared = {x.data_ptr() for x in model.network.parameters()}
    assert {x.data_ptr() for x in one.model.network.parameters()} == shared


@pytest.mark.parametrize("form", FORMS)
def test_a_head_that_is_off_changes_the_answer(form: str) -> None:
    one = looker(form)
    stack = list(one.model.spec.stacks)[-1]
    off = Interventions(heads=(OffHead(stack=stack, kind="self", layer=1, head=0),))
    at = answer_request(one, requests.StartRequest(run=run()))["position_asked"]
    found = answer_request(one, requests.AnswerRequest(run=run(change=off), position=at))
    assert found["was"]["before"] != found["was"]["after"]
    assert found["parted"] > 0
    assert max(found["turned"]) > 0


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several labels"])
def test_labels_have_the_probabilities_that_the_task_gives(several: bool) -> None:
    model = encoder("classify").replace(memo={"several": several})
    text = "the fat ginger cat sat on a mat"
    (said,) = ClassifyTask().run([text], model=model, options=ClassifyTask().options(top=3))
    found = answer_request(
        InspectionSession("labels", model), requests.AnswerRequest(run=PageRun(text=text), position=0)
    )
    assert dict(zip(found["labels"], found["chances"], strict=True)) == pytest.approx(
        {one.label: one.probability for one in said.chances}, rel=1e-4
    )
    off = Interventions(heads=(OffHead(stack="encoder", kind="self", layer=0, head=1),))
    changed = answer_request(
        InspectionSession("labels", model), requests.AnswerRequest(run=PageRun(text=text, change=off), position=0)
    )
    assert changed["was"]["before"] == found["chances"]
    assert changed["was"]["after"] == changed["chances"] != found["chances"]


def test_a_head_of_one_label_gives_its_score() -> None:
    model = encoder("classify")
    spec = replace(model.spec, head=replace(model.spec.head, labels=1))
    looked = InspectionSession(
        "score", model.replace(spec=spec, network=enlarge_weights(build_network(spec)), labels=("LABEL_0",))
    )
    found = answer_request(looked, requests.AnswerRequest(run=PageRun(text="the cat"), position=0))
    assert (found["labels"], found["chances"]) == ([], [])
    assert found["score"] == pytest.approx(float(looked.view(PageRun(text="the cat")).logits[0, 0]), rel=1e-4)


def test_a_word_in_its_contexts_begins_as_one_vector() -> None:
    one = looker("encoder")
    found = answer_request(
        one, requests.ContextsRequest(texts=("the fat cat", "a cat sat on the mat", "cat"), word="cat")
    )
    assert found["at"] == [2, 1, 0]
    assert found["tokens"] == ["cat"] * 3
    assert np.array(found["degrees"][0]).max() < 1e-3
    assert np.array(found["degrees"][-1]).max() > 1
    plane, lengths = np.array(found["plane"][-1]), np.array(found["lengths"][-1])
    assert (np.linalg.norm(plane, axis=-1) <= lengths * 1.001).all()


def test_steps_read_from_the_cache_what_they_do_not_compute() -> None:
    one = looker("decoder")
    found = answer_request(one, requests.StepsRequest(run=run(), count=3))
    assert found["steps"][0]["computed"] == [[0, found["read"]]]
    assert [step["computed"] for step in found["steps"][1:]] == [
        [[9 + i, 10 + i]] for i in range(len(found["steps"]) - 1)
    ]
    assert [step["from_cache"] for step in found["steps"][1:]] == [[[0, 9 + i]] for i in range(len(found["steps"]) - 1)]


def test_an_encoder_decoder_writes_its_target_from_the_start_token() -> None:
    """Also where a target is given: what the decoder reads is one thing, what the model writes another."""
    one = looker("encoder-decoder")
    target = answer_request(one, requests.StartRequest(run=run()))["stacks"]["decoder"]["tokens"]
    for asked in (run(), run(target="a mat")):
        found = answer_request(one, requests.StepsRequest(run=asked, count=64))
        assert found["read"] == 1
        assert found["tokens"][: len(target)] == target
        assert [step["token"] for step in found["steps"]][: len(target) - 1] == target[1:]
        assert found["steps"][0]["computed"] == [[0, 1]]
    assert answer_request(one, requests.StartRequest(run=run()))["position_asked"] == 0


def test_a_change_rewrites_the_whole_target() -> None:
    one = looker("encoder-decoder")
    heads = tuple(
        OffHead(stack="decoder", kind="cross", layer=layer, head=head) for layer in (0, 1) for head in range(4)
    )
    before, after = (
        [
            step["token"]
            for step in answer_request(one, requests.StepsRequest(run=run(change=change), count=64))["steps"]
        ]
        for change in (Interventions(), Interventions(heads=heads))
    )
    assert len(before) == len(after) == 64
    assert before != after


def test_a_glance_at_2000_tokens_misses_no_peak() -> None:
    one = looker("decoder")
    found = answer_request(one, requests.OverviewRequest(run=run(LONG), stack="decoder", kind="self", layer=1, head=1))
    view = one.view(run(LONG))
    peak = max(float(view.attention(1, 1, queries=slice(at, at + 250)).values.max()) for at in range(0, 2000, 250))
    assert (found["step"], len(found["cells"]), len(found["cells"][0])) == (16, 125, 125)
    assert max(map(max, found["cells"])) == pytest.approx(peak, rel=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_a_long_pass_is_kept_in_part_with_the_same_numbers(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [answer_request(looker(form), question) for question in questions(looker(form), run())]
    monkeypatch.setattr("triform.page.session.MAX_PASS_BYTES", 0)
    monkeypatch.setattr("triform.page.session.MAX_CACHE_BYTES", 0)
    assert [answer_request(looker(form), question) for question in questions(looker(form), run())] == whole


def test_of_a_long_pass_only_what_is_asked_for_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No layer above the one that is asked for, and the head at the one position that is."""
    monkeypatch.setattr("triform.page.session.MAX_PASS_BYTES", 0)
    one, ran = looker("decoder"), list[tuple[str, int]]()
    where = {"run": run(), "stack": "decoder", "kind": "self", "layer": 0}

    def note(path: str, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ran.append((path, output.shape[1]))

    with tap_outputs(one.model.network, "decoder.blocks.? readout", note):
        answer_request(one, requests.FormulaRequest(**where, head=0, queries=(0, 3), keys=(0, 3)))
        answer_request(one, requests.OverviewRequest(**where, head=3))
        assert ran == [("decoder.blocks.0", 9)]
        answer_request(one, requests.AnswerRequest(run=run(), position=4))
        assert ran[1:] == [("decoder.blocks.0", 9), ("decoder.blocks.1", 9), ("readout", 1)]


# --- the language of changes, the dials, all heads, one block --------------------------------------------------------

LINES = (
    "off L1",
    "scale L0H1 0.5",
    "patch L0@1",
    "mean L1H0",
    "resample L0H2",
    "steer L0 2",
    "mask past 2",
    "temperature 2",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_language_is_what_python_does(form: str, line: str) -> None:
    """Every change of the language, in every form: the page's answer is that of the patched model."""
    one = looker(form)
    texts = ("the mole sat on a mat", "a sea lion")
    change = Interventions(
        changes=(line,), source="the sea lion cat sat on a fat mat", texts=texts, toward=texts[:1], away=texts[1:]
    )
    given = run(text="the fat ginger cat sat on a mat", change=change)
    at = 3
    found = answer_request(one, requests.AnswerRequest(run=given, position=at))
    target = one.encode_target(given) if one.has_target else None
    vector = steering_vector(one.model, "L0", texts[:1], texts[1:]) if line.startswith("steer") and not target else None
    if target is None:
        source = look(one.model, change.source)
        sources = ChangeSources(run=source, texts=texts, vector=vector)
        after = compare_models(one.model, one.model.patched(line, sources=sources), given.text, position=at)
        assert found["parted"] == pytest.approx(after.divergence(), rel=1e-3, abs=1e-5)
    assert found["was"]["before"] != found["was"]["after"]


def test_an_embedder_shows_cosines_with_its_neighbours() -> None:
    one = InspectionSession("vectors", encoder("embed"))
    off = Interventions(changes=("off L0",))
    near = ("the fat ginger cat", "a sea lion")
    asked = requests.AnswerRequest(run=PageRun(text="the fat ginger cat"), position=0, neighbours=near)
    same = answer_request(one, asked)["nearest"]
    assert same["before"] == same["after"]
    assert same["before"][:2] == pytest.approx([1, 1], abs=1e-4)
    moved = answer_request(one, msgspec.structs.replace(asked, run=PageRun(text="the fat ginger cat", change=off)))
    comparison = compare_models(one.model, one.model.patched("off L0"), "the fat ginger cat", neighbours=near)
    assert moved["nearest"]["after"] == pytest.approx(comparison.nearest().values[:, 1].tolist(), abs=1e-4)
    assert moved["nearest"]["before"] == same["before"] != moved["nearest"]["after"]


def test_the_last_tokens_alone_are_a_text_of_their_own() -> None:
    """Context 3 of 7: what the model predicts is what it predicts behind these three."""
    one, text = looker("decoder"), "the fat ginger cat sat on a"
    cut = PageRun(text=text, change=Interventions(context=3))
    found = answer_request(one, requests.AnswerRequest(run=cut, position=6))
    alone = answer_request(one, requests.AnswerRequest(run=PageRun(text="sat on a"), position=2))
    assert (found["labels"], found["chances"]) == (alone["labels"], alone["chances"])
    with pytest.raises(TriformError, match="token 2 is not among the last 3 tokens"):
        answer_request(one, requests.AnswerRequest(run=cut, position=2))


def test_the_temperature_of_sampling_divides_the_logits() -> None:
    one = looker("decoder")
    cold = answer_request(one, requests.AnswerRequest(run=run(), position=3, sampling=0.5))
    logits = one.view(run()).logits[0, 3].double()
    assert cold["chances"][0] == pytest.approx(float((logits / 0.5).softmax(-1).max()), rel=1e-4)
    assert cold["was"]["before"] != cold["was"]["after"]


def test_all_heads_are_told_in_a_few_numbers() -> None:
    one = looker("encoder-decoder")
    found = answer_request(one, requests.BirdseyeRequest(run=run(text="the cat sat the cat")))["kinds"]
    assert [(each["stack"], each["kind"]) for each in found] == [
        ("encoder", "self"),
        ("decoder", "self"),
        ("decoder", "cross"),
    ]
    view = one.view(run(text="the cat sat the cat"))
    weights = view.attention(1, 2, stack="encoder").values
    measures = found[0]["measures"]
    assert measures["previous token"][1][2] == pytest.approx(
        np.mean([weights[i, i - 1] for i in range(1, 5)]), rel=1e-4
    )
    assert measures["induction"][1][2] == pytest.approx((weights[3, 1] + weights[4, 2]) / 2, rel=1e-4)
    assert measures["first token"][1][2] == pytest.approx(weights[1:, 0].mean(), rel=1e-4)
    assert list(found[2]["measures"]) == ["first token", "spread"]


@pytest.mark.parametrize("form", FORMS)
def test_a_block_is_played_from_its_input_to_its_output(form: str) -> None:
    """Additions chain: each begins with what the one before has left, and the last gives the block's output."""
    one = looker(form)
    stack = list(one.model.spec.stacks)[-1]
    steps = answer_request(one, requests.BlockRequest(run=run(), stack=stack, layer=1, query=2))["steps"]
    names = [step["name"] for step in steps]
    assert [name for name in names if name in ("attend", "up", "down")] == ["attend"] * names.count("attend") + [
        "up",
        "down",
    ]
    adds = [step for step in steps if step["name"] == "add"]
    for step in adds:
        parts = np.array(step["given"]["numbers"]) + np.array(step["matrix"]["cells"][0][:16])
        assert parts == pytest.approx(np.array(step["made"]["numbers"]), abs=1e-3)
    block = one.view(run()).record.last_call(f"{stack}.blocks.1").output[0, 2]
    assert steps[-1]["made"]["numbers"] == pytest.approx(block.tolist(), rel=1e-3, abs=1e-4)
    attend = next(step for step in steps if step["name"] == "attend")
    assert attend["matrix"]["shape"][0] == 4
    if attend["matrix"]["shape"][1] <= 40:  # else cells are the largest of several
        assert np.array(attend["matrix"]["cells"]).sum(-1) == pytest.approx(np.ones(4), abs=1e-3)


# --- what is refused --------------------------------------------------------------------------------------------------

HERE = {"run": run(), "stack": "decoder", "kind": "self"}
REFUSED = {
    f"are 4,000,000 numbers, the limit is {MAX_NUMBERS:,}; request fewer": requests.FormulaRequest(
        **HERE | {"run": run(LONG)}, layer=0, head=0, queries=(0, 2000), keys=(0, 2000)
    ),
    "4 heads × 2,000 queries": requests.HeadsRequest(
        **HERE | {"run": run(LONG)}, layer=0, queries=(0, 2000), keys=(0, 2000)
    ),
    "layer 2 is not in this decoder; its layers are 0 to 1": requests.HeadsRequest(
        **HERE, layer=2, queries=(0, 2), keys=(0, 2)
    ),
    "head 4 is not in decoder.blocks.0.attention; its heads are 0 to 3": requests.FormulaRequest(
        **HERE, layer=0, head=4, queries=(0, 2), keys=(0, 2)
    ),
    "queries 3 to 90 are out of range; the text has 0 to 9": requests.HeadsRequest(
        **HERE, layer=0, queries=(3, 90), keys=(0, 2)
    ),
    "query 9 is out of range; the text has 0 to 8": requests.AddedRequest(**HERE, layer=0, head=0, query=9),
    "stack='encoder' is not in this model": requests.PositionsRequest(stack="encoder"),
    "has 3,000 tokens, the model's context is 2,100": requests.StartRequest(run=run("cat " * 3000)),
    "the text is empty": requests.StartRequest(run=run("")),
    "only encoder-decoders have a target": requests.StartRequest(run=run(target="cat")),
    "'dog' is not in 'the cat'": requests.ContextsRequest(texts=("the cat",), word="dog"),
    "request at most 32": requests.LensRequest(run=run(LONG), tokens=(0, 100)),
    "patch takes its values from another text": requests.AnswerRequest(
        run=run(change=Interventions(changes=("patch L0",))), position=0
    ),
    "unknown change 'of'; did you mean 'off'?": requests.AnswerRequest(
        run=run(change=Interventions(changes=("of L0",))), position=0
    ),
    "layer 7 is not in this decoder": requests.AnswerRequest(
        run=run(change=Interventions(changes=("off L7H0",))), position=0
    ),
    "this text has 9 tokens, the patch of decoder.blocks.0 comes from a text of 2": requests.AnswerRequest(
        run=run(change=Interventions(changes=("patch L0",), source="the cat")), position=0
    ),
    "position 99 is out of range": requests.AnswerRequest(run=run(), position=99),
    "temperature=0.0 is out of range": requests.AnswerRequest(
        run=run(change=Interventions(temperature=0.0)), position=0
    ),
}  # fmt: skip


@pytest.mark.parametrize("says", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(says: str) -> None:
    with pytest.raises(TriformError) as error:
        answer_request(looker("decoder"), REFUSED[says])
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_without_tokenizer_reads_ids() -> None:
    one = InspectionSession("bare", loaded("decoder").replace(tokenizer=None))
    assert answer_request(one, requests.StartRequest(run=PageRun(text="3 1 4")))["stacks"]["decoder"]["ids"] == [
        3,
        1,
        4,
    ]
    with pytest.raises(TriformError, match="no tokenizer; give token ids"):
        answer_request(one, requests.StartRequest(run=run()))


@given(st.lists(st.floats(-1e30, 1e30), min_size=1))
def test_numbers_keep_five_digits(values: list[float]) -> None:
    short = round_to_lists(np.array(values))
    assert all(abs(a - b) <= 1e-4 * abs(b) + 1e-30 for a, b in zip(short, values, strict=True))


@given(st.sets(st.integers(0, 60)))
def test_ranges_are_the_same_numbers(numbers: set[int]) -> None:
    assert [i for a, b in merge_ranges(sorted(numbers)) for i in range(a, b)] == sorted(numbers)


def test_old_passes_are_dropped_before_a_new_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old and new together stay within the bound, also while the new one is made."""
    runs = [PageRun(text="the cat"), PageRun(text="the mat")]
    size = InspectionSession("m", loaded("decoder")).view(runs[0]).record.bytes
    one = InspectionSession("m", loaded("decoder"), cache_bytes=size * 3 // 2)
    kept: list[int] = []

    def noted(*given: Any, **more: Any) -> Any:
        kept.append(len(one._views))
        return look(*given, **more)

    monkeypatch.setattr("triform.page.session.look", noted)
    for one_run in (runs[0], runs[1], runs[1], runs[0]):
        one.view(one_run)
    assert kept == [0, 0, 0]
    assert len(one._views) == 1
