"""A page in one file: document, styles and scripts inserted into its template.

Text of the user or the model occurs only in the document, as JSON without a `<`. The scripts insert
it as text, never as markup. The page's own policy lets the browser run only these scripts, load
nothing and, unless the page is served, contact no server.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

# Each script uses those before it.
SCRIPTS = (
    *("dom", "state", "threshold", "tokens", "maps", "attention", "experts", "charts", "curves"),
    *("live", "main"),
)
STYLES = ("base", "choices", "panel", "drawings", "tables")

# In JSON these characters occur only in strings, where they may be escaped by number.
_ESCAPES = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}


def render(document: Mapping[str, Any]) -> str:
    """The page that shows a document of `analysis.page.document`."""
    script = "\n".join(_part(f"{name}.js") for name in SCRIPTS)
    style = "\n".join(_part(f"{name}.css") for name in STYLES)
    return Template(_part("page.html")).substitute(
        policy=policy(script, style, live=document["live"] is not None),
        title=html.escape(f"{document['model']['name']}, step by step"),
        style=style,
        document=to_json(document),
        script=script,
    )


def to_json(document: Mapping[str, Any]) -> str:
    """JSON in ASCII that cannot close the HTML element that contains it."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def policy(script: str, style: str, *, live: bool) -> str:
    """What the browser may do (Content-Security-Policy).

    Args:
        script, style: the contents of the elements, exactly as in the page.
        live: whether the page may send requests to the server that it comes from.
    """
    rules = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",  # the empty icon
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return files(__package__).joinpath("report_page", name).read_text(encoding="utf-8")
