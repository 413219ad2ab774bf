"""The documented start command, and the module from which `create_app` can be imported.

python app.py [--api-key KEY] [--base-url URL] [--port 8001]
python app.py doctor
"""

from __future__ import annotations

from emulator.__main__ import main

TYPE_CHECKING = False  # as typing's, which is slow to import: `main` must begin early
if TYPE_CHECKING:
    from emulator.web.app import create_app

__all__ = ["create_app", "main"]


def __getattr__(name: str) -> object:
    """Import `create_app` at its first use: its import is slow, and the command needs it late or never."""
    if name == "create_app":
        from emulator.web.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()
