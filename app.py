"""The documented command, and the door to the application.

python app.py [--api-key KEY] [--base-url URL] [--port 8001]
python app.py doctor
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emulator.cli import main

if TYPE_CHECKING:
    from emulator.web.app import create_app

__all__ = ["create_app", "main"]


def __getattr__(name: str) -> Any:
    """`create_app` once it is asked for: the command needs it late or never, and its import takes long."""
    if name == "create_app":
        from emulator.web.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()
