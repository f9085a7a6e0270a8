from __future__ import annotations

import time
from typing import Any

import pytest

from clearhead.errors import TextError
from clearhead.text.chat_template import JinjaTemplate, PlayTemplate, chat_template

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA2 = """{{ bos_token }}{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' ~ message.content | trim ~ ' [/INST]' }}
    {%- elif message.role == 'assistant' %}
        {% generation %}{{ ' ' ~ message['content'] ~ eos_token }}{% endgeneration %}
    {%- else %}{{ raise_exception('no ' ~ message.role ~ ' here') }}
    {%- endif %}
    {%- if loop.index > 5 %}{% break %}{% endif %}
{%- endfor %}{{ messages | tojson }}{{ [1, {"a": "<é>"}] | tojson(indent=2) }}"""
CHAT = [
    {"role": "user", "content": " Who are you? <b> "},
    {"role": "assistant", "content": "naïve\n北京"},
    {"role": "user", "content": "{{ 7 * 7 }}"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("source", [CHATML, LLAMA2])
@pytest.mark.parametrize("add", [True, False])
def test_it_writes_what_transformers_writes(source: str, add: bool) -> None:
    utilities = pytest.importorskip("transformers.utils.chat_template_utils")
    wanted, _ = utilities.render_jinja_template([CHAT], chat_template=source, add_generation_prompt=add, **TOKENS)
    template = JinjaTemplate(source, TOKENS)
    assert template.render(CHAT, add) == wanted[0]
    assert template.render(CHAT, add) == wanted[0]  # by the same process


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 0.5 seconds"),
        (
            "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
            "memory",
        ),
        ("{{ 'a' * 99999999999 }}", "memory"),
        ("{% for i in range(20000) %}{{ 'a' * 1000 }}{% endfor %}", "more than 1,048,576 characters"),
        ("{{ ''.__class__.__mro__ }}{{ messages.append(1) }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "unsafe"),
        ("{% for", "not a template"),
        ("{{ raise_exception('roles must alternate') }}", "refuses this conversation: roles must alternate"),
    ],
)
def test_a_hostile_template_is_one_sentence(source: str, message: str) -> None:
    seconds = 0.5 if "seconds" in message else 10.0
    began = time.monotonic()
    with pytest.raises(TextError, match=message):
        JinjaTemplate(source, seconds=seconds).render(CHAT)
    assert time.monotonic() - began < 60


def test_it_goes_on_after_a_template_was_stopped() -> None:
    slow = "{% if messages|length > 1 %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = JinjaTemplate(slow + "{% endif %}ok", seconds=5.0)
    assert template.render(CHAT[:1]) == "ok"
    template.seconds = 0.2
    with pytest.raises(TextError, match="seconds"):
        template.render(CHAT)
    template.seconds = 10.0
    assert template.render(CHAT[:1]) == "ok"


class WithConfig:
    def __init__(self, **config: Any):
        self.config = config


def test_the_template_of_a_tokenizer() -> None:
    several = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ bos_token }}"}]
    own: Any = WithConfig(chat_template=several, bos_token={"content": "<s>"})
    assert chat_template(own).render(CHAT) == "<s>"
    none: Any = WithConfig()
    play = chat_template(none)
    assert isinstance(play, PlayTemplate)
    assert play.render(CHAT[:1]) == "USER:\n Who are you? <b> \n\nASSISTANT:\n"
