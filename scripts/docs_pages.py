"""Pages of the documentation site that are generated from other files and the code (a mkdocs hook).

Options and commands come from the code itself, so that they cannot be outdated: building the site
needs the package installed.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
OTHER_PAGES = "More"
RESULTS = "Results"  # the section that takes all pages of docs/results

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and list those that the navigation leaves out."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_relocated(text, Path("."))))
    for page, make in GENERATED.items():
        files.append(File.generated(config, page, content=make()))
    if config.nav is not None:
        _list_others(config.nav, sorted(file.src_uri for file in files.documentation_pages()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to files of the repository, which lie outside the site."""
    if page.file.src_uri in PAGES.values():
        return markdown
    return _relocated(markdown, Path("docs"))


def _list_others(nav: list[Any], pages: list[str]) -> None:
    """Add the pages that the navigation does not name: results to their section, others last."""
    listed = set(_listed(nav))
    others = [page for page in pages if page not in listed]
    results = [page for page in others if page.startswith(f"{RESULTS.lower()}/")]
    for section in nav:
        if isinstance(section, dict) and RESULTS in section:
            section[RESULTS].extend(results)
            others = [page for page in others if page not in results]
    if others:
        nav.append({OTHER_PAGES: others})


def _listed(nav: Any) -> Iterator[str]:
    """All pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from _listed(value)
    elif isinstance(nav, list):
        for value in nav:
            yield from _listed(value)


def _relocated(text: str, folder: Path) -> str:
    """Turn the links of a page into links of the site; links that leave the site become text.

    Args:
        text: Markdown.
        folder: where its file lies in the repository.
    """

    def replace(match: re.Match[str]) -> str:
        target = match["target"]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = os.path.normpath(folder / target)
        if path in PAGES:
            place = PAGES[path]
        elif path.startswith("docs/"):
            place = path.removeprefix("docs/")
        else:
            return match["text"]
        return f"{match['image']}[{match['text']}]({place}{match['anchor'] or ''})"

    text = _LINK.sub(replace, text)
    return text.replace('="docs/', '="') if folder == Path(".") else text


def options_page() -> str:
    """Every option of every architecture, criterion and task."""
    from sut_fairseq.analysis.options import Described, describe, headings

    def table(described: Described) -> Iterator[str]:
        for group in described.groups:
            yield f"**{group.title}**\n"
            yield "| option | default | |\n|---|---|---|"
            for one in group.options:
                flag = f"`{one.flag} {one.value}`".replace(" `", "`")
                default = f"`{one.shown_default}`" if one.shown_default else ""
                yield f"| {flag} | {default} | {_cell(one.shown_help)} |"
            yield ""

    lines = [
        "# Options\n",
        "Made from the code when this site was built. `sut-options NAME` prints the same for one "
        "name, with the defaults that an architecture sets.\n",
    ]
    for heading, names in headings().items():
        lines.append(f"## {heading[0].upper()}{heading[1:]}\n")
        described = [describe(name) for name in names]
        model = described[0].model
        described = [one for one in described if one.name != model]
        if not model:
            for one in described:
                lines += [f"### {one.name}\n", f"{one.about}\n", *table(one)]
            continue
        base = describe(model)
        lines += [f"### The model {model}\n", f"{base.about}\n", *table(base)]
        if not described:
            continue
        lines += ["### What the architectures set\n", "| `--arch` | options |\n|---|---|"]
        for one in described:
            changed = (o for group in one.groups for o in group.options if o.preset)
            shown = ", ".join(f"`{o.flag} {o.shown_default}`" for o in changed)
            lines.append(f"| `{one.name}` | {shown} |")
        lines.append("")
    return "\n".join(lines)


def commands_page() -> str:
    """The help of every command."""
    from sut_data.commands import about, commands

    os.environ["COLUMNS"] = "100"
    lines = ["# Commands\n", "What `--help` prints. `sut` lists the commands.\n"]
    for name, command in commands().items():
        shown = importlib.import_module(command.module).make_parser().format_help()
        summary = about(command)
        lines += [f"## {name}\n", f"{summary[0].upper()}{summary[1:]}\n", f"```\n{shown}```\n"]
    return "\n".join(lines)


def measurements_page() -> str:
    """The raw files of the benchmarks as text."""
    from sut_fairseq.cli.benchmark import text_of

    lines = [
        "# All measurements\n",
        "The files behind the table of [benchmarks](benchmarks.md), printed as `sut-benchmark` "
        "prints them.\n",
    ]
    for path in sorted((ROOT / "docs" / "benchmarks").glob("*.json")):
        text = "\n".join(
            wrapped
            for line in text_of(json.loads(path.read_text(encoding="utf-8"))).splitlines()
            for wrapped in (textwrap.wrap(line, 120) if ", " in line else [line])
        )
        lines += [f"## [{path.stem}](benchmarks/{path.name})\n", f"```\n{text}\n```\n"]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


GENERATED = {
    "options.md": options_page,
    "commands.md": commands_page,
    "benchmark_tables.md": measurements_page,
}
