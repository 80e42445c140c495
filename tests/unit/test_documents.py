# SPDX-License-Identifier: Apache-2.0
"""Links between the documents, and from code to them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]

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
    names = [str(page.relative_to(ROOT)) for page in PAGES if page.name != "README.md"]
    assert [name for name in names if f"({name})" not in readme] == []


def test_the_readme_is_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


# -- ARCHITECTURE: complete and true

ARCHITECTURE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
PACKAGE = ROOT / "daemon" / "pipelined"


def section(heading: str) -> str:
    return ARCHITECTURE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def first_cells(table: str) -> set[str]:
    """The names in backquotes of a table's first column."""
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_table_of_folders_has_every_folder_and_module_of_the_package() -> None:
    modules = {file.stem for file in PACKAGE.glob("*.py")} - {"__init__"}
    folders = {f"{file.parent.name}/" for file in PACKAGE.glob("*/__init__.py")}
    assert first_cells(section("Folders")) == modules | folders


def test_every_header_opens_with_what_it_is_about_where_the_page_says_so() -> None:
    assert "awk 'FNR == 3" in section("BPF headers")
    opened = {file.name: file.read_text().splitlines()[2] for file in (ROOT / "bpf").glob("*.h")}
    assert len(opened) > 30
    assert [name for name, line in opened.items() if not re.match(r" \* [A-Z`].{20}", line)] == []


def test_the_table_of_maps_has_every_map_that_a_header_defines() -> None:
    headers = (file.read_text() for file in (ROOT / "bpf").glob("*.h"))
    defined = re.findall(r"^MAP_\w+\(([a-z_]+)", "\n".join(headers), re.MULTILINE)
    assert first_cells(section("Maps")) == set(defined)


def test_what_the_page_says_is_in_a_file_is_in_that_file() -> None:
    said = re.findall(r"`([A-Za-z_.]+)` (?:in|of) `([a-z_/.]+\.(?:py|h))`", ARCHITECTURE)
    absent = [
        f"{name} in {path}"
        for name, path in said
        if not re.search(rf"\b{name.rpartition('.')[2]}\b", file_named(path).read_text())
    ]
    assert len(said) > 10
    assert absent == []


def file_named(path: str) -> Path:
    """A file of the package, or of the repository, as the page names it."""
    folders = (PACKAGE, ROOT, ROOT / "bpf")
    return next(folder / path for folder in folders if (folder / path).exists())


def test_what_the_page_names_is_in_the_source() -> None:
    source = "\n".join(
        file.read_text()
        for folder, pattern in (("bpf", "*.[hc]"), ("daemon/pipelined", "**/*.py"))
        for file in (ROOT / folder).glob(pattern)
        if "source" not in file.parts
    )
    named = re.findall(
        r"`([A-Za-z_.]+)`",
        section("Where is it?") + section("A walk: `sort` goes to sleep on a pipe"),
    )
    for name in named:
        if "/" not in name and not name.endswith((".h", ".c", ".py", ".md")):
            assert re.search(rf"\b{name.rpartition('.')[2]}\b", source), name


# -- names in docstrings and comments of the package


def test_a_name_that_a_docstring_has_of_another_module_is_there() -> None:
    texts = {
        file.stem: file.read_text() for file in PACKAGE.rglob("*.py") if "bpf" not in file.parts
    }
    modules = dict.fromkeys(texts, "") | {
        name: stem for stem, text in texts.items() for name in re.findall(r"(?m)^class (\w+)", text)
    }
    named = [
        (stem, owner, name)
        for stem, text in texts.items()
        for owner, name in re.findall(r"`([A-Za-z_]\w*)\.([A-Za-z_]\w*)`", text)
        if owner in modules
    ]
    absent = [
        f"{stem}.py: {owner}.{name}"
        for stem, owner, name in named
        if not re.search(
            rf"(?m)^\s*(?:(?:def|class) {name}\b|{name}\s*[:=])|self\.{name}\b",
            texts[modules[owner] or owner],
        )
    ]
    assert len(named) > 20
    assert absent == []
