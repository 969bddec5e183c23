"""`shardwright explain --html`: the explanation as one page that needs nothing else.

Decides that a page is made from the JSON document alone, that every figure on it is looked up there and
carries its place in it, that every text is escaped, and that nothing is ever fetched (a policy in the page
forbids it). The same document gives the same bytes.
"""

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shardwright.cli.page import charts

HERE = Path(__file__).parent
NBSP = "\N{NO-BREAK SPACE}"
UNKNOWN = "not known"


class Figures:
    """Looks up what the page shows: nothing gets onto it that is not in the document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def at(self, path: str) -> Any:  # noqa: ANN401 -- whatever JSON holds
        """Return the value at a JSON pointer. Raises KeyError, IndexError where there is none."""
        found: Any = self._document
        for part in path.strip("/").split("/"):
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found

    def number(self, path: str, unit: str = "", digits: int | None = None) -> Markup:
        """Return a figure with its unit, or that it is not known. `digits`: decimals to pad it to."""
        value = self.at(path)
        if value is None:
            return Markup('<span class="unknown">{}</span>').format(UNKNOWN)
        text = str(value) if digits is None else f"{value:.{digits}f}"
        after = f"{NBSP}{unit}" if unit else ""
        return Markup('<data value="{}" data-path="{}">{}</data>{}').format(value, path, text, after)

    def text(self, path: str) -> Markup:
        """Return a text of the document."""
        return Markup('<span data-path="{}">{}</span>').format(path, self.at(path))

    def mark(self, path: str, digits: int | None = None) -> Markup:
        """Return a figure or a text inside an SVG."""
        value = self.at(path)
        text = str(value) if digits is None or value is None else f"{value:.{digits}f}"
        return Markup('<tspan data-path="{}">{}</tspan>').format(path, text)


def render(document: dict[str, Any]) -> str:
    """Return the page of an explanation, given as its JSON document."""
    figures = Figures(document)
    return rendered("page.html.j2", document, n=figures.number, s=figures.text, m=figures.mark, charts=charts)


def rendered(template: str, document: dict[str, Any], **names: object) -> str:
    """Return a page, with style, script, the policy that forbids all else, and the document in it."""
    style, script = _asset("style.css"), _asset("script.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _environment().get_template(template).render(
        doc=document, policy=policy, style=Markup(style),  # noqa: S704 -- the package's own files, both
        script=Markup(script),  # noqa: S704
        data=_embedded(document), **names,
    )  # fmt: skip


def _embedded(document: dict[str, Any]) -> Markup:
    """Return the document as JSON that cannot end its script element."""
    text = json.dumps(document, ensure_ascii=False, indent=1)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # noqa: S704 -- no markup is left in it


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


@cache
def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
