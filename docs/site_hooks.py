"""What mkdocs does besides, for `make docs`: links that leave ``docs/`` lead to a copy of what they name.

The pages are read on a code host too, where `../emulator/cli/commands.py` is a file. In the site it is a page
of its own below ``source/``, so that the site is whole without a network and `--strict` checks each link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[1]
SHIM = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
PICTURES = (".png", ".svg")
FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file that a page, or such a page, links to."""
    seen = {file.src_uri for file in files}
    unread = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    while unread:
        path = unread.pop()
        for named in _links((ROOT / path).read_text(), path):
            if _uri(named) not in seen and (ROOT / named).exists():
                seen.add(_uri(named))
                files.append(_file(named, config))
                unread += [named] if named.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    path = page.file.src_uri.removeprefix("source/")
    path = path if page.file.src_uri.startswith("source/") else f"docs/{path}"
    if path.endswith(".md") and (ROOT / path).exists():
        return _rewritten(markdown, path)
    return markdown


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Take what the `offline` plugin fetches from unpkg.com out of the site itself."""
    return output.replace(SHIM, get_relative_url("iframe-worker.js", page.url))


def on_post_template(output: str, **_: Any) -> str:
    return output.replace(SHIM, "iframe-worker.js")


def _file(path: str, config: MkDocsConfig) -> File:
    if path.endswith(PICTURES):
        return File.generated(config, _uri(path), abs_src_path=str(ROOT / path))
    return File.generated(config, _uri(path), content=_content(path))


def _links(markdown: str, path: str) -> list[str]:
    """The files of the project, as paths from its root, that the page at ``path`` links to."""
    words = "".join(FENCED.split(markdown)[::2])
    return [
        posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
        for to in LINK.findall(words)
    ]


def _uri(path: str) -> str:
    """Where the site has a file of the project."""
    if path.startswith("docs/") and Path(path).suffix in (".md", *PICTURES):
        return path.removeprefix("docs/")
    if path.endswith(PICTURES):
        return f"source/{path}"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def _rewritten(markdown: str, path: str) -> str:
    here = posixpath.dirname(_uri(path))

    def there(link: re.Match[str]) -> str:
        named = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        return posixpath.relpath(_uri(named), here or ".")

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(there, words) for words in parts[::2]]
    return "".join(parts)


def _content(path: str) -> str:
    file = ROOT / path
    if path.endswith(".md"):
        return file.read_text()
    title = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n"
    if file.is_dir():
        return title + "\n".join(f"- `{each.name}`" for each in sorted(file.iterdir()))
    kind = {".py": "python", ".toml": "toml", ".yaml": "yaml"}.get(file.suffix, "text")
    fence = "`" * (1 + max(map(len, ["``", *re.findall("`+", file.read_text())])))
    return f"{title}{fence}{kind}\n{file.read_text()}\n{fence}\n"
