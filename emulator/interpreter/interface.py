"""The interpreter as requests see it: in this process, or in the keeper."""

from __future__ import annotations

from typing import TypeAlias

from emulator.interpreter.interpreter import Interpreter
from emulator.interpreter.remote import RemoteInterpreter

AnyInterpreter: TypeAlias = Interpreter | RemoteInterpreter
