"""What calls of a tool may do to the world, as far as order is concerned. Knows nothing of programs.

A tool may say it: MCP's ``annotations`` (``readOnlyHint``, ``destructiveHint``, ``idempotentHint``), or
``x-read-only`` in its schema. Else its arguments, its name and its description are looked at, in this order,
with the tables below. They err towards `Effect.ORDERED`: that costs a client request, never a wrong order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from itertools import pairwise
from typing import Any


class Effect(Enum):
    """How the calls of a tool may leave beside others."""

    READS = "reads"
    """It changes nothing that another call could notice: beside all others that only read."""
    ACTS = "acts"
    """It changes something that its arguments name: beside calls of itself that name other things."""
    ORDERED = "ordered"
    """It runs commands, or changes a state that its other calls depend on: alone."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Verbs of tools that look something up or compute it.
READING = _words(
    "get list search read find fetch locate lookup look retrieve query view show describe inspect count "
    "check compare calculate calc compute convert estimate predict forecast analyze analyse translate "
    "summarize classify detect identify parse solve determine measure filter rank explain preview "
    "peek multiply divide subtract average ls cat grep rg glob head tail wc du df diff pwd stat which "
    "whoami whois"
)
#: Verbs that change something, and are hardly ever nouns in a name.
ACTING = _words(
    "create make add append insert prepend push pop put write save store set update edit modify "
    "change patch replace delete remove drop clear reset erase purge move rename copy mv cp rm mkdir "
    "rmdir touch send submit publish upload download install uninstall enable disable activate "
    "deactivate start stop restart pause resume cancel close open lock unlock claim reserve buy "
    "purchase pay charge refund transfer withdraw deposit assign invite approve reject accept decline "
    "archive restore merge commit revert subscribe unsubscribe follow unfollow register login logout "
    "authenticate execute exec eval run mark take consume dequeue enqueue ack acknowledge import export "
    "sync deploy trigger generate build apply grant revoke notify book post"
)
#: Of these many are nouns too: "todo_list_add" lists nothing.
_NOUNS = _words(
    "list view query count check filter rank head look search show preview estimate forecast measure tree"
)
#: What a name that begins with a verb that reads may end with: "search_book", "get_last_commit".
_THINGS = _words(
    "book post change build run import export update deposit transfer charge purchase commit "
    "archive copy store"
)
#: Words after which a name or a description goes on to a second thing that the tool does.
_FURTHER = _words("and or then")

#: Of these the order shows even when each call is about something else: they run commands, move what later
#: calls start from, put things in a row, or take time.
_SEQUENTIAL = _words(
    "run exec execute eval bash sh shell terminal powershell cmd command console python script sql "
    "repl subprocess cd chdir goto go navigate open close click tap press type key keyboard mouse "
    "browser computer scroll swipe drag hover select focus switch set toggle turn start stop restart "
    "pause resume play undo redo commit rollback begin end login logout authenticate push pop pull "
    "merge rebase append prepend insert add enqueue dequeue next previous back forward step wait "
    "sleep delay apply reset clear undo action"
)

#: Arguments that say what to do, or carry code: then nothing is known of a call but its order.
_INSTRUCTIONS = _words(
    "command commands cmd cmds code script scripts shell sql action actions program source_code operation "
    "operations statement statements mutation"
)
#: Beside the first, the second says what a request does: GET or DELETE.
_METHODS = _words("method http_method verb"), _words("url uri endpoint path host")
#: What tells a query in a language of its own from one in words.
_QUERY_LANGUAGE = re.compile(
    r"\b(?:sql|mysql|postgres(?:ql)?|sqlite|bigquery|cypher|sparql|graphql|gql|mongo(?:db)?|mql|jq"
    r"|select\b.{0,40}\bfrom|database quer(?:y|ies)|quer(?:y|ies) (?:on|against) (?:the |a )?database)\b",
    re.IGNORECASE | re.DOTALL,
)
_QUERIES = _words("query queries q statement expression")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SENTENCE = re.compile(r"[.:;!?\n]\s*")
#: What stands before the verb in "This tool allows you to search ...".
_LEAD = re.compile(
    r"(?:(?:this|the|a|an|use|used|using|it|tool|tools|function|method|api|call|that|which|to|for|will|can|is"
    r"|you|be|when|allows?|lets?|helps?|enables?|users?|quickly|safely|simply|also)\b[\s,]*)+",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\b(?:tool |function )?description:", re.IGNORECASE)
_LOOKED_AT = 2_000
_SENTENCES = 4


def effect_of(
    name: str,
    description: str,
    arguments: Collection[str],
    *,
    hints: Mapping[str, Any] | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Effect:
    """What calls of a tool may do. ``hints`` are its MCP annotations, ``schema`` that of its arguments
    as it came."""
    declared = _declared(hints or {}, schema or {})
    if declared is True:
        return Effect.READS
    words = _split(name)
    given = {argument.lower() for argument in arguments}
    if given & _INSTRUCTIONS or all(given & some for some in _METHODS):
        return Effect.ORDERED
    if _has_query_language(name, description, arguments, schema or {}):
        return Effect.ORDERED
    if declared is None and _only_reads(words, description[:_LOOKED_AT]):
        return Effect.READS
    return Effect.ORDERED if _is_sequential(words) else Effect.ACTS


def hints_of(*places: Mapping[str, Any]) -> dict[str, Any]:
    """The MCP annotations of a tool, from the objects of the request that may hold them."""
    found: dict[str, Any] = {}
    for place in places:
        annotations = place.get("annotations")
        found |= annotations if isinstance(annotations, Mapping) else {}
        if isinstance(place.get("x-read-only"), bool):
            found["x-read-only"] = place["x-read-only"]
    return found


def _declared(hints: Mapping[str, Any], schema: Mapping[str, Any]) -> bool | None:
    """Whether the tool says that it only reads; None if it says nothing."""
    for said in (schema.get("x-read-only"), hints.get("x-read-only"), hints.get("readOnlyHint")):
        if isinstance(said, bool):
            return said
    # MCP: both mean something only for tools that do not only read.
    acts = hints.get("destructiveHint") is True or isinstance(hints.get("idempotentHint"), bool)
    return False if acts else None


def _has_query_language(
    name: str, description: str, arguments: Collection[str], schema: Mapping[str, Any]
) -> bool:
    queries = [argument for argument in arguments if argument.lower() in _QUERIES]
    if not queries:
        return False
    properties = schema.get("properties")
    told = [" ".join(_split(name)), description[:_LOOKED_AT]]
    for query in queries:
        one = properties.get(query) if isinstance(properties, Mapping) else None
        said = one.get("description") if isinstance(one, Mapping) else None
        told.append(said[:_LOOKED_AT] if isinstance(said, str) else "")
    return any(_QUERY_LANGUAGE.search(text) for text in told)


def _only_reads(words: list[str], description: str) -> bool:
    verbs = [word for word in words if word in READING or word in ACTING]
    sentences = list(_sentences(description))
    if verbs and not _reads_by_name(words, verbs):
        return False
    said = _first_verb(sentences)
    if any(_goes_on_to_act(sentence) for sentence in sentences):
        return False
    return said is not False if verbs else said is True


def _reads_by_name(words: list[str], verbs: list[str]) -> bool:
    if verbs[0] not in READING:
        return False
    if verbs[0] == "check" and {"in", "out", "off"}.intersection(words):
        return False
    after = words[words.index(verbs[0]) + 1 :]
    thing = words[0] == verbs[0] and words[-1] in _THINGS
    if words[-1] in ACTING and not thing:
        return False  # read_write
    if (
        not thing
        and verbs[0] in _NOUNS
        and ACTING.intersection(after[:1] if words[0] in _NOUNS else after)
    ):
        return False  # list_add_item, todo_list_add_item
    further = [at for at, word in enumerate(after) if word in _FURTHER]
    return not (further and ACTING.intersection(after[further[0] :]))


def _first_verb(sentences: list[str]) -> bool | None:
    """Whether the first sentence that begins with a known verb begins with one that reads."""
    for sentence in sentences:
        word = _stem(sentence.split(None, 1)[0])
        if word in READING or word in ("return", "provide", "give", "tell", "report", "obtain"):
            return True
        if word in ACTING or word in _SEQUENTIAL:
            return False
    return None


def _goes_on_to_act(sentence: str) -> bool:
    """Whether a sentence says "... and deletes it"."""
    words = sentence.lower().split()
    return any(
        first.strip(",") in _FURTHER and _stem(second) in ACTING - {"book", "post", "run", "open"}
        for first, second in pairwise(words)
    )


def _sentences(description: str) -> Iterator[str]:
    """Its first ones, from the verb on; what stands before a "Tool description:" tells of other tools."""
    description = _HEADING.split(description)[-1]
    for sentence in _SENTENCE.split(description)[: 2 * _SENTENCES]:
        lead = _LEAD.match(sentence)
        rest = sentence[lead.end() :] if lead else sentence
        if rest.strip():
            yield rest.strip()


def _stem(word: str) -> str:
    """The verb of "Gets", "fetches" or "Queries", as the tables have it."""
    word = word.lower().strip(",.()\"'`*")
    if word in READING or word in ACTING:
        return word
    for ending, verb in (
        ("ies", "y"),
        ("es", ""),
        ("s", ""),
        ("ed", ""),
        ("d", ""),
        ("ing", ""),
        ("ing", "e"),
    ):
        base = word.removesuffix(ending) + verb
        if word.endswith(ending) and (base in READING or base in ACTING):
            return base
    return word.removesuffix("s")


def _is_sequential(words: list[str]) -> bool:
    verbs = [word for word in words if word in ACTING or word in _SEQUENTIAL]
    return bool(verbs) and not _SEQUENTIAL.isdisjoint(verbs)


def _split(name: str) -> list[str]:
    """The words of a name, without the server or the namespace in front of it."""
    own = re.split(r"__|[./:]", name.strip("_./:"))[-1]
    return [word.lower() for word in _WORD.findall(own)]
