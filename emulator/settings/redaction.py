"""What is secret in the settings, and texts without it: one rule for all pages, messages, logs and errors.

Secret are

* each setting with a `SecretStr` in its type: keys, tokens, headers, query parameters, and a command's
  variables and arguments;
* of a URL in any other setting, the name, the password and the query.

`shown` renders a value without them. `redactor` removes them from texts that others wrote, such as a
library's error or a server's reply; there the plain arguments of a command stay, since they may be ordinary
words. Knows no setting by its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args
from urllib.parse import unquote

from pydantic import BaseModel, SecretStr

from emulator.core.addresses import HIDDEN, shown_url, split_url, userinfo

_MIN_CHARS = 8
"""A shorter secret may be an ordinary word, which stays in texts."""
_USERINFO = re.compile(r"(?<=://)[^\s/?#\"'<>@]+@")
_URL = re.compile(r"://|:[^\s@]*@")
"""Occurs in a URL, also in one without its scheme."""
_URL_WORD = re.compile(r"[^\s'\"]*(?:://|:[^\s'\"]*@)[^\s'\"]*")


def shown(value: Any) -> str:
    """A setting's value as text, without secrets."""
    match value:
        case None:
            return ""
        case SecretStr():
            return HIDDEN if value.get_secret_value() else ""
        case str():
            return shown_url(value) if _URL.search(value) else value
        case BaseModel():
            return shown(
                {
                    name: HIDDEN if holds_secret(field.annotation) else getattr(value, name)
                    for name, field in type(value).model_fields.items()
                    if name in value.model_fields_set
                }
            )
        case Mapping():
            inner = ", ".join(f"{name}: {shown(one)}" for name, one in value.items())
            return f"{{{inner}}}" if inner else ""
        case tuple() | list():
            return ", ".join(map(shown, value))
    return str(value)


def shown_text(text: str) -> str:
    """A message without the passwords and queries of the URLs in it."""
    return _URL_WORD.sub(lambda word: shown_url(word[0]), text)


def redactor(*values: Any) -> Callable[[str], str]:
    """Return a function that hides the secrets of ``values``, settings or parts of them, in a text, also as
    JSON writes them."""
    written = {text for value in values for text in _secrets(value) if len(text) >= _MIN_CHARS}
    secrets = {form for text in written for form in _forms(text)}
    # The longest first: one may contain another.
    pattern = re.compile(
        "|".join(map(re.escape, sorted(secrets, key=len, reverse=True))) or r"(?!)"
    )
    return lambda text: _USERINFO.sub("", pattern.sub(HIDDEN, text))


def _forms(secret: str) -> Iterator[str]:
    yield secret
    for ascii_only in (False, True):
        yield json.dumps(secret, ensure_ascii=ascii_only)[1:-1]


def holds_secret(annotation: Any) -> bool:
    """Return True if a setting of this type has a secret in it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(holds_secret(field.annotation) for field in annotation.model_fields.values())
    return annotation is SecretStr or any(map(holds_secret, get_args(annotation)))


def _secrets(value: Any) -> Iterator[str]:
    match value:
        case SecretStr():
            text = value.get_secret_value()
            yield text
            yield text.rpartition(" ")[2]  # Bearer KEY
            yield text.partition("=")[2]  # --key=KEY
            if "://" in text:
                yield split_url(text).path.strip("/")  # which may contain a key
                yield from _url_secrets(text)
        case str():
            if _URL.search(value):
                yield from _url_secrets(value)
        case BaseModel():
            for name in type(value).model_fields:
                yield from _secrets(getattr(value, name))
        case Mapping():
            for one in value.values():
                yield from _secrets(one)
        case tuple() | list():
            for one in value:
                yield from _secrets(one)


def _url_secrets(url: str) -> Iterator[str]:
    """Of the query only whole parameters, since their values may be ordinary words."""
    password = userinfo(url).partition(":")[2]
    yield from (password, unquote(password))
    yield from url.partition("?")[2].split("&")
