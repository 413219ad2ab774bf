"""BFCL's own parsers of replies, one name each, without the clients and servers that stand around them.

What they `eval` of a reply is here only ever a literal, or arithmetic of numbers: replies are not trusted.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

Calls = list[tuple[str, dict[str, Any]]]
Parser = Callable[[str], Calls]

_HANDLERS = "bfcl_eval.model_handler"
#: Name -> (module, class) whose `decode_ast` it is.
_CLASSES = {
    "bitagent": ("local_inference.bitagent", "BitAgentHandler"),
    "falcon": ("local_inference.falcon_fc", "Falcon3FCHandler"),
    "functiongemma": ("local_inference.functiongemma", "FunctionGemmaHandler"),
    "glm": ("local_inference.glm", "GLMHandler"),
    "granite": ("local_inference.granite", "GraniteFunctionCallingHandler"),
    "granite 4": ("local_inference.granite_4", "Granite4FCHandler"),
    "hammer": ("local_inference.hammer", "HammerHandler"),
    "llama 3.1": ("local_inference.llama_3_1", "LlamaHandler_3_1"),
    "phi": ("local_inference.phi", "PhiHandler"),
    "qwen": ("local_inference.qwen_fc", "QwenFCHandler"),
    "salesforce llama": ("local_inference.salesforce_llama", "SalesforceLlamaHandler"),
    "think agent": ("local_inference.think_agent", "ThinkAgentHandler"),
}


def parsers() -> dict[str, Parser]:
    """Each raises whatever it raises on a reply that it does not read."""
    with _without_clients():
        utils: Any = importlib.import_module(f"{_HANDLERS}.utils")
        utils.eval = _harmless
        found: dict[str, Parser] = {"prompting": _of(utils.default_decode_ast_prompting)}
        for form in ("JSON", "VERBOSE_XML", "CONCISE_XML"):
            shape = utils.ReturnFormat[form]
            found[form.lower()] = _of(lambda text, _, shape=shape: utils.ast_parse(text, shape))
        for name, (path, class_name) in _CLASSES.items():
            module: Any = importlib.import_module(f"{_HANDLERS}.{path}")
            module.eval = _harmless
            handler = object.__new__(_class(module, class_name))
            found[name] = _of(
                lambda text, language, handler=handler: handler.decode_ast(text, language, False)
            )
    return found


def _class(module: Any, name: str) -> Any:
    named = getattr(module, name, None)
    if named is not None:
        return named
    return next(
        one for one in vars(module).values() if isinstance(one, type) and "decode_ast" in vars(one)
    )


def _of(decode: Callable[[str, Any], Any]) -> Parser:
    def parse(text: str) -> Calls:
        from bfcl_eval.constants.enums import ReturnFormat

        calls: Calls = []
        for one in decode(text, ReturnFormat.PYTHON):
            for name, arguments in one.items():
                calls.append((name, dict(arguments)))
        return calls

    return parse


def _harmless(source: str) -> Any:
    """`eval` of literals, and of sums and products of numbers."""
    tree = ast.parse(source.strip(), mode="eval")
    allowed = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load)
    numbers = (ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub)
    nodes = list(ast.walk(tree))
    if len(source) > 1 << 16 or not all(isinstance(node, allowed + numbers) for node in nodes):
        raise ValueError("not a literal")
    return eval(compile(tree, "<reply>", "eval"), {"__builtins__": {}})


class _Anything(ModuleType):
    """A module that gives a decorator, or a class to inherit from, by any name."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else lambda *args, **_: _decorator(args)


def _decorator(args: tuple[Any, ...]) -> Any:
    return args[0] if args and callable(args[0]) else (lambda function: function)


_CLIENTS = (
    "dotenv",
    "filelock",
    "overrides",
    "requests",
    "tenacity",
    "tqdm",
    "tree_sitter",
    "tree_sitter_java",
    "tree_sitter_javascript",
)


@contextmanager
def _without_clients() -> Iterator[None]:
    """Stand-ins for what the handlers import in order to ask models."""
    names = [name for name in _CLIENTS if name not in sys.modules and not _installed(name)]
    names += [f"{_HANDLERS}.parser.java_parser", f"{_HANDLERS}.parser.js_parser"]
    names.append(f"{_HANDLERS}.base_handler")
    base = f"{_HANDLERS}.local_inference.base_oss_handler"
    for name in names:
        sys.modules[name] = _Anything(name)
    serving = _Anything(base)
    sys.modules[base] = serving
    utils: Any = importlib.import_module(f"{_HANDLERS}.utils")

    class OSSHandler:
        def decode_ast(self, result: str, language: Any, has_tool_call_tag: bool) -> Any:
            return utils.default_decode_ast_prompting(result, language, has_tool_call_tag)

    serving.OSSHandler = OSSHandler  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name in [*names, base]:
            sys.modules.pop(name, None)


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
