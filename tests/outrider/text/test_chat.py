import re

import pytest

from outrider.text.chat import ChatTemplate, InvalidChat

CHATML = """\
{%- if messages[0]['role'] != 'system' -%}
    {{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' -}}
{%- endif -%}
{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}
{%- endfor -%}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}"""


def render(source, messages=(("user", "hi"),), **special_tokens):
    return ChatTemplate(source, special_tokens).render(messages)


def test_a_chatml_template_gives_the_prompt_that_the_model_was_trained_on():
    assert render(CHATML, [("system", "Short."), ("user", "hi")]) == (
        "<|im_start|>system\nShort.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(CHATML).startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi")


def test_special_tokens_are_there_by_role_and_missing_ones_are_empty():
    assert (
        render(
            "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}|{{ pad_token }}",
            bos_token="<s>",
            eos_token="</s>",
        )
        == "<s>hi</s>|"
    )


def test_lines_of_blocks_leave_no_blanks():
    assert render("  {% for m in messages %}\n{{ m.content }}\n  {% endfor %}\nend") == "hi\nend"


def test_what_hub_templates_use_is_there():
    assert render("{% for m in messages %}{% break %}{% endfor %}ok") == "ok"
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}") == "hi"
    assert render("{{ {'b': '<猫>', 'a': 1} | tojson }}") == '{"b": "<猫>", "a": 1}'
    assert render("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'
    assert re.fullmatch(r"\d{4}", render("{{ strftime_now('%Y') }}"))
    assert render("{% if tools is none and not documents %}none{% endif %}") == "none"


def test_a_refusal_comes_in_the_templates_own_words():
    with pytest.raises(InvalidChat, match="refuses the messages: Roles must alternate"):
        render("{{ raise_exception('Roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append('x') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ ''.__class__ }}{{ (''.__class__).__base__ }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source):
    with pytest.raises(InvalidChat, match="fails on these messages"):
        render(source)


def test_a_broken_template_is_refused_when_it_is_made():
    with pytest.raises(InvalidChat, match="broken"):
        ChatTemplate("{% for %}", {})
