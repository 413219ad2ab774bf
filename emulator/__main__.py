"""The command line in a process of its own: `tool-emulator`, `python app.py` and `python -m emulator`."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports slowly; see `main`


def main(arguments: list[str] | None = None) -> None:
    """Run the command in ``arguments`` (default: this process's; then Ctrl-C ends it immediately).

    Without this, Ctrl-C is a traceback. So nothing is imported before; what remains is Python's own start.
    """
    if arguments is None:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from emulator.cli import commands

    commands.main(arguments)


if __name__ == "__main__":
    main()
