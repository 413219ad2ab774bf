"""What a server asks a person while it makes a call (MCP, "Elicitation", form mode).

A question is a form with at most `MAX_FIELDS` plain fields. Its texts are the server's, so they are shown as
text, without addresses; a form that may ask for credentials is refused, and so is a URL, which nobody opens
here. The answer is checked before it leaves, and goes to the server that asks, once: no prompt, log, trace
or page has it, and the database only sealed (`sealed_values`).

    server ── asks ──► refused: a URL, a credential, more than a form can show, nobody to ask
                  └──► waits (`Ask`) ──► values ──► server
                                    └──► declined
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from emulator.core.errors import BadRequest
from emulator.hosted.sealed_values import sealed
from emulator.tools.schema import SchemaError
from emulator.tools.schema_cleaning import clean_schema
from emulator.tools.validator import compile_validator

Json = dict[str, Any]

MAX_FIELDS = 20
_MAX_OPTIONS = 100
_MAX_TEXT = 2_000
_MAX_ANSWER = 10_000
_MAX_SCHEMA = 100_000
_ADDRESS = re.compile(r"(?:\b[a-z][a-z0-9+.-]*://|\bwww\.|\bmailto:)\S+", re.IGNORECASE)
_RUN = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CREDENTIALS: Mapping[str, str] = {
    "code": "zip postal post area country region state city language locale currency airport airline station"
    " bar color colour error status dress uni",
    "key": "hot mon don tur hoc joc whis",
    **dict.fromkeys("token secret password passwd passphrase pwd credential".split(), ""),
}
"""How a word ends for which no form may ask, and what before it, in the word or as the word before, means
something else. In doubt a field is refused."""
_SHORT_CREDENTIALS = frozenset("pass pin otp totp mfa cvv cvc pat bearer".split())
_KINDS = ("string", "number", "integer", "boolean")


class Refused(Exception):
    """The question is not put to anybody; the message is a clause that says why."""


class Field(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    description: str = ""
    kind: Literal["string", "number", "integer", "boolean", "choice", "choices"]
    options: tuple[tuple[str, str], ...] = ()
    """Value and title of each."""
    default: str = ""
    required: bool = False


class Form(BaseModel):
    """``server`` is the operator's name of the server."""

    model_config = ConfigDict(frozen=True)

    message: str
    server: str
    fields: tuple[Field, ...]
    schema_text: str
    """What the values must match, as JSON."""

    def values(self, form: Mapping[str, Any]) -> Json:
        """The values of a form whose inputs are ``field-N``, boxes of several choices ``field-N-M``.

        Raises `BadRequest` for a value that the server does not accept.
        """
        found = dict(self._values(form))
        validator = compile_validator(json.loads(self.schema_text))
        if (error := next(validator.iter_errors(found), None)) is not None:
            place = ".".join(map(str, error.instance_path)) or "the form"
            raise BadRequest(f"{place}: {error.message}"[:300])
        return found

    def _values(self, form: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for n, field in enumerate(self.fields):
            name = f"field-{n}"
            text = str(form.get(name, ""))[:_MAX_ANSWER]
            if field.kind == "boolean":
                yield field.name, name in form
            elif field.kind == "choices":
                chosen = (
                    value for m, (value, _) in enumerate(field.options) if f"{name}-{m}" in form
                )
                yield field.name, [*chosen]
            elif text:
                yield field.name, _converted(field, text)


class Question(Form):
    """A form that waits for a person, perhaps at another process's page."""

    public_key: str

    def answer(self, form: Mapping[str, Any]) -> str:
        """The values, sealed. Raises as `values`."""
        return sealed(self.values(form), self.public_key)


def _converted(field: Field, text: str) -> Any:
    try:
        if field.kind in ("number", "integer"):
            return int(text) if re.fullmatch(r"-?\d{1,18}", text) else float(text)
    except ValueError:
        raise BadRequest(f"{field.name}: {text[:40]!r} is not a number.") from None
    return text


Ask = Callable[[str, Form], "Future[Json | None]"]
"""Asks a client's person. The future has the values, or None if they decline; cancelling it withdraws the
question."""


def read_question(text: str) -> Question | None:
    """The question that ``text`` is, as JSON; None for other text."""
    try:
        return Question.model_validate_json(text)
    except ValidationError:
        return None


def form_of(server: str, message: str, schema: Any) -> Form:
    """The form of a server's request. Raises `Refused`."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or len(properties) > MAX_FIELDS:
        raise Refused(f"it asks for what is no form of at most {MAX_FIELDS} fields")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    fields = tuple(_field(str(name), one, name in names) for name, one in properties.items())
    accepted = {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in names if name in properties],
        "additionalProperties": False,
    }
    try:
        cleaned = clean_schema(accepted, "requestedSchema")
        compile_validator(cleaned)
    except SchemaError as error:
        raise Refused(f"it asks with a schema that cannot be used: {error.message}") from None
    schema_text = json.dumps(cleaned)
    if len(schema_text) > _MAX_SCHEMA:
        raise Refused(f"it asks with a schema of more than {_MAX_SCHEMA} characters")
    text = _plain(message) or "(no message)"
    return Form(message=text, server=server, fields=fields, schema_text=schema_text)


def _field(name: str, schema: Any, is_required: bool) -> Field:
    if not isinstance(schema, Mapping):
        raise Refused(f"the schema of its field {name[:64]!r} is no object")
    title = _plain(schema.get("title")) or name[:64]
    texts = [name, *(text for key in ("title", "description") if (text := schema.get(key)))]
    is_password = "password" in str(schema.get("format")).lower()
    if is_password or any(map(_names_credential, map(str, texts))):
        raise Refused(f"its field {name[:64]!r} may ask for a credential, which no form here does")
    kind, options = _kind(name, schema)
    default = schema.get("default")
    return Field(
        name=name,
        title=title,
        description=_plain(schema.get("description")),
        kind=kind,
        options=options,
        default=""
        if default is None or isinstance(default, dict | list)
        else str(default)[:_MAX_TEXT],
        required=is_required,
    )


def _names_credential(text: str) -> bool:
    """Return True if a word of ``text``, or two words together, may name a credential."""
    text = unicodedata.normalize("NFKC", text)[:_MAX_SCHEMA]
    for pattern in (_RUN, _WORD):  # "accesstoken" and "AccessToken"
        before = ""
        for word in map(str.lower, pattern.findall(text)):
            if _is_credential(word, before) or (before + word).removesuffix("s") in _CREDENTIALS:
                return True
            before = word
    return False


def _is_credential(word: str, before: str = "") -> bool:
    for one in (word, word.removesuffix("s")):
        if one in _SHORT_CREDENTIALS:
            return True
        for end, others in _CREDENTIALS.items():
            if one.endswith(end) and (one.removesuffix(end) or before) not in others.split():
                return True
    return False


def _kind(name: str, schema: Mapping[str, Any]) -> tuple[Any, tuple[tuple[str, str], ...]]:
    kind, items = schema.get("type"), schema.get("items")
    if kind == "array" and isinstance(items, Mapping) and (options := _options(items)):
        return "choices", options
    if kind == "string" and (options := _options(schema)):
        return "choice", options
    if kind in _KINDS:
        return kind, ()
    raise Refused(f"its field {name[:64]!r} is no plain value")


def _options(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The values that a schema lists, with their titles, in one of the ways of the protocol's versions."""
    values, names = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list):
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        pairs = [*zip(values, titles, strict=True)]
    else:
        listed = schema.get("oneOf") or schema.get("anyOf")
        rows = listed if isinstance(listed, list) else []
        pairs = [(row.get("const"), row.get("title")) for row in rows if isinstance(row, Mapping)]
    return tuple((str(value), _plain(title) or str(value)) for value, title in pairs[:_MAX_OPTIONS])


def _plain(text: Any) -> str:
    """A server's text without addresses, which would look like the proxy's own advice."""
    return _ADDRESS.sub("[address removed]", text)[:_MAX_TEXT] if isinstance(text, str) else ""
