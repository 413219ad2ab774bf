"""BFCL's own parsers of replies, one name each, without the clients and servers around them.

Two sets: those of the installed bfcl-eval, and those of 2024, which were written for the models whose
replies BFCL published then. Replies are not trusted: what a parser evaluates is a literal, or arithmetic of
numbers.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
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


def parsers_of_2024(folder: Path) -> dict[str, Parser]:
    """The parser of each handler in ``folder``, which holds BFCL's package ``model_handler`` of 2024."""
    sys.path.insert(0, str(folder))
    try:
        with _substitutes([*_CLIENTS_OF_2024, *_GRAMMARS_OF_2024]):
            importlib.import_module("model_handler.utils").__dict__["eval"] = _harmless
            return dict(_handlers_of_2024(folder / "model_handler"))
    finally:
        sys.path.remove(str(folder))


def _handlers_of_2024(package: Path) -> Iterator[tuple[str, Parser]]:
    for path in sorted(package.glob("*_handler.py")):
        module = importlib.import_module(f"model_handler.{path.stem}")
        for one in vars(module).values():
            own = isinstance(one, type) and one.__module__ == module.__name__
            if own and "decode_ast" in vars(one) and one.__name__ != "BaseHandler":
                handler = object.__new__(one)
                handler.model_name = (
                    ""  # a name with "FC" means that the vendor's API read the reply
                )
                name = path.stem.removesuffix("_handler").replace("_", " ")
                yield (
                    f"{name}, 2024",
                    _of(lambda text, _, handler=handler: handler.decode_ast(text, "Python")),
                )


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


_CLIENTS_OF_2024 = (
    "anthropic",
    "cohere",
    "google",
    "google.generativeai",
    "mistralai",
    "mistralai.client",
    "mistralai.models",
    "mistralai.models.chat_completion",
    "requests",
    "tree_sitter",
    "tree_sitter_java",
    "tree_sitter_javascript",
    "vertexai",
    "vertexai.generative_models",
)
_GRAMMARS_OF_2024 = ("model_handler.java_parser", "model_handler.js_parser")
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
    """Replace what the handlers of bfcl-eval import in order to ask models."""
    base = f"{_HANDLERS}.local_inference.base_oss_handler"
    own = (f"{_HANDLERS}.parser.java_parser", f"{_HANDLERS}.parser.js_parser")
    with _substitutes([*_CLIENTS, *own, f"{_HANDLERS}.base_handler", base]):
        utils: Any = importlib.import_module(f"{_HANDLERS}.utils")

        class OSSHandler:
            def decode_ast(self, result: str, language: Any, has_tool_call_tag: bool) -> Any:
                return utils.default_decode_ast_prompting(result, language, has_tool_call_tag)

        sys.modules[base].OSSHandler = OSSHandler  # type: ignore[attr-defined]
        yield


@contextmanager
def _substitutes(names: Collection[str]) -> Iterator[None]:
    """Import modules that accept any use instead of the named ones, unless these are installed."""
    missing = [name for name in names if "." in name or importlib.util.find_spec(name) is None]
    missing = [name for name in missing if name not in sys.modules]
    sys.modules.update({name: _Anything(name) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            sys.modules.pop(name, None)
