"""What calls of a tool may change, which decides in what order they run. Knows nothing of programs.

A tool may declare it: MCP's ``annotations`` (``readOnlyHint``, ``destructiveHint``,
``idempotentHint``), or ``x-read-only`` in its schema. Otherwise its arguments, its name and its
description are examined, in this order, with the tables below. In doubt the answer is
`Effect.ORDERED`: that costs a client request, never a wrong order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from itertools import pairwise
from typing import Any


class Effect(Enum):
    """Which other calls may be sent together with a call of the tool."""

    READS = "reads"
    """It changes nothing that another call could notice: together with all other calls that only
    read.
    """
    ACTS = "acts"
    """It changes something that its arguments name: together with its own calls that name other
    things.
    """
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
#: Verbs that change something and are rarely nouns in a name.
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
#: Verbs that are often nouns: "todo_list_add" lists nothing.
_NOUNS = _words(
    "list view query count check filter rank head look search show preview estimate forecast measure tree"
)
#: Objects with which the name of a reading tool may end: "search_book", "get_last_commit".
_THINGS = _words(
    "book post change build run import export update deposit transfer charge purchase commit "
    "archive copy store"
)
#: Words that introduce a second action in a name or a description.
_FURTHER = _words("and or then")

#: Verbs whose order matters even if each call concerns a different thing: they run commands, move the
#: starting point of later calls, add to a sequence, or wait.
_SEQUENTIAL = _words(
    "run exec execute eval bash sh shell terminal powershell cmd command console python script sql "
    "repl subprocess cd chdir goto go navigate open close click tap press type key keyboard mouse "
    "browser computer scroll swipe drag hover select focus switch set toggle turn start stop restart "
    "pause resume play undo redo commit rollback begin end login logout authenticate push pop pull "
    "merge rebase append prepend insert add enqueue dequeue next previous back forward step wait "
    "sleep delay apply reset clear undo action"
)

#: Arguments that contain instructions or code: such calls are always ordered.
_INSTRUCTIONS = _words(
    "command commands cmd cmds code script scripts shell sql action actions program source_code operation "
    "operations statement statements mutation"
)
#: A tool with both takes a request that may read or change: GET or DELETE.
_METHODS = _words("method http_method verb"), _words("url uri endpoint path host")
#: Signs that a query is written in a query language instead of plain words.
_QUERY_LANGUAGE = re.compile(
    r"\b(?:sql|mysql|postgres(?:ql)?|sqlite|bigquery|cypher|sparql|graphql|gql|mongo(?:db)?|mql|jq"
    r"|select\b.{0,40}\bfrom|database quer(?:y|ies)|quer(?:y|ies) (?:on|against) (?:the |a )?database)\b",
    re.IGNORECASE | re.DOTALL,
)
_QUERIES = _words("query queries q statement expression")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SENTENCE = re.compile(r"[.:;!?\n]\s*")
#: Words before the verb in "This tool allows you to search ...".
_LEAD = re.compile(
    r"(?:(?:this|the|a|an|use|used|using|it|tool|tools|function|method|api|call|that|which|to|for|will|can|is"
    r"|you|be|when|allows?|lets?|helps?|enables?|users?|quickly|safely|simply|also)\b[\s,]*)+",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\b(?:tool |function )?description:", re.IGNORECASE)
_EXAMINED = 2_000
_SENTENCES = 4


def effect_of(
    name: str,
    description: str,
    arguments: Collection[str],
    *,
    hints: Mapping[str, Any] | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Effect:
    """Return what calls of a tool may change. ``hints``: its MCP annotations; ``schema``: the
    original schema of its arguments.
    """
    declared = declares_reading(hints or {}, schema or {})
    if declared is True:
        return Effect.READS
    words = _split(name)
    argument_names = {argument.lower() for argument in arguments}
    if argument_names & _INSTRUCTIONS or all(argument_names & some for some in _METHODS):
        return Effect.ORDERED
    if _has_query_language(name, description, arguments, schema or {}):
        return Effect.ORDERED
    if declared is None and _only_reads(words, description[:_EXAMINED]):
        return Effect.READS
    return Effect.ACTS if _SEQUENTIAL.isdisjoint(words) else Effect.ORDERED


def hints_of(*places: Mapping[str, Any]) -> dict[str, Any]:
    """Return the MCP annotations of a tool, from the objects of the request that may contain them."""
    found: dict[str, Any] = {}
    for place in places:
        annotations = place.get("annotations")
        found |= annotations if isinstance(annotations, Mapping) else {}
        if isinstance(place.get("x-read-only"), bool):
            found["x-read-only"] = place["x-read-only"]
    return found


def declares_repeatable(hints: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Return True if the tool declares that a second call with the same arguments changes nothing more."""
    return declares_reading(hints, schema) is True or hints.get("idempotentHint") is True


def declares_reading(hints: Mapping[str, Any], schema: Mapping[str, Any]) -> bool | None:
    """Return True if the tool declares that it only reads, False if it declares that it acts, None
    if neither.
    """
    for declared in (
        schema.get("x-read-only"),
        hints.get("x-read-only"),
        hints.get("readOnlyHint"),
    ):
        if isinstance(declared, bool):
            return declared
    # MCP: both hints have a meaning only for tools that do not only read.
    acts = hints.get("destructiveHint") is True or isinstance(hints.get("idempotentHint"), bool)
    return False if acts else None


def _has_query_language(
    name: str, description: str, arguments: Collection[str], schema: Mapping[str, Any]
) -> bool:
    queries = [argument for argument in arguments if argument.lower() in _QUERIES]
    if not queries:
        return False
    properties = schema.get("properties")
    texts = [" ".join(_split(name)), description[:_EXAMINED]]
    for query in queries:
        one = properties.get(query) if isinstance(properties, Mapping) else None
        declared = one.get("description") if isinstance(one, Mapping) else None
        texts.append(declared[:_EXAMINED] if isinstance(declared, str) else "")
    return any(_QUERY_LANGUAGE.search(text) for text in texts)


def _only_reads(words: list[str], description: str) -> bool:
    verbs = [word for word in words if word in READING or word in ACTING]
    sentences = list(_sentences(description))
    if verbs and not _reads_by_name(words, verbs):
        return False
    declared = _first_verb(sentences)
    if any(_adds_action(sentence) for sentence in sentences):
        return False
    return declared is not False if verbs else declared is True


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
    """Return True if the first sentence that begins with a known verb begins with a reading one;
    None if there is none.
    """
    for sentence in sentences:
        word = _stem(sentence.split(None, 1)[0])
        if word in READING or word in ("return", "provide", "give", "tell", "report", "obtain"):
            return True
        if word in ACTING or word in _SEQUENTIAL:
            return False
    return None


def _adds_action(sentence: str) -> bool:
    """Return True if a sentence adds an action: "... and deletes it"."""
    words = sentence.lower().split()
    return any(
        first.strip(",") in _FURTHER and _stem(second) in ACTING - {"book", "post", "run", "open"}
        for first, second in pairwise(words)
    )


def _sentences(description: str) -> Iterator[str]:
    """Yield the first sentences, from the verb on. Text before a "Tool description:" describes
    other tools.
    """
    description = _HEADING.split(description)[-1]
    for sentence in _SENTENCE.split(description)[: 2 * _SENTENCES]:
        lead = _LEAD.match(sentence)
        rest = sentence[lead.end() :] if lead else sentence
        if rest.strip():
            yield rest.strip()


def _stem(word: str) -> str:
    """Return the verb of "Gets", "fetches" or "Queries" in the form of the tables."""
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


def _split(name: str) -> list[str]:
    """Return the words of a name, without the server or the namespace before it."""
    own = re.split(r"__|[./:]", name.strip("_./:"))[-1]
    return [word.lower() for word in _WORD.findall(own)]
