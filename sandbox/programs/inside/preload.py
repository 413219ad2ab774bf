"""What programs can import: the server imports it, because a child can open no file.

`LEFT_OUT` says why a module of the standard library is not there; a program that imports it gets
ModuleNotFoundError. All other modules are loaded with their submodules and with what they import late.
"""

import contextlib
import datetime as dt
import encodings
import importlib
import pkgutil
import sys
import time
import uuid
import warnings
import zoneinfo

LEFT_OUT = {
    "needs a display, a terminal or a sound card": (
        "tkinter turtle turtledemo idlelib curses readline rlcompleter pty tty webbrowser antigravity this "
        "ossaudiodev"
    ),
    "starts processes, or talks to them": "concurrent.futures.process multiprocessing pipes",
    "reads the machine's accounts": "crypt nis spwd",
    "is a client or a server of a network protocol": (
        "ftplib imaplib nntplib poplib smtplib smtpd telnetlib xmlrpc wsgiref asyncore asynchat netrc"
    ),
    "works on source files or installs packages": (
        "compileall py_compile distutils doctest ensurepip lib2to3 modulefinder pdb pip profile cProfile "
        "pstats pyclbr pydoc pydoc_data tabnanny test ctypes.test unittest.test trace venv zipapp bdb imp"
    ),
    "works on files of a format that few programs need": (
        "aifc audioop cgi cgitb chunk dbm fileinput imghdr mailbox mailcap msilib shelve sndhdr sunau uu "
        "wave xdrlib"
    ),
    "belongs to another operating system": (
        "asyncio.windows_events asyncio.windows_utils ctypes.macholib ctypes.wintypes encodings.mbcs "
        "encodings.oem msvcrt nt winreg winsound"
    ),
}
"""Reason -> names of modules, with all that is in them. What is part of the interpreter itself (faulthandler,
site) cannot be left out."""

_NAMES = {name for names in LEFT_OUT.values() for name in names.split()}


def load() -> None:
    """Import all modules that are not left out, and what their functions import or read late."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a program is warned when it uses what is deprecated
        for name in sorted(sys.stdlib_module_names):
            if not name.startswith("_"):
                _load(name)
        for name in ("_strptime", "_pydecimal", "_pyio", "_compat_pickle"):
            _load(name)
        for each in pkgutil.iter_modules(encodings.__path__):
            _load(f"encodings.{each.name}")
    _call_late_imports()


def _load(name: str) -> None:
    """Import a module and its submodules, if it is not left out and this Python has it."""
    if name in _NAMES or name.endswith(".__main__"):
        return
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError):  # an optional module, or one of another system
        return
    for each in pkgutil.iter_modules(getattr(module, "__path__", ())):
        _load(f"{name}.{each.name}")


ZONES: list[zoneinfo.ZoneInfo] = []
"""All time zones of this machine: `zoneinfo.ZoneInfo` finds one that exists in memory without its file."""


def _call_late_imports() -> None:
    time.tzset()
    time.localtime()
    time.strptime("1", "%S")
    dt.datetime.strptime("1", "%S").replace(tzinfo=dt.UTC)
    "ä".encode("idna")
    "\N{DIGIT ONE}".encode("unicode_escape")
    compile('"\\N{DIGIT ONE}"', "", "eval")  # the compiler imports unicodedata
    uuid.uuid4()
    for key in sorted(zoneinfo.available_timezones()):
        with contextlib.suppress(OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
            ZONES.append(zoneinfo.ZoneInfo(key))
