"""The types of tools that vendors host, and that an operator's MCP tool can run: a row each.

A row says which function the model sees, which arguments the server gets, and how its result is read. What
the fronts show of a call is theirs. Everything in a result is untrusted.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, field_validator, model_validator

from emulator.core.events import HostedError, HostedKind
from emulator.hosted.hosted_tool import HostedResult
from emulator.hosted.search_results import MAX_URL, Domain, found_page, read_pages, result_text
from emulator.hosted.url_sources import URLSources
from emulator.settings.serve_settings import (
    FileSearchRow,
    ImageRow,
    ServeRow,
    WebFetchRow,
    WebSearchRow,
)

Json = dict[str, Any]


def _domain(value: Any) -> Domain:
    if not isinstance(value, str) or len(value) > 256:
        raise ValueError("is no domain")
    return Domain.parsed(value)


Domains = Annotated[list[Annotated[Domain, PlainValidator(_domain)]], Field(max_length=100)]

_OF_ANY_TOOL = frozenset(
    {"type", "name", "description", "cache_control", "defer_loading", "allowed_callers", "strict"}
)
_LOCATION = "user_location"
_PLACES = ("country", "region", "city", "timezone")
MAX_ROWS = 50
"""Of a search."""
_TOKEN_CHARS = 4
_INDEX = re.compile(r"\d{1,6}", re.ASCII)
_IMAGE_SHOWN = "The image is made, and the user sees it."
_IMAGE_TYPES = ((b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))


class Item(BaseModel):
    """What an item of a request's ``tools`` says of its calls."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    max_uses: Annotated[int, Field(ge=1)] | None = None

    SENT: ClassVar[frozenset[str]] = frozenset()
    """The fields that have an effect only at a server that takes one of these arguments."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What a server can be sent of it."""
        return dict(self)

    def without_effect(self, sent: Mapping[str, Any], names: Collection[str]) -> list[str]:
        """The fields of the item as it was ``sent`` that change nothing: the server takes the arguments
        ``names``."""
        acting = type(self).model_fields.keys() - self.SENT
        taken = {_LOCATION if name in _PLACES else name for name in names}
        known = _OF_ANY_TOOL | acting | taken
        return [name for name, value in sent.items() if value is not None and name not in known]


class _Filters(BaseModel):
    allowed_domains: Domains | None = None
    blocked_domains: Domains | None = None


class WebItem(Item):
    """OpenAI has the domains in ``filters``, Anthropic in the tool itself; Chat a place in "approximate"."""

    SENT = frozenset({"search_context_size", _LOCATION})

    search_context_size: str | None = None
    user_location: Mapping[str, Any] | None = None
    filters: _Filters | None = None
    allowed_domains: Domains | None = None
    blocked_domains: Domains | None = None
    max_content_tokens: Annotated[int, Field(ge=1)] | None = None
    url_sources: URLSources | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """See the base class."""
        location = self.user_location or {}
        places = location.get("approximate") or location
        known = {name: places.get(name) for name in _PLACES} if isinstance(places, Mapping) else {}
        texts = {name: value for name, value in known.items() if isinstance(value, str)}
        return {**super().arguments, **texts}

    @model_validator(mode="after")
    def _has_one_list(self) -> Self:
        if all(self._domains):
            raise ValueError("allowed_domains and blocked_domains exclude each other")
        return self

    @property
    def _domains(self) -> tuple[Sequence[Domain], Sequence[Domain]]:
        filters = self.filters or _Filters()
        allowed = filters.allowed_domains or self.allowed_domains
        return allowed or (), filters.blocked_domains or self.blocked_domains or ()

    @property
    def has_domains(self) -> bool:
        return any(self._domains)

    def allows(self, url: str) -> bool:
        allowed, blocked = self._domains
        is_allowed = not allowed or any(one.has(url) for one in allowed)
        return is_allowed and not any(one.has(url) for one in blocked)


class _ImageItem(Item):
    SENT = frozenset({"size", "quality", "background", "output_format", "model"})

    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: str | None = None
    model: str | None = None


class _Ranking(BaseModel):
    score_threshold: float = 0


class FileItem(Item):
    vector_store_ids: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    max_num_results: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 10
    ranking_options: _Ranking = _Ranking()
    filters: Any = None

    @field_validator("filters")
    @classmethod
    def _is_empty(cls, value: Any) -> Any:
        if value:
            raise ValueError("is not supported; remove it")
        return value


@dataclass(frozen=True)
class ServedType:
    kind: HostedKind
    types: re.Pattern[str]
    """The types of a request's items: the vendors' versions."""
    item: type[Item]
    description: str
    parameter: str
    """What the model writes: one text, under the vendor's name."""
    schema: Json
    most_chars: int
    """Of that text. It is no limit of the schema, so that a longer one is the call's error."""
    read: Callable[[Any, Any, HostedResult], HostedResult]
    """Reads a result that is no error: of a row, an item and the server's result."""
    row_schema: Json | None = None
    """Of each object of a result for which the setting names a list."""
    reads: bool = True
    """A call changes nothing."""
    too_long: HostedError = ""
    """The code of a call whose text is too long."""

    def definition(self, row: ServeRow | None) -> Json:
        """The function as the model sees it; ``row`` is None for a search by a provider."""
        parameters = {
            "type": "object",
            "properties": {self.parameter: self.schema},
            "required": [self.parameter],
            "additionalProperties": False,
        }
        function: Json = {
            "name": self.kind,
            "description": self.description,
            "parameters": parameters,
        }
        if self.reads:
            function["annotations"] = {"readOnlyHint": True}
        lists_rows = row is None or bool(getattr(row, "results", ""))
        if self.row_schema and lists_rows:
            function["output_schema"] = {"type": "array", "items": self.row_schema}
        return {"type": "function", "function": function}


def server_arguments(row: ServeRow, item: Item, arguments: Json, client: str) -> Json:
    """The arguments of a call at the server, which no call and no item can add to."""
    sent = {**item.arguments, **arguments, "client": str(client)}
    values = {own: sent.get(name) for name, own in row.names.items()}
    return {own: value for own, value in values.items() if value is not None}


def _found_pages(row: WebSearchRow, item: WebItem, result: HostedResult) -> HostedResult:
    if not row.results:
        if not item.has_domains:
            return result
        # Text mixes all pages: of it only the addresses that are allowed can be told apart.
        allowed = [page.url for page in read_pages(result.content) if item.allows(page.url)]
        return replace(result, content="\n".join(allowed))
    found = _rows(result, row.results)
    if isinstance(found, HostedResult):
        return found
    pages = (
        found_page(_at(one, row.url), _at(one, row.title), _at(one, row.snippet)) for one in found
    )
    return replace(
        result, content=result_text([p for p in pages if p is not None and item.allows(p.url)])
    )


def _fetched_text(_: WebFetchRow, item: WebItem, result: HostedResult) -> HostedResult:
    most = item.max_content_tokens
    text = result.text
    if most is None or len(text) <= most * _TOKEN_CHARS:
        return result
    return replace(result, content=f"{text[: most * _TOKEN_CHARS]}\n[cut at {most} tokens]")


def _found_files(row: FileSearchRow, item: FileItem, result: HostedResult) -> HostedResult:
    if not row.results:
        return result
    found = _rows(result, row.results)
    if isinstance(found, HostedResult):
        return found
    hits: list[Json] = []
    for one in found:
        hit = {name: _at(one, getattr(row, name)) for name in ("file_id", "filename", "text")}
        hit = {name: value if isinstance(value, str) else "" for name, value in hit.items()}
        score = _at(one, row.score)
        if isinstance(score, bool) or not isinstance(score, int | float):
            score = None
        if score is None or score >= item.ranking_options.score_threshold:
            hits.append({**hit, "score": score})
    return replace(result, content=json.dumps(hits[: item.max_num_results], ensure_ascii=False))


def _made_image(row: ImageRow, _: _ImageItem, result: HostedResult) -> HostedResult:
    """The image for the client; the model reads what the server says of it."""
    parts = result.content if isinstance(result.content, list) else []
    urls = [str(p["image_url"]["url"]) for p in parts if p.get("type") == "image_url"]
    if row.result:
        data = _at(_json(result), row.result)
        urls = [_data_url(data)] if isinstance(data, str) else []
    if not any(urls):
        return HostedResult("The server made the call and sent no image.", is_error=True)
    texts = [str(part["text"]) for part in parts if part.get("type") == "text"]
    return HostedResult("\n".join([_IMAGE_SHOWN, *texts]), image=urls[0])


def _data_url(data: str) -> str:
    """The address of an image in base64, or in an address; "" for other text."""
    data = data.partition(",")[2] if data.startswith("data:") else data
    try:
        start = base64.b64decode(data, validate=True)[:12]
    except (binascii.Error, ValueError):
        return ""
    kinds = (kind for magic, kind in _IMAGE_TYPES if start.startswith(magic))
    kind = next(kinds, "")
    return kind and f"data:image/{kind};base64,{data}"


def _rows(result: HostedResult, path: str) -> list[Json] | HostedResult:
    """The objects of the list at ``path``; a dot alone is the whole result. A result without a list is an
    error."""
    found = _at(_json(result), path)
    if not isinstance(found, list):
        problem = f"The result has no list {path!r}, where the setting serve looks for one."
        return HostedResult(problem, is_error=True)
    return [one for one in found[:MAX_ROWS] if isinstance(one, dict)]


def _json(result: HostedResult) -> Any:
    try:
        return json.loads(result.text)
    except (ValueError, RecursionError):
        return None


def steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


def _at(value: Any, path: str) -> Any:
    """What is at ``path``: keys of objects and indices of lists, with dots between. None for nothing."""
    for step in steps(path):
        if isinstance(value, list):
            value = value[int(step)] if _INDEX.fullmatch(step) and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _object(**properties: str) -> Json:
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": kinds}


_TEXT: Json = {"type": "string", "minLength": 1}
_URL: Json = {"type": "string", "pattern": "^https?://"}

SERVED: Mapping[str, ServedType] = {
    "web_search": ServedType(
        kind="web_search",
        types=re.compile(r"web_search(_preview)?(_20[\d_]+)?"),
        item=WebItem,
        description="Search the web. Name the url of each page that your answer relies on.",
        parameter="query",
        schema=_TEXT,
        most_chars=1000,
        read=_found_pages,
        row_schema=_object(url="string", title="string", snippet="string"),
        too_long="query_too_long",
    ),
    "image_generation": ServedType(
        kind="image_generation",
        types=re.compile("image_generation"),
        item=_ImageItem,
        description="Make an image by a description of it. The user sees the image.",
        parameter="prompt",
        schema=_TEXT,
        most_chars=32_000,
        read=_made_image,
        reads=False,
    ),
    "web_fetch": ServedType(
        kind="web_fetch",
        types=re.compile(r"web_fetch(_20\d+)?"),
        item=WebItem,
        description="Fetch the page or the document at a URL, and return its text.",
        parameter="url",
        schema=_URL,
        most_chars=MAX_URL,
        read=_fetched_text,
        too_long="url_too_long",
    ),
    "file_search": ServedType(
        kind="file_search",
        types=re.compile("file_search"),
        item=FileItem,
        description="Search the user's files. Name the file of each passage that your answer relies on.",
        parameter="query",
        schema=_TEXT,
        most_chars=1000,
        read=_found_files,
        row_schema=_object(file_id="string", filename="string", text="string", score="number"),
    ),
}
