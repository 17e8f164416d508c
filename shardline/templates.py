"""Documents from Jinja2 templates, which lie in the packages that fill them.

Every value is escaped for the kind of document, so that no name, message or path from a log
becomes markup. The kind is the file suffix of the template: `.html` or `.md`.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING

from shardline.text import format_count, format_time

if TYPE_CHECKING:
    from jinja2 import Environment

_MARKDOWN_SYNTAX = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")


def render_template(path: str, **values: object) -> str:
    """Render a template with escaped values.

    In Markdown, a value always stays in its line. The filter `code` makes it a code span. Both
    kinds have the filters `number` (`12,345`), `count("shard")` (`2 shards`) and `minute`.

    Args:
        path: The template, from the folder of this package: `lineage/page/report.html`.
        **values: The variables of the template. An undefined variable raises an error.
    """
    return _get_environment(path.rpartition(".")[2]).get_template(path).render(values)


def escape_markdown(text: object) -> str:
    """Return a text as one line of Markdown without any syntax in it."""
    return _MARKDOWN_SYNTAX.sub(r"\\\1", _format_line(text))


def _format_line(text: object) -> str:
    line = " ".join(str(text).split())
    return "".join(char if char.isprintable() else "�" for char in line)


@cache
def _get_environment(kind: str) -> Environment:
    # Most commands render no document and do not load Jinja2.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - see above
    from markupsafe import Markup  # noqa: PLC0415 - see above

    def finalize(value: object) -> object:
        """Escape a Markdown value. Jinja2 leaves Markup alone afterwards."""
        return value if hasattr(value, "__html__") else Markup(escape_markdown(value))  # noqa: S704

    def format_code(text: object) -> Markup:
        """Return a Markdown code span, in which only a backtick ends the span."""
        line = _format_line(text).replace("`", "'")
        return Markup(f"`{line}`")  # noqa: S704 - nothing in a code span is markup

    environment = Environment(
        loader=PackageLoader("shardline", ""),
        autoescape=True,
        finalize={"html": None, "md": finalize}[kind],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters |= {
        "code": format_code,
        "count": format_count,
        "minute": format_time,
        "number": partial("{:,}".format),
    }
    return environment
