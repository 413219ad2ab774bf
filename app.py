"""The documented command, and the door to the application.

python app.py [--api-key KEY] [--base-url URL] [--port 8001]
python app.py doctor
"""

from __future__ import annotations

import sys

from emulator.cli import main

if __name__ == "__main__":
    main()
    sys.exit()  # a mistyped flag need not wait for what is imported below

from emulator.web.app import create_app

__all__ = ["create_app", "main"]
