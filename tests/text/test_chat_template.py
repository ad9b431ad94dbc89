"""Chat templates: rendered as released ones expect, and stopped when they misbehave."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import put

from triform.errors import InputError, TriformError
from triform.text import chat_template
from triform.text.chat_template import TEMPLATE_FILE, ChatError, ChatTemplate, TemplateProcess

HELLO = [{"role": "user", "content": "Hi <b>&"}, {"role": "assistant", "content": "Hello"}]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# In the manner of the larger released ones: white space control, tools, dates, macros, namespaces, refusals, breaks.
LONG = """{{- bos_token }}
{%- macro said(message) -%}
    {{- '[' + message.role|upper + '] ' + message.content|trim }}
{%- endmacro %}
{%- set ns = namespace(system='', turns=0) %}
{%- if messages[0]['role'] == 'system' %}
    {%- set ns.system = messages[0].content %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- if not date_string is defined %}{%- set date_string = strftime_now("%Y") %}{%- endif %}
Year {{ date_string }}{{ undefined_thing }}
{%- if tools is not none %}
    {%- for tool in tools %}
        {{- '\\n' }}{{ tool | tojson(indent=2) }}
    {%- endfor %}
{%- endif %}
{% for message in messages %}
    {% if loop.index0 > 6 %}
        {% break %}
    {% endif %}
    {% if message.role not in ['user', 'assistant'] %}
        {{ raise_exception('Only user and assistant: ' + message.role) }}
    {% endif %}
    {%- generation %}
{{ said(message) }}
    {%- endgeneration %}
    {%- set ns.turns = ns.turns + 1 %}
{%- endfor %}
{% if add_generation_prompt %}{{ '[ASSISTANT] ' ~ ns.turns }}{% endif %}
"""
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "wie <warm>", "parameters": {"ä": [1, None, True]}},
    }
]


@pytest.fixture(scope="module")
def warm() -> Callable[..., str]:
    """Renders any template in one process, started again only when it was killed."""
    template = ChatTemplate("", special={})

    def render(source: str, messages: list[dict[str, str]] = HELLO) -> str:
        template.source = source
        return template.render(messages)

    return render


def test_a_conversation_becomes_text() -> None:
    template = ChatTemplate(CHATML, special={})
    assert template.render(HELLO) == (
        "<|im_start|>user\nHi <b>&<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.render(HELLO[:1], prompt=False) == "<|im_start|>user\nHi <b>&<|im_end|>\n"


def test_rendered_as_the_reference_renders(reference: ModuleType, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    special = {"bos": "<s>", "eos": "</s>"}
    theirs = reference.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE({"<s>": 0, "</s>": 1}, [])), bos_token="<s>", eos_token="</s>"
    )
    ours = {source: ChatTemplate(source, special=special) for source in (CHATML, LONG)}
    message = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=20)})

    @settings(max_examples=30, deadline=None)
    @given(
        messages=st.lists(message, min_size=1, max_size=9), prompt=st.booleans(), tools=st.sampled_from([None, TOOLS])
    )
    def check(messages: list[dict[str, str]], prompt: bool, tools: list[dict[str, object]] | None) -> None:
        for source, template in ours.items():
            want = theirs.apply_chat_template(
                messages, chat_template=source, tools=tools, tokenize=False, add_generation_prompt=prompt
            )
            assert template.render(messages, prompt=prompt, tools=tools) == want

    check()


def test_variables_of_the_template_itself() -> None:
    template = ChatTemplate(LONG, special={"bos": "<s>"})
    assert template.render(HELLO, date_string="1 May").startswith("<s>Year 1 May")
    assert template.render(HELLO).startswith(f"<s>Year {datetime.now().year}")


def test_many_are_rendered_as_each_alone_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_CONVERSATIONS_AT_ONCE", 7)
    started: list[TemplateProcess] = []
    monkeypatch.setattr(chat_template, "TemplateProcess", lambda: started.append(TemplateProcess()) or started[-1])
    template = ChatTemplate("{{ messages[0].content }}{% if messages|length > 1 %}{{ 1 / 0 }}{% endif %}", special={})
    talks = [[{"role": "user", "content": f"{number} " * (number * 300)}] for number in range(1, 40)]
    assert template.render_many(talks) == [template.render(talk) for talk in talks]
    assert template.render_many([]) == []
    with pytest.raises(ChatError, match="ZeroDivisionError"):  # one of many; the answers of the others are not lost
        template.render_many([talks[0], talks[0] * 2, talks[1]])
    assert template.render(talks[2]) == talks[2][0]["content"]
    assert len(started) == 1


def test_a_template_may_refuse() -> None:
    template = ChatTemplate(LONG, special={})
    with pytest.raises(ChatError, match="Only user and assistant: tool"):
        template.render([{"role": "tool", "content": ""}])
    assert template.render(HELLO)  # and go on


# --- where it comes from ------------------------------------------------------------------------------------------


def test_read_from_its_own_file_or_from_the_config(tmp_path: Path) -> None:
    assert ChatTemplate.read(tmp_path, special={}) is None
    put(tmp_path, tokenizer_config__json={"chat_template": "old"})
    assert ChatTemplate.read(tmp_path, special={}).source == "old"
    put(
        tmp_path,
        tokenizer_config__json={
            "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
        },
    )
    assert ChatTemplate.read(tmp_path, special={}).source == "d"
    put(tmp_path, chat_template__jinja="ü")
    assert ChatTemplate.read(tmp_path, special={}).source == "ü"
    ChatTemplate("new", special={}).save(tmp_path)
    assert (tmp_path / TEMPLATE_FILE).read_text() == "new"


def test_bad_templates_in_folders(tmp_path: Path) -> None:
    for files in (
        {"tokenizer_config__json": {"chat_template": [{"name": "rag", "template": "t"}]}},
        {"tokenizer_config__json": {"chat_template": 3}},
        {"tokenizer_config__json": b"\xff"},
        {"chat_template__jinja": b"\xff"},
        {"chat_template__jinja": "a" * 2_000_000},
    ):
        with pytest.raises(TriformError):
            ChatTemplate.read(put(tmp_path, **files), special={})
    with pytest.raises(ChatError, match="300,000 characters"):
        ChatTemplate("a" * 300_000, special={})


# --- misbehaviour -------------------------------------------------------------------------------------------------

BOMBS = {
    "endless loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "one long operation": "{{ (9 ** (9 ** 9)) % 7 }}",
    "slow compilation": "{% if a %}" * 900 + "{% for b in c %}" * 20,
    "memory": "{{ 'a' * 10**9 }}",
    "memory by doubling": "{% set n = namespace(s='a') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "memory by format": "{{ '%999999999d' | format(1) }}",
    "memory by indent": "{{ messages | tojson(indent=999999999) }}",
    "range": "{{ range(10**9) | list }}",
    "output": "{% for i in range(40000) %}{{ '0123456789' * 3 }}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "nesting": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "class": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__['json'] }}",
    "methods": "{{ cycler.__init__.__globals__.os.system('true') }}",
    "format string": "{{ ('{0.__class__.__base__}').format(1).x.y }}",
    "dict": "{{ dict.fromkeys('ab').__class__ }}",
    "lorem": "{{ lipsum(n=99999) }}",
    "change": "{% set x = messages.append(1) %}",
    "change a dict": "{% set x = messages[0].update(a=1) %}",
    "file": "{% include '/etc/passwd' %}",
    "import": "{% from '/etc/passwd' import x %}",
    "syntax": "{% for %}",
    "unknown tag": "{% do x %}",
    "division": "{{ 1 / 0 }}",
    "escape codes": "{{ raise_exception('\x1b[31mred') }}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped_and_said(name: str, warm: Callable[..., str]) -> None:
    limits = {
        "endless loop": "250 ms",
        "one long operation": "250 ms",
        "memory": "256 MiB",
        "output": "1,048,576 bytes",
    }
    with pytest.raises(ChatError, match=limits.get(name, "the chat template")) as found:
        warm(BOMBS[name])
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 700


def test_escapes_find_nothing(warm: Callable[..., str]) -> None:
    """What the sandbox answers with nothing instead of an error is still nothing."""
    for source in (
        "''|attr('__class__')",
        "('{0.__class__}').format(1)",
        "raise_exception.__globals__",
        "namespace.__init__",
    ):
        assert warm("{{ " + source + " }}") == ""


def test_just_below_the_limits_is_fine() -> None:
    template = ChatTemplate("{{ messages[0].content }}", special={})
    most = "ä" * (1 << 19)
    assert template.render([{"content": most}]) == most
    with pytest.raises(ChatError, match="1,048,576 bytes"):
        template.render([{"content": most + "x"}])


def test_after_a_breach_the_next_conversation_is_served() -> None:
    loop = BOMBS["endless loop"]
    source = "{% if messages[0].content == 'bomb' %}" + loop + "{% endif %}ok"
    template = ChatTemplate(source, special={})
    assert template.render([{"content": "x"}]) == "ok"
    first = template._child.process.pid
    with pytest.raises(ChatError, match="250 ms"):
        template.render([{"content": "bomb"}])
    assert template.render([{"content": "x"}]) == "ok"
    assert template._child.process.pid != first


def test_a_child_that_dies_or_lies_is_an_error() -> None:
    template = ChatTemplate("ok", special={})
    assert template.render(HELLO) == "ok"
    template._child.process.kill()
    with pytest.raises(ChatError, match="broke the process"):
        template.render(HELLO)
    assert template.render(HELLO) == "ok"


def test_no_process_outlives_its_template() -> None:
    template = ChatTemplate("ok", special={})
    template.render(HELLO)
    process = template._child.process
    del template
    assert process.poll() is not None


def test_conversations_must_be_plain_and_bounded() -> None:
    template = ChatTemplate("ok", special={})
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for messages in ([{"content": object()}], [{"content": "a" * 9_000_000}], deep):
        with pytest.raises(InputError):
            template.render(messages)  # type: ignore[arg-type]


def test_surrogates_pass_through(warm: Callable[..., str]) -> None:
    assert warm("{{ messages[0].content }}", [{"content": "\ud83d"}]) == "\ud83d"


def test_threads_take_turns() -> None:
    template = ChatTemplate("{{ messages[0].content }}", special={})
    wrong: list[str] = []

    def talk(me: str) -> None:
        wrong.extend(got for _ in range(20) if (got := template.render([{"content": me}])) != me)

    threads = [threading.Thread(target=talk, args=(str(n) * 1000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_child_sees_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    template = ChatTemplate("ok", special={})
    template.render(HELLO)
    if os.path.exists("/proc/self/environ"):
        environ = Path(f"/proc/{template._child.process.pid}/environ").read_bytes()
        assert b"SECRET" not in environ


def test_after_a_bomb_the_next_process_is_already_there() -> None:
    """A conversation behind one that broke its process need not wait until another has started."""
    template = ChatTemplate("{% for m in messages %}{% for _ in range(m.n) %}{% endfor %}{% endfor %}ok", special={})
    assert template.render([{"n": 1}]) == "ok"
    first = template._child
    with pytest.raises(TriformError, match="processor time"):
        template.render([{"n": 10**5}] * 10**4)
    assert template._child is not first
    assert template._child is not None
    assert template._child.process.poll() is None
    assert template.render([{"n": 1}]) == "ok"


def test_limits_hold_without_asserts() -> None:
    """`python -O` removes asserts; nothing here may depend on one."""
    code = """if 1:
        import json, sys
        from triform.errors import TriformError
        from triform.text.chat_template import ChatTemplate
        assert False, "not run with -O"
        stopped = []
        for name, source in json.load(sys.stdin).items():
            try:
                ChatTemplate(source, special={}).render([{"role": "user", "content": ""}])
            except TriformError:
                stopped.append(name)
        print(json.dumps(stopped))
    """
    few = {name: BOMBS[name] for name in ("endless loop", "memory", "class")}
    found = subprocess.run(
        [sys.executable, "-O", "-c", code], input=json.dumps(few), capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout) == list(few)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_templates_never_break_us(warm: Callable[..., str], data: st.DataObject) -> None:
    text = list(LONG)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.sampled_from(["", "{{", "%}", "'", "(", "|", "\x00", "*9", ".", "__", "é"]))
    try:
        found = warm("".join(text))
    except TriformError:
        return
    assert isinstance(found, str)
