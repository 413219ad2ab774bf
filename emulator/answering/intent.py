"""Judge from the words around a block whether the model means to run it. Knows nothing of code.

Three answers: `MEANT`, `SHOWN` (the words say that the block is an example, a suggestion, a question to the
user or a refusal) and `DOUBTFUL`. The sentence nearest to the block that says anything decides: "For
instance, ... I'll delete it now:" announces a call. An announcement within a sentence outweighs an example
("I'll call it like this:" is doubtful), but not a condition, a question or a refusal ("Once you agree, I'll
delete it:"). The tables are English, with the commonest phrases of a few other languages: words that say
nothing leave a block as it is.
"""

from __future__ import annotations

import re
from enum import IntEnum

MAX_BEFORE = 800
"""Characters before a block that are examined."""
MAX_AFTER = 300
"""Characters after a block that are awaited and examined."""
_SENTENCES = 3


class Intent(IntEnum):
    """What the model means a block for. The greater of two judgements holds."""

    MEANT = 0
    DOUBTFUL = 1
    SHOWN = 2


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_DO = (
    r"(?:run|execute|call|invoke|send|do|delete|remove|perform|proceed|go ahead|apply|commit|deploy"
    r"|push|overwrite"
    r"|book|pay|transfer)"
)
_IT = (
    r"(?:this|that|it|these|them|anything"
    r"|the (?:code|command|script|block|snippet|program|call|function|tool))"
)
#: The model announces what it does now.
_ANNOUNCES = _words(
    r"^action\s*:$",
    r"\b(?:I'll|I will|I'm (?:now )?going to|I am (?:now )?going to|I'm now|I am now|let me|let's"
    r"|let us|we'll"
    r"|I need to|I have to|I must|I should|I want to|I'd like to)\s+(?!(?:first )?(?:show|explain|give you"
    r"|demonstrate|illustrate|walk you|provide|describe|know|wait|need)\b)",
    r"^(?:(?:now|first|next|then|okay|ok|sure|so)\b)?[,:]?\s*(?:\w+ly )?(?!(?:using|depending"
    r"|according|assuming"
    r"|following|including|regarding|considering|nothing|something|anything|everything|during"
    r"|string|thing|bring)\b)"
    r"[a-z]+ing\b[^?]*$",
    r"\b(?:ich werde|lass mich|ich \w+e (?:\w+ \w+ )?(?:nun|jetzt)|(?:nun|jetzt|zuerst|dann) \w+e ich"
    r"|je vais|voy a|déjame|vou)\b|我(?:来|将|先|现在|马上|这就)|让我",
)
#: The user decides, or the model refuses: an announcement in the same sentence waits for that.
_WAITS = _words(
    r"\b(?:shall|should|may|can|could) I\b[^.!]{0,160}\?|\b(?:shall|should) I\b",
    r"\b(?:do|would) you (?:want|like|prefer|agree|mind)\b|\bready to (?:proceed|run)\b[^.!]*\?",
    r"\b(?:okay|ok) to (?:proceed|run)\b|\b(?:ok|okay|fine|alright|good) (?:with|by|for) you\b",
    r"\bare you sure\b|\bnot (?:yet )?(?:executed|sent)\b|\bpending your\b",
    r"\bif (?:this|that|it|everything) (?:is|looks|sounds|seems|works)\b[^.]{0,40}\b(?:I|tell|say|reply)\b",
    r"\b(?:please|can you|could you|you to|you need to|you should|you must) (?:first )?confirm\b"
    r"|\b(?:your|need|needs|for|without|require|requires|explicit) (?:\w+ )?(?:confirmation"
    r"|permission|approval|consent)\b"
    r"|\b(?:go-ahead|until you|unless you)\b",
    r"\b(?:once|after|when|as soon as|if|in case) you(?:'d|'ve|'re)? (?:have |are |would "
    r"|really )?(?:confirm|agree"
    r"|approve|say|want|like|wish|prefer|tell|ready|give|ok|okay|sure|happy|let|reply|answer)",
    r"\b(?:say|reply|answer|respond|type)(?: with)? (?:yes|ok|okay|go|the word)\b"
    r"|\btell me (?:to|when|if)\b"
    r"|\blet me know (?:if|when|once|whether|before)\b"
    r"[^.]{0,80}\b(?:run|execute|proceed|go ahead|ok|okay|approve|confirm|continue|should|want me"
    r"|like me)\b",
    rf"\bI (?:won't|will not|would not|wouldn't|shouldn't|should not|must not|refuse to"
    rf"|am not going to) (?:\w+ )?{_DO}\b"
    rf"[^.]*(?:\b{_IT}\b|\bso\b|\bwithout\b|\buntil\b|\bunless\b)",
    rf"\bI (?:cannot|can't|can not) {_DO}\b[^.]*\b(?:without|until|unless) (?:you|your|permission"
    rf"|approval|consent)\b",
    rf"(?:^|[,:(] ?|\bplease )(?:but |and |so )?(?:do not|don't|never) (?:actually |really |just "
    rf"|blindly |ever )?"
    rf"(?:run|execute|call|invoke|send|copy|paste|do) (?:(?:\w+ ){{1,3}}like )?{_IT}\b"
    rf"|\bwithout (?:actually )?(?:running"
    rf"|executing|calling) {_IT}\b",
    rf"\bI (?:have not|haven't|did not|didn't) (?:actually |yet )?(?:run|execute|executed|call"
    rf"|called|send|sent|do|done) {_IT}\b",
    rf"\b{_IT} (?:is not|isn't|was not|wasn't|has not been|hasn't been|will not be|won't be"
    rf"|should not be|must not be) "
    r"(?:actually )?(?:be )?(?:run|executed|called|sent|invoked)\b|\bnot (?:meant|intended"
    r"|supposed) to be (?:run|executed|called)\b",
    r"\bnicht aus(?:ge)?führ|\b(?:soll ich|möchten sie|möchtest du|willst du|bescheid"
    r"|n'exécutez pas|pas (?:encore )?exécut\w+|voulez-vous|souhaitez-vous|dois-je|veux-tu|dis-moi|dites-moi"
    r"|no (?:l[oa] )?(?:he |ha )?ejecut\w+|quieres que|desea que|de acuerdo|avísame"
    r"|não execut\w+|quer que eu|deseja que)\b"
    r"|不要(?:运行|执行)|[未没]有?(?:真正|实际)?(?:运行|执行)|请(?:先)?确认|确认后|[以行好对]吗|是否(?:继续|需要我)|请勿|要我"
    r"|実行しないで|実行しますか",
)
_EXAMPLE = (
    r"\b(?:as an example|an example (?:of|call|:)|another example|example (?:usage|call|code|of"
    r"|program|script|request"
    r"|command|output)|to illustrate|hypothetical(?:ly)?|(?:only|just|merely) an example|(?:only"
    r"|just|purely) for illustration"
    r"|for illustration(?: only)?|(?:here's|here is|this is|in this) (?:an |just an |only an |one "
    r"|a simple |a short )?example)\b"
    r"|\bexamples?\s*:|^example\b|^for (?:example|instance)\b|\bfor (?:example|instance)\b.*:$"
    r"|\b(?:zum beispiel|beispiel|beispielsweise|par exemple|exemple|por ejemplo|ejemplo"
    r"|por exemplo|exemplo"
    r"|ad esempio|esempio|bijvoorbeeld)\b|例如|比如|示例|例子|举例|例えば|например"
)
_ANYONE = r"(?:I|you|we|one|users?|people|developers?|someone|somebody)"
#: The block is an example, or something that somebody could do.
_SHOWS = _words(
    _EXAMPLE,
    r"\b(?:looks?|look) (?:something )?like(?: this| so| that| the following)?\s*:"
    r"|\blooks? like (?:this|so)\b"
    r"|\b(?:would|could|might) look\b",
    rf"\b{_ANYONE}(?: could| might) (?:\w+ )?(?:use|write|make|{_DO})\b"
    rf"|\b{_ANYONE}(?:'d| would) (?!(?:not|like|love|rather|better|appreciate|say|expect|guess|think"
    r"|need|want|have|be)\b)\w+",
    r"\b(?:I (?:\w+ )?(?:recommend|suggest|propose|advise)|my (?:suggestion|proposal|recommendation))\b"
    r"|\byou\b[^.]{1,40}\b(?:yourself|manually)\b|\bfor (?:your )?(?:reference|records)\b|\byou wrote\b",
    r"\bsuch as:?$|\broughly:$|\b(?:it|function|tool) (?:expects|takes|accepts) [^.]*:$",
    r"\b(?:würde|könnte)(?:n|st|t)?\b|\bmein vorschlag\b|\bempfehle\b"
    r"|\b(?:har|usar|ejecutar|borrar|llamar|enviar|podr|deber)ía(?:s|mos|n)?\b|\bmi propuesta\b"
    r"|\b(?:recomiendo|sugiero)\b|\b(?:fer|utiliser|exécuter|pourr|devr)ai[st]\b|我?建议",
    r"\b(?:syntax|format|signature)(?: (?:of|for) [^.:]{1,40})? (?:is|would be)\b|\bpseudo-?code\b",
    r"\b(?:here's|here is|this is) how\b|\bhow (?:you|one) (?:would|could|can|should|might)\b|^how to\b",
    rf"\b(?:this|it|that) (?:would|could|might) {_DO}\b",
    r"^(?:then |and |please )?(?:replace|substitute) [^.]{1,60} (?:with|by)\b"
    r"|\bmake sure to replace\b|^fill in\b",
    r"\b(?:expected|sample) (?:output|usage|response|result)\b|^usage\b",
    r"^(?:before|after|wrong|bad|incorrect|right|correct|good|safer|better|shorter|simpler"
    r"|like (?:so|this)|falsch|richtig|vorher|nachher"
    r"|incorrecto|correcto|antes|después|faux|correct|avant|après|错误|正确|修改前|修改后|.*用法)\s*[:：]?$",
    r"^(?:option|way|variant|approach|method|alternative|solution) (?:[a-d]|\d)\b"
    r"|\b(?:two|three|several|some) (?:ways|options|approaches)\b|\b(?:how|what) about\b"
    r"|\b(?:next time|in the future|from now on|later on)\b",
    r"\b(?:log|traceback|output|history|transcript|documentation|docs|manual|readme|tutorial|page|file|message)s?"
    r" (?:shows?|says?|reads?|contains?|suggests?)\s*:$",
)
#: It may be an example.
_HINTS = _words(
    r"\b(?:you|we|one) (?:can|should|need to|have to|must|may)\b(?! (?:see|find|expect)\b)",
    r"\b(?:for example|for instance|snippet|template|sample|boilerplate|tutorial|e\.g\."
    r"|something like|mock)\b",
    r"[?？]$",
    r"\b(?:here's|here is|here are|below is|this is) (?:a|an|the|some|your|my"
    r"|one)\b[^.]{0,60}\b(?:code|function|program"
    r"|script|command|call)\b",
    r"^to [a-z][^,:]{1,60}(?:, (?:just |simply )?(?:run|call|use|execute|type|invoke)\b|:$)",
    r"^(?:then |and |just |simply )?(?:run|execute|call|use|type|enter|paste|copy|save|install"
    r"|try|invoke) "
    r"(?:this|it|that|these|the following)\b",
    r"\b(?:the|following|this) (?:code|function|program|command) (?:will|does|shows|can)\b"
    r"|\balternatively\b",
    r"\b(?:is|are|'s|was) (?:very |extremely )?(?:dangerous|unsafe|harmful|malicious|destructive)\b",
    r"\b(?:is|are|lies|was) (?:in (?:this|the following)|here)\b[^.]*:$",
    r"\byour (?:original |own )?(?:code|version|snippet|function|script)\b[^.]*:$"
    r"|\byou (?:only|just) need\b"
    r"|\b(?:correct|right|proper|safer|better|equivalent|shorter) (?:way|form|version|call|syntax|code)\b"
    r"|\blo correcto\b|\brichtig (?:ist|wäre)\b",
    r"\b(?:sie können|du kannst|man kann|können sie|kannst du|kann man|vous pouvez|tu peux|on peut"
    r"|puedes?|você pode|puoi|si può)\b"
    r"|可以(?:这样|用|使用|通过|调用)|[您你]可以",
    r"\bI(?:'ve| have)? (?:just |already )?(?:ran|used|called|executed|\w+ed [^.:]{1,60} (?:with|using|by))\b"
    r"[^.]*:$",
)
#: What the words after a block may say of it.
_SHOWS_AFTER = _words(
    _EXAMPLE,
    r"\bis (?:that|this|it) (?:ok|okay|fine|correct|alright|all right|what you)\b",
    rf"\b(?:this|it|that|the (?:code|command|script|call)) (?:above )?would {_DO}\b",
    rf"\b(?:you|one|users?)(?:'d| would| could| might) (?:\w+ )?(?:use|write|make|{_DO})\b",
    r"^(?:then |and |please )?(?:replace|substitute) [^.]{1,60} (?:with|by)\b"
    r"|\bmake sure to replace\b|^fill in\b"
    r"|^(?:then |and |please |just |simply )?(?:save|run|execute|copy|paste) (?:this|it|the (?:code"
    r"|script|file|above)) "
    r"(?:as|in|to|with|using|by|like|from|into)\b",
    r"^(?:bitte )?ersetzen? (?:sie )?\w+|^(?:luego )?(?:reemplaz|sustituy)\w+|^remplacez? \w+"
    r"|^请?(?:把|将)?[^。]{0,30}(?:换成|替换|改成|改为)",
)
_EXPECTS = re.compile(r"^(?:the )?expected (?:output|outcome|result|response)\b", re.IGNORECASE)
#: "I'll write it so that you can read it" announces a call.
_PURPOSE = re.compile(r"\bso (?:that )?(?:you|we|one) (?:can|could|may)\b", re.IGNORECASE)
_OPEN = re.compile(r"[^\W\d_][*_)\]`\"”]{0,4}\s*\Z")
_LOWER_CASE = re.compile(r"\s*(?:\W\s*)?[a-zà-ÿ]")
_FURTHER = _words(
    r"\b(?:anything else|something else|another|also|help(?: you)? with|more|other|next)\b"
)
_ENDS_WITH_QUESTION = re.compile(r"\?\s*(?:[(\[][^()\[\]]{0,20}[)\]])?\Z")
_END = re.compile(
    r"(?<=[.!?])\s+|(?<=[。！？])|\n+|[,;]\s+(?=(?:so|but|instead|then|first)\b)|\s+[—–-]\s+"
)
_MARKS = re.compile(r"[*_#>`~\"“”]+|[‘’]")


def _sentences(text: str) -> list[str]:
    plain = _MARKS.sub(lambda mark: "'" if mark.group() in "‘’" else "", text)
    return [sentence.strip() for sentence in _END.split(plain) if sentence and sentence.strip()]


def intent_before(words: str) -> Intent | None:
    """Judge from the words before a block; None if they say nothing."""
    prose = words[-MAX_BEFORE:].rpartition("```")[2]
    last, *earlier = reversed(_sentences(prose)[-_SENTENCES:] or [""])
    for sentence in (last, *earlier):
        text = _PURPOSE.sub("", sentence)
        if _WAITS.search(text):
            return Intent.SHOWN
        announces, shows = _ANNOUNCES.search(text), _SHOWS.search(text)
        if shows:
            return Intent.DOUBTFUL if announces else Intent.SHOWN
        if announces:
            return Intent.MEANT
        if sentence is last and _HINTS.search(text):
            return Intent.DOUBTFUL
    return None


def continues_sentence(before: str, after: str) -> bool:
    """Return True for "The call ... removes the folder.": a block within a sentence is mentioned."""
    return bool(_OPEN.search(before) and _LOWER_CASE.match(after))


def intent_after(words: str, *, acts: bool) -> Intent:
    """Judge from the words after a block. If a call ``acts``, any question at their end is for the user to
    answer first."""
    sentences = _sentences(words[:MAX_AFTER])
    for sentence in sentences:
        waits = _WAITS.search(sentence) and not _FURTHER.search(sentence)
        if waits or _SHOWS_AFTER.search(sentence):
            return Intent.SHOWN
    last = " ".join(sentences[-2:])
    if acts and _ENDS_WITH_QUESTION.search(last) and not _FURTHER.search(last):
        return Intent.SHOWN
    return Intent.DOUBTFUL if any(map(_EXPECTS.match, sentences)) else Intent.MEANT


# Promises

_PROMISE = re.compile(
    r"(?:\b(?:I'll|I will|I am going to|I'm going to|let me|let's)\s+(?:now\s+|first\s+|just\s+)?"
    r"(?:check|look|call|use|get|fetch|find|search|retrieve|query|run|see)\b)[^.!?\n]*[.!:\u2026]*\s*$",
    re.IGNORECASE,
)
_WAITS_FOR_USER = _words(
    r"\?",
    r"\b(?:confirm\w*|permission|approval|consent|approve|go-ahead)\b",
    r"\b(?:let me know|tell me|say (?:yes|ok|okay|go|so|the word|when)|reply (?:with|yes)"
    r"|give me (?:the|a|your)|send me"
    r"|share (?:the|your)|provide (?:me|the|a|your)|specify|choose|pick)\b",
    r"\b(?:once|after|when|whenever|as soon as|if|unless|until|before) (?:you|your|that is|that's"
    r"|i have|i know|i get|i receive|it is|necessary|needed)\b",
    r"\b(?:need|require)\b[^.]{0,60}\b(?:from you|first|before|to know|your)\b|\bjust ask\b|\bfeel free\b",
    r"\b(?:next time|in (?:the )?future|from now on|tomorrow|later|another time|going forward)\b",
)
_MAX_PROMISE = 2000


def promises_call(prose: str) -> bool:
    """Return True if an answer ends with a promise to call that waits for nothing.

    "Let me check the weather." at the end of a reply without a call; but not "Let me know", nor a promise
    that depends on the user's answer.
    """
    end = prose[-_MAX_PROMISE:]
    if not _PROMISE.search(end):
        return False
    return not any(map(_WAITS_FOR_USER.search, _sentences(end)[-_SENTENCES:]))
