"""What the conversation says about the calls of the next reply. Knows nothing of the reply.

A constrained reply has no words around its calls, so only the request can show that the user wants to see a
call, or to be asked, first. `Request.withholds` recognizes requests that say so in a clause of their own, in
English, German and Chinese. It must not block a call that the user wants, so it does not read quotations,
what follows a colon, conditions, negations and long texts. "Ask me before you delete anything" concerns the
tools with that verb in their names; "ask me first", and verbs such as "run" and "change", concern all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.cached_property import cached_property
from emulator.protocol import Message
from emulator.tools.effects import Effect
from emulator.tools.tool import Tool

_MAX_REQUEST = 4_000
_MAX_ORDER = 600
"""Characters of a request that may withhold calls: longer ones describe later steps and other people."""

_ASKS = re.compile(
    r"[?？]\s*\Z|\A\W*(?:how|what|why|which|who|wie|warum|welche)\b[^?？]*\Z",
    re.IGNORECASE,
)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ORDERS = re.compile(
    r"\b(?:(?:can|could|would|will) you|please|kannst du|könntest du|können sie|bitte|puedes|podrías"
    r"|por favor)\b|请|帮我|能不能",
    re.IGNORECASE,
)
_ASKS_FOR_CODE = re.compile(
    r"\b(?:suggest|recommend)\b|\bshow me (?:how|the code|an example|a snippet)\b"
    r"|(?:^|\b(?:an?|some|code|usage) )examples?\b"
    r"|\bwrite\b[^.]{0,40}\b(?:readme|tutorial|documentation|docs|guide)\b"
    r"|\b(?:review|explain|erkläre?|explica)\b[^`]*(?:```|`?\w+\()"
    r"|\b(?:beispiel|ejemplo|exemple|zeige? mir, wie|muéstrame cómo|montre-moi comment)\b|示例|例子|教程",
    re.IGNORECASE,
)
_ASKS_FOR_SCRIPT = re.compile(
    r"\b(?:write|create|give|make|generate|provide|need|want|code|show)\b[^.\n]{0,60}\b(?:script"
    r"|program|function"
    r"|snippet|class|code|module|app|example|cli|bot|decorator|wrapper|helper)\b",
    re.IGNORECASE,
)

_CLAUSE = (
    r"(?:^|(?<=[.!?;,(—–-])\s*"
    r"|\b(?:and|but|then|so|or|please|just|also|first|always|und|aber|dann|bitte)\s+)"
)
_END = r"(?=\s*(?:[.!?;,)(—–-]|$))"
_YES = r"(?:ok(?:ay)?|approval|confirmation|permission|consent|go-ahead)"
_JA = r"(?:Bestätigung|Freigabe|Zustimmung|Erlaubnis)"
_IT = (
    r"(?:it|this|that|these|them|anything|any (?:\w+ )?(?:tools?|functions?|commands?|changes?)"
    r"|the (?:code|command|script|query|block|snippet|program|call|function|tool))"
)
_VERB = r"(?P<verb>[a-z]+)"
_BEFORE = rf"(?:before|prior to) (?:(?:you|any|each|every|doing) )?{_VERB}"
_NOT = r"(?:do not|don't|never)(?: actually| really| just)?"
_I_AGREE = r"I(?:'ve| have)? (?:say|said|confirm|approve|agree|tell)"
_WITHHOLDS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # The user is to be asked.
        (
            rf"{_CLAUSE}(?:ask|(?:double-)?check with|confirm with) me(?: (?:for )?(?:my )?{_YES})?"
            rf"(?: first{_END}|,? {_BEFORE})"
        ),
        (
            rf"{_CLAUSE}(?:(?:wait|ask|stop) for|get|request) my (?:explicit )?{_YES}"
            rf"(?: first)?(?:{_END}| {_BEFORE})"
        ),
        (
            rf"{_CLAUSE}(?:let me (?:confirm|approve|review|check|see|know)(?: it| this| them)?"
            rf"|run (?:it|this|them) by me|show me)(?: first{_END}| {_BEFORE})"
        ),
        rf"{_CLAUSE}{_NOT} {_VERB}\b[^.!?;,]{{0,40}}? (?:until {_I_AGREE}|without my {_YES})\b",
        (
            rf"{_CLAUSE}(?:frage? (?:mich )?(?:bitte )?(?:erst|zuerst|vorher)(?: um \w+)?{_END}(?!,? wenn)"
            rf"|warte? auf meine {_JA})|\b(?:erst nach|ohne) meiner? {_JA}\b"
        ),
        r"(?:等我|我)(?:确认|批准|同意)后|等我(?:确认|批准|同意)|前(?:一定)?要?先?(?:问我|让我确认)",
        r"\b(?:plan|draft|preview|dry[ -]run)(?: it| this)? (?:first|only)\b",
        # The call is only to be shown.
        rf"{_CLAUSE}{_NOT} {_VERB} {_IT}(?: yet| now| yourself)?{_END}",
        rf"\bwithout (?:actually )?(?:running|executing|calling) {_IT}{_END}",
        rf"{_CLAUSE}(?:only|just) show me the (?:exact )?(?:commands?|calls?|code|query){_END}",
        (
            rf"\bführe? (?:es|sie|ihn|das) nicht aus\b|\bnur (?:an)?zeigen, nicht ausführen\b"
            rf"|{_CLAUSE}mache? noch nichts\b|\bzeige? mir (?:nur|bloß)\b"
        ),
        r"先?(?:不要|别)(?:真的|直接)?(?:执行|运行|调用)(?=[。，,；;.!！]|$)",
    )
]
_ANY_ACT = tuple(
    "do run execut call invok perform proceed act any continu go start begin mak chang touch apply "
    "implement fix".split()
)
_ASIDE = re.compile(r"\"[^\"]*\"|“[^”]*”|(?<!\w)'[^']*'(?!\w)|[:：][^.!?。！？]*")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s*|\n+")
_CONDITION = re.compile(r"\s*(?:if|when|unless|wenn|falls)\b", re.IGNORECASE)
_NEGATION = re.compile(
    r"(?:\bnot|n't|\bnever|\bneed to|\bwithout|无需|不用|不必)\s*\Z", re.IGNORECASE
)


@dataclass(frozen=True)
class Request:
    """What the conversation says about the blocks of the reply to it."""

    messages: Sequence[Message] = ()

    @cached_property
    def _question(self) -> str:
        """The user's words, if they are what the model answers; else ""."""
        last = self.messages[-1] if self.messages else None
        return last.text[-_MAX_REQUEST:] if last is not None and last.role == "user" else ""

    @cached_property
    def asks(self) -> bool:
        """Whether the user asks a question instead of ordering an act."""
        words = _FENCED.sub("", self._question)
        return bool(_ASKS.search(words) and not _ORDERS.search(words))

    @cached_property
    def asks_for_code(self) -> bool:
        """Whether the user wants code to look at."""
        return bool(_ASKS_FOR_CODE.search(self._question))

    @cached_property
    def asks_for_script(self) -> bool:
        return bool(_ASKS_FOR_SCRIPT.search(self._question))

    def withholds(self, tool: Tool) -> bool:
        """Return True if the user's last message wants no call of a tool that acts, or none yet."""
        return tool.effect is not Effect.READS and any(
            verb.startswith(_ANY_ACT) or _has_verb(tool.python_name, verb)
            for verb in self._withheld
        )

    @cached_property
    def _withheld(self) -> list[str]:
        """The verbs of the acts that the user withholds; "any" for all."""
        users = (message.text for message in reversed(self.messages) if message.role == "user")
        words = next(users, "")
        if len(words) > _MAX_ORDER:
            return []
        plain = _ASIDE.sub("", words.replace("’", "'"))
        return [
            (found.groupdict().get("verb") or "any").lower()
            for sentence in _SENTENCE.split(plain)
            if not _CONDITION.match(sentence)
            for pattern in _WITHHOLDS
            for found in pattern.finditer(sentence)
            if not _NEGATION.search(sentence[: found.start()])
        ]


def _has_verb(name: str, verb: str) -> bool:
    """Return True if a word of the name begins like the verb, which may be inflected."""
    words = re.findall(r"[a-z]{3,}", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    return any(word.startswith(verb[:4]) or verb.startswith(word) for word in words)
