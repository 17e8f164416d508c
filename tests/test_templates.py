"""Escaping in templates: no value becomes markup or leaves its line."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from shardline import templates

HOSTILE = "<b>|`x_y`\n## no\x1b"
ESCAPED = "\\<b\\>\\|\\`x\\_y\\` \\#\\# no�"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ value }}", ESCAPED),
        ("{{ [value, 'a_b'] | join(', ') }}", f"{ESCAPED}, a\\_b"),
        ("{% macro cell(x) %}[{{ x }}]{% endmacro %}{{ cell(value) }}", f"[{ESCAPED}]"),
        ("{{ value | code }}", "`<b>|'x_y' ## no�`"),
        ("{{ size | number }} {{ size | count('shard') }}", "12,345 12,345 shards"),
    ],
)
def test_markdown_value_is_escaped_once(template: str, text: str) -> None:
    environment = templates._get_environment("md")
    assert environment.from_string(template).render(value=HOSTILE, size=12345) == text


def test_html_value_is_escaped() -> None:
    template = templates._get_environment("html").from_string("{{ value }} {{ [value] | tojson }}")
    assert template.render(value="<b>'") == '&lt;b&gt;&#39; ["\\u003cb\\u003e\\u0027"]'


def test_undefined_variable_raises() -> None:
    with pytest.raises(UndefinedError):
        templates._get_environment("md").from_string("{{ missing }}").render()
