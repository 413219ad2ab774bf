"""Every name in docstrings, comments and pages exists: modules, files, classes and their members.

Moves and renames leave the old names behind in prose, where no import fails. Read with `ast`: nothing is
imported but the standard library. A name that fails here has gone, or is somebody else's: see `FOREIGN`.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("emulator", "sandbox", "tests", "benchmarks", "examples", "prompts", "docs")
SOURCES = [ROOT / "app.py"]
SOURCES += [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")]
)
FILES = {
    file.relative_to(ROOT).as_posix()
    for pattern in ("*.py", "*.md", "*.jinja")
    for file in (*ROOT.glob(pattern), *(f for d in FOLDERS for f in (ROOT / d).rglob(pattern)))
    if "node_modules" not in file.parts
}

#: Not ours: a package, and files that a program or a person makes up.
FOREIGN_FILES = {"discord.py"}
#: No Python of ours: other libraries' names, fields and event types of OpenAI's API, examples.
FOREIGN = {
    "KernelProvisioner", "_later_3_f", "a.b.c", "chat.completion",
    "chat.completion.chunk", "crm.find", "default_api.f", "docker.models.containers", "emulator.toml",
    "cache_control", "exec_KEY", "holder.field",
    "functions.f", "index.sqlite", "km_h", "linked", "live_relevance", "llama_cpp", "location.city",
    "name2", "name3", "output_item.added", "pydantic.ValidationError", "reasoning_text",
    "response.created", "self.item", "stream_options.include_usage", "syscall", "text.format", "websockets",
    "xs.append", "mcp__server__f", "server.f", "fs.get_weather", "research", "fs.search_files", "mcp__fs",
}  # fmt: skip
CODE = re.compile(r"(`{1,2})([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`]*\))?\1")
FILE = re.compile(r"(?<![\w./*-])((?:[\w-]+/)*[\w-]+\.(?:py|jinja|md))\b(?![/(])")
NAMING_COMMENT = re.compile(r"#.*(?:`|\.py|\.jinja|\.md)")


class Words(NamedTuple):
    """Prose in a file."""

    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def prose(source: Path) -> Iterator[Words]:
    """The docstrings (of attributes too) and comments of a module."""
    text = source.read_text()
    if NAMING_COMMENT.search(text):  # reading tokens is slow
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield Words(source, token.start[0], token.string)
    for node in nodes(source):
        match node:
            case ast.Expr(value=ast.Constant(value=str(words))):
                yield Words(source, node.lineno, words)


@cache
def ours() -> tuple[Words, ...]:
    return tuple(words for source in SOURCES for words in prose(source))


@cache
def nodes(source: Path) -> tuple[ast.AST, ...]:
    """The nodes of a module, itself first."""
    return (*ast.walk(ast.parse(source.read_text())),)


def names_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """What a module or a class defines or imports, and what a class's methods set on `self`."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=alias):
                yield alias or name


@cache
def modules() -> dict[str, set[str]]:
    """``emulator.reading.splitter`` -> the names in it."""
    found = {}
    for source in SOURCES:
        path = source.relative_to(ROOT).with_suffix("")
        parts = path.parts[:-1] if path.name == "__init__" else path.parts
        found[".".join(parts)] = set(names_in(nodes(source)))
    return found


@cache
def classes() -> dict[str, set[str]]:
    """Each class -> the names in it, and in the classes of that name elsewhere."""
    found: dict[str, set[str]] = {}
    for source in SOURCES:
        for node in nodes(source):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(names_in([*ast.walk(node)][1:]))
    return found


@cache
def used_names() -> set[str]:
    """Every name in the code itself, and every string that is one (a field, an environment variable)."""
    found = {*dir(builtins), *keyword.kwlist}
    for module in modules():
        found.update(module.split("."))
    for source in SOURCES:
        for node in nodes(source):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                    found.add(name)
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                    found.add(name)
                case ast.keyword(arg=str(name)) | ast.Constant(value=str(name)):
                    found.add(name)
    return found


@cache
def is_there(dotted: str) -> bool:
    """Whether a dotted name leads to something of ours, or of the standard library."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        path, rest = ".".join(parts[:cut]), parts[cut:]
        for module, names in modules().items():
            if module != path and not module.endswith(f".{path}"):
                continue
            if not rest or (rest[0] in names and _within(rest)):
                return True
    if parts[0] in classes() and _within(parts):
        return True
    return _in_the_library(parts)


def _within(parts: list[str]) -> bool:
    """Whether what follows the name of a class is in that class."""
    return len(parts) == 1 or parts[1] in classes().get(parts[0], ())


def _in_the_library(parts: list[str]) -> bool:
    value: object = builtins
    if parts[0] in sys.stdlib_module_names:
        value, parts = importlib.import_module(parts[0]), parts[1:]
    for part in parts:
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def unfenced(page: Path) -> str:
    """A page without its code blocks, line for line."""
    blank = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    return blank.sub(lambda block: "\n" * block.group().count("\n"), page.read_text())


def test_code_names_in_docstrings_and_comments_exist() -> None:
    missing = []
    for words in ours():
        for _, name in CODE.findall(words.text):
            if "." in name:
                there = FILE.fullmatch(name) is not None or is_there(name)
            else:  # without its module: the code itself uses that name somewhere
                there = name in used_names()
            if not there and name not in FOREIGN:
                missing.append(f"{words}: {name}")
    assert not missing, "\n".join(missing)


def test_files_named_in_docstrings_comments_and_pages_exist() -> None:
    missing = [
        f"{words}: {name}"
        for words in (*ours(), *(Words(page, 1, unfenced(page)) for page in PAGES))
        for name in FILE.findall(words.text)
        if name not in FOREIGN_FILES
        and not any(f"/{known}".endswith(f"/{name}") for known in FILES)
    ]
    assert not missing, "\n".join(missing)


def test_modules_named_in_pages_exist() -> None:
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for _, name in CODE.findall(unfenced(page))
        if name.split(".")[0] in FOLDERS and not (name in FOREIGN or is_there(name))
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("emulator.settings.settings", True),
        ("settings.Settings", True),
        ("Settings.api_key", True),
        ("sandbox.fences.docker.IMAGE", True),
        ("ast.parse", True),
        ("settings.Nothing", False),
        ("Settings.nothing", False),
        ("nowhere.Settings", False),
        ("ast.nothing", False),
    ],
)
def test_the_check_finds_only_names_that_exist(name: str, there: bool) -> None:
    assert is_there(name) is there
