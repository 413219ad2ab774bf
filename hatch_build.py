"""The metadata that depend on where the repository is: the addresses on PyPI's page, and the README's links.

The variable `REPOSITORY_URL` is the only place that names it; the release workflow sets it to the repository
that it runs in. A package that is built without it names none, and its README's links stay relative.
"""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]]*\]\()(?!https?:|#)([^)]+\))")


class RepositoryMetadata(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text()
        version = runpy.run_path(str(Path(self.root, "emulator/__init__.py")))["__version__"]
        if url := os.environ.get("REPOSITORY_URL", "").rstrip("/"):
            metadata["urls"] = {
                "Homepage": url,
                "Documentation": f"{url}/blob/v{version}/docs/index.md",
                "Changelog": f"{url}/blob/v{version}/CHANGELOG.md",
                "Issues": f"{url}/issues",
            }
            text = _LINK.sub(
                lambda link: (
                    f"{link[1]}{link[2]}{url}/{'raw' if link[1] else 'blob'}/v{version}/{link[3]}"
                ),
                text,
            )
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
