# SPDX-License-Identifier: Apache-2.0
"""Links between the documents, and from code to them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]

#: Folders and kinds of files whose comments, messages and links name documents.
SOURCES = ("bpf", "daemon", "dashboards", "deploy", "tests")
CITING = {"", ".c", ".h", ".json", ".py", ".service", ".sh", ".toml", ".yaml", ".yml"}

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
#: A page that code, configuration or a comment names, with the heading if it names one.
_CITED = re.compile(r"(?<![\w/.-])docs/([A-Z]+\.md(?:#[\w-]+)?)")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text)).lower().replace(" ", "-")
        for text in headings
    )


def is_broken(target: str, here: Path) -> bool:
    """Whether a link from the page `here` leads to no file, or to no heading of its file."""
    path, _, anchor = target.partition("#")
    page = (here.parent / path).resolve() if path else here
    return not page.exists() or (bool(anchor) and anchor not in anchors(page))


def test_every_link_of_a_document_leads_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in _LINK.findall(_FENCED.sub("", page.read_text()))
        if not re.match(r"\w+:", target) and is_broken(target, page)
    ]
    assert broken == []


def test_every_document_that_the_code_cites_is_there() -> None:
    files = [ROOT / "Makefile", *(f for folder in SOURCES for f in (ROOT / folder).rglob("*"))]
    texts = {f: f.read_text(errors="ignore") for f in files if f.suffix in CITING and f.is_file()}
    cited = [(f, target) for f, text in texts.items() for target in _CITED.findall(text)]
    broken = [f"{f.name}: {target}" for f, target in cited if is_broken(target, DOCS / "x.md")]
    assert len(cited) > 20
    assert broken == []


def test_every_document_is_listed_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in readme] == []
