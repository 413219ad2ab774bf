"""The documented command, and the door to the application.

python app.py [--api-key KEY] [--base-url URL] [--port 8001]
python app.py doctor
"""

from __future__ import annotations

from emulator.cli import main
from emulator.web.app import create_app

__all__ = ["create_app", "main"]

if __name__ == "__main__":
    main()
