"""The tables ``[serve.TYPE]`` of emulator.toml: the MCP tool that runs a type of tool which vendors host.

    [serve]
    web_search = "searx.search"          # [mcp.searx], its tool search

    [serve.file_search]
    tool = "index.find"
    query = "q"                          # its name for an argument
    results = "hits"                     # where its structured result has the list

A key of a table is a name of the vendor's; its value is the server's name for it. An argument whose value is
"" is not sent. A place in a result is keys and numbers with dots between (``data.0.b64_json``).
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator


class ServeRow(BaseModel):
    """What all types have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    """SERVER.TOOL: a server of ``[mcp]``, which need not be offered otherwise."""
    scope: Literal["shared", "client"] | None = None
    """``client``: the server gets a digest of the client, and separates what it keeps for each."""
    client: str = ""
    """The argument that has the digest, too."""

    ARGUMENTS: ClassVar[Mapping[str, str]] = {}
    """The keys that name arguments of the server, and the JSON type of what is sent. Their values are the
    call's, or those of the request's item."""

    @field_validator("tool")
    @classmethod
    def _names_both(cls, value: str) -> str:
        if not all(value.partition(".")):
            raise ValueError("write SERVER.TOOL, a server of [mcp] and its tool")
        return value

    @model_validator(mode="after")
    def _names_each_argument_once(self) -> Self:
        if self.client and self.scope != "client":
            raise ValueError('client needs scope = "client"')
        vendors: dict[str, str] = {}
        for name, own in self.names.items():
            if (other := vendors.setdefault(own, name)) != name:
                raise ValueError(f"{other} and {name} both name the argument {own!r}")
        return self

    @property
    def names(self) -> Mapping[str, str]:
        """The key of each argument that is sent -> the server's name."""
        named = {name: str(getattr(self, name)) for name in (*self.ARGUMENTS, "client")}
        return {name: own for name, own in named.items() if own}

    @property
    def is_limited(self) -> bool:
        """A call is for one client, or for what its key may use: the tool must not be called otherwise."""
        return self.scope == "client"

    @property
    def server(self) -> str:
        return self.tool.partition(".")[0]

    @property
    def tool_name(self) -> str:
        return self.tool.partition(".")[2]


class WebSearchRow(ServeRow):
    ARGUMENTS = dict.fromkeys(
        ("query", "search_context_size", "country", "region", "city", "timezone"), "string"
    )

    query: str = "query"
    search_context_size: str = ""
    country: str = ""
    """Like the three that follow, of the request's ``user_location``."""
    region: str = ""
    city: str = ""
    timezone: str = ""
    results: str = ""
    """The pages, objects with the three fields below; "": the result is text."""
    url: str = "url"
    title: str = "title"
    snippet: str = "snippet"


class ImageRow(ServeRow):
    ARGUMENTS = dict.fromkeys(
        ("prompt", "size", "quality", "background", "output_format", "model"), "string"
    )

    prompt: str = "prompt"
    size: str = ""
    quality: str = ""
    background: str = ""
    output_format: str = ""
    model: str = ""
    result: str = ""
    """Where the image is, in base64 or as a ``data:`` URL; "": the result's first part that is an image."""


class WebFetchRow(ServeRow):
    ARGUMENTS = {"url": "string"}

    url: str = "url"


class FileSearchRow(ServeRow):
    ARGUMENTS = {"query": "string", "max_num_results": "integer", "vector_store_ids": "array"}

    query: str = "query"
    max_num_results: str = ""
    vector_store_ids: str = ""
    stores: Mapping[str, tuple[str, ...]] = {}
    """Patterns of the names of client keys, and the ids that they may search."""
    results: str = ""
    """The hits, objects with the four fields below; "": the result is text."""
    file_id: str = "file_id"
    filename: str = "filename"
    score: str = "score"
    text: str = "text"

    @model_validator(mode="after")
    def _names_stores(self) -> Self:
        if self.vector_store_ids and not self.stores:
            raise ValueError(
                'vector_store_ids needs stores: the ids for each key, as in stores = { "*" = ["docs"] }'
            )
        if self.stores and not self.vector_store_ids:
            raise ValueError("stores needs vector_store_ids: the argument that has the ids")
        return self

    @property
    def is_limited(self) -> bool:
        return super().is_limited or bool(self.stores)

    def stores_of(self, key_name: str) -> tuple[str, ...]:
        """The ids that the client key of that name may search."""
        allowed = (ids for key, ids in self.stores.items() if fnmatchcase(key_name, key))
        return tuple(dict.fromkeys(one for ids in allowed for one in ids))


def _short(value: Any) -> Any:
    return {"tool": value} if isinstance(value, str) else value


Short = BeforeValidator(_short)


class ServeTables(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    web_search: Annotated[WebSearchRow | None, Short] = None
    image_generation: Annotated[ImageRow | None, Short] = None
    web_fetch: Annotated[WebFetchRow | None, Short] = None
    file_search: Annotated[FileSearchRow | None, Short] = None

    @property
    def rows(self) -> Mapping[str, ServeRow]:
        """The types that are served."""
        named = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: row for name, row in named if row is not None}
