"""A model that does a task with whatever tools its prompt offers. Knows the prompt, and nothing of the
agent.

It reads the stubs in the prompt, finds among them what runs a command, writes a file and edits one, writes
calls of them in Python, and takes its answer from what the last result shows. Where the prompt lacks
anything of that, it raises an error, and the test fails. It parses no replies: the proxy has to do that.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.agents.tasks import Step, Task

Style = Literal["call by call", "with thoughts", "as a program"]
STYLES: tuple[Style, ...] = ("call by call", "with thoughts", "as a program")

# What a tool is for -> names of tools that do it, as agents call them; the first that is offered is used.
DOES: Mapping[str, tuple[str, ...]] = {
    "run": (
        "exec_command", "bash", "Bash", "run_shell_command", "shell", "execute", "run_commands",
        "execute_command", "run_terminal_command",
    ),
    "write": ("write_file", "write", "Write", "write_to_file", "save", "create"),
    "read": ("read_file", "read", "Read", "view"),
    "edit": ("edit_file", "edit", "Edit", "replace", "replace_in_file"),
}  # fmt: skip
ENDS = ("complete", "attempt_completion", "submit_and_exit")
# What mini-swe-agent's prompt says to print when all is done.
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
# What a parameter is for -> its names.
IS: Mapping[str, tuple[str, ...]] = {
    "command": ("cmd", "command", "commands", "code"),
    "path": ("path", "file_path", "filePath", "filepath", "absolute_path", "target_file"),
    "old": ("old_string", "oldString", "oldText", "old_text", "old_str", "search"),
    "new": (
        "new_string", "newString", "newText", "new_text", "new_str", "content", "contents", "text",
        "file_text",
    ),
}  # fmt: skip


class Disobedient(Exception):
    """The prompt does not let the model do what it was asked for."""


@dataclass(frozen=True)
class Stub:
    """A function or a class as the prompt offers it: its parameters with annotations, which of them must be
    given, and the classes next to it."""

    name: str
    parameters: dict[str, str]
    required: frozenset[str]
    classes: Mapping[str, Stub] = field(default_factory=dict, repr=False)

    def class_of(self, parameter: str) -> Stub | None:
        names = re.findall(r"\w+", self.parameters[parameter])
        return next((self.classes[name] for name in names if name in self.classes), None)


@dataclass
class Obedient:
    """Answers the requests of one task; counts them, and apart those that offer no tools (for a title)."""

    task: Task
    style: Style
    folder: str
    """Where the task's files are, for tools that want absolute paths."""
    turns: int = 0
    aside: int = 0
    endings: int = 0
    """Turns for nothing but the call that ends the agent's loop, where an answer in words does not."""
    failures: list[str] = field(default_factory=list)

    def __call__(self, request: Mapping[str, Any]) -> str:
        try:
            return self._reply(request)
        except Disobedient as failure:
            # In words, which end the agent's loop: an error would be tried again and again.
            self.failures.append(str(failure))
            return f"I cannot go on: {failure}"

    def _reply(self, request: Mapping[str, Any]) -> str:
        messages = [(m["role"], text_of(m.get("content"))) for m in request["messages"]]
        prompt = "\n\n".join(text for _, text in messages)
        stubs = read_stubs(prompt)
        asked = [
            n
            for n, (role, text) in enumerate(messages)
            if role == "user" and self.task.prompt in text
        ]
        if not stubs or not asked:
            self.aside += 1
            return "A small task"
        self.turns += 1
        since = messages[asked[0] + 1 :]
        done = sum(role == "assistant" for role, _ in since)
        thought = "<think>What is to be done now?</think>" if self.style == "with thoughts" else ""
        steps = 1 if self.style == "as a program" else len(self.task.steps)
        if done == steps:
            return thought + self._answer(since[-1][1], prompt, stubs)
        if done > steps:
            return self._end(stubs)
        if self.style == "as a program":
            return block(as_calls(self.task.program, lambda step: self._call(step, stubs)))
        return thought + block(self._call(self.task.steps[done], stubs))

    def _answer(self, shown: str, prompt: str, stubs: Mapping[str, Stub]) -> str:
        found = re.search(self.task.found, shown)
        if found is None:
            raise Disobedient(f"{self.task.found} is not in what the model sees: {shown[-2000:]}")
        answer = self.task.answer.format(*found.groups())
        if SUBMIT not in prompt:
            return answer
        return f"{answer}\n\n{block(self._call(Step('run', command=f'echo {SUBMIT}'), stubs))}"

    def _end(self, stubs: Mapping[str, Stub]) -> str:
        """The agent has the answer, and goes on asking: some end only when a tool is called."""
        name = next((name for name in ENDS if name in stubs), None)
        if name is None or self.endings:
            raise Disobedient("the agent does not come to an end")
        self.turns -= 1
        self.endings += 1
        return block(write_call(stubs[name], Step("run"), self.folder))

    def _call(self, step: Step, stubs: Mapping[str, Stub]) -> str:
        name = next((name for name in DOES[step.does] if name in stubs), None)
        if name is None and step.does != "run":
            return self._call(as_command(step), stubs)
        if name is None:
            raise Disobedient(f"nothing to {step.does} with among {sorted(stubs)}")
        return write_call(stubs[name], step, self.folder)


def write_call(stub: Stub, step: Step, folder: str) -> str:
    """A call of ``stub``, all that it requires filled in."""
    values: dict[str, Any] = {
        meaning: getattr(step, meaning) for meaning in IS if getattr(step, meaning)
    }
    if "path" in values:
        values["path"] = f"{folder}/{values['path']}"
    call = filled_in(stub, values)
    if values:
        raise Disobedient(f"{stub} has no place for {values}")
    return call


def filled_in(stub: Stub, values: dict[str, Any]) -> str:
    """A call with those of ``values`` (by meaning) that it has a parameter for; they are taken out."""
    arguments = []
    for parameter, annotation in stub.parameters.items():
        meaning = next((m for m, names in IS.items() if parameter in names), None)
        inner = stub.class_of(parameter)
        if meaning in values:
            written = repr(values.pop(meaning))
        elif parameter not in stub.required:
            continue
        elif inner is not None:
            written = filled_in(inner, values)
        else:
            arguments.append(f"{parameter}={FILLED.get(annotation, 'as the user asked')!r}")
            continue
        arguments.append(
            f"{parameter}=[{written}]"
            if annotation.startswith("list")
            else f"{parameter}={written}"
        )
    return f"{stub.name}({', '.join(arguments)})"


FILLED: Mapping[str, Any] = {"bool": False, "int": 60, "float": 60.0}


def as_command(step: Step) -> Step:
    """Writing, reading and editing where there is only a shell."""
    if step.does == "read":
        return Step("run", command=f"cat {shlex.quote(step.path)}")
    if step.does == "write":
        return Step("run", command=f"printf %s {shlex.quote(step.new)} > {step.path}")
    return Step("run", command=f"sed -i {shlex.quote(f's/{step.old}/{step.new}/')} {step.path}")


def as_calls(program: str, call: Callable[[Step], str]) -> str:
    """The program with calls of real tools instead of ``run``, ``write``, ``read`` and ``edit``."""

    class Calls(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if not isinstance(node.func, ast.Name) or node.func.id not in DOES:
                return node
            # What is computed stays an expression: a name replaces it while the call is written.
            computed: dict[str, ast.expr] = {}
            values: dict[str, str] = {}
            for keyword in node.keywords:
                assert keyword.arg is not None
                if isinstance(keyword.value, ast.Constant):
                    values[keyword.arg] = keyword.value.value
                else:
                    values[keyword.arg] = f"computed {keyword.arg}"
                    computed[values[keyword.arg]] = keyword.value
            written = ast.parse(call(Step(node.func.id, **values)), mode="eval").body  # type: ignore[arg-type]
            return Computed(computed).visit(written)

    return ast.unparse(Calls().visit(ast.parse(program)))


class Computed(ast.NodeTransformer):
    def __init__(self, expressions: Mapping[str, ast.expr]) -> None:
        self._expressions = expressions

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self._expressions.get(node.value, node) if isinstance(node.value, str) else node


def block(code: str) -> str:
    return f"```tool_code\n{code}\n```"


def read_stubs(prompt: str) -> dict[str, Stub]:
    """The functions that the prompt says can be called."""
    shown = re.findall(
        r"You can call these Python functions.*?```python\n(.*?)\n```", prompt, re.DOTALL
    )
    return stubs_of(shown[-1]) if shown else {}


def stubs_of(code: str) -> dict[str, Stub]:
    body = ast.parse(code).body
    classes: dict[str, Stub] = {}
    classes |= {node.name: _class(node, classes) for node in body if isinstance(node, ast.ClassDef)}
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    return {function.name: _stub(function, classes) for function in functions}


def _class(shown: ast.ClassDef, classes: Mapping[str, Stub]) -> Stub:
    fields = [node for node in shown.body if isinstance(node, ast.AnnAssign)]
    return Stub(
        shown.name,
        {ast.unparse(node.target): _bare(node.annotation) for node in fields},
        frozenset(ast.unparse(node.target) for node in fields if node.value is None),
        classes,
    )


def _bare(annotation: ast.expr) -> str:
    """``str`` of ``Annotated[str, Field(description=...)]``."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        annotation = annotation.slice.elts[0]
    return ast.unparse(annotation)


def _stub(function: ast.FunctionDef, classes: Mapping[str, Stub]) -> Stub:
    arguments = [*function.args.args, *function.args.kwonlyargs]
    defaults = function.args.defaults
    positional = function.args.args[: len(function.args.args) - len(defaults)]
    keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    required = [*positional, *(argument for argument, default in keywords if default is None)]
    return Stub(
        function.name,
        {a.arg: ast.unparse(a.annotation) if a.annotation else "Any" for a in arguments},
        frozenset(a.arg for a in required),
        classes,
    )


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: Iterable[Any] = content or ()
    return "\n".join(part.get("text", "") for part in parts)
