"""The history as the model saw it.

An ended program stands as the model wrote it, with its output, instead of its calls and results; replies that
the model was asked to repair stand before the answer that followed.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.core.protocol import CLEARED, Message
from emulator.history import model_view_of
from emulator.programs.ended import (
    EndedProgram,
    PlacedProgram,
    drop_overlaps,
    locate_program,
    shown_programs,
)
from emulator.rendering.transcript import (
    ModelMessage,
    RenderedResult,
    TranscriptSpan,
    WriteMessage,
    joined,
    other_parts,
    render,
    rendered_results,
    transcript,
)
from emulator.tools.toolset import Toolset

_FAILED_RESULTS = 12_000
"""Characters of all results of a failed program: the error is in the code, not in the results."""
_FAILED_RESULT = 400
"""Characters that each result gets in any case."""


def model_history(
    messages: Sequence[Message],
    toolset: Toolset,
    ended: EndedProgram | None = None,
    new_files: Sequence[str] = (),
    message: WriteMessage | None = None,
) -> list[ModelMessage]:
    """Render the history; ``ended`` is a program or cell that just ended. It ends with ``new_files``.
    ``message`` writes the model's own messages (`transcript`)."""
    views = {at: model_view_of(one) for at, one in enumerate(messages) if one.model_view}
    placed = [
        place
        for one in [*(one.ended for one in views.values()), ended]
        if one is not None and (place := locate_program(one, messages)) is not None
    ]
    # What was stored is what the model saw; the history has it for other replicas.
    programs = drop_overlaps([*placed, *shown_programs(messages)])
    inside = {at for one in programs for at in range(one.start + 1, one.stop)}
    spans = [
        TranscriptSpan(at, at, [*_remark(one.files), *one.exchange])
        for at, one in views.items()
        if at not in inside
    ]
    spans.append(TranscriptSpan(len(messages), len(messages), _remark(new_files)))
    spans += [_program(one, messages, toolset) for one in programs]
    spans.sort(key=lambda one: (one.start, one.stop))
    return transcript(messages, toolset, spans, message)


def _remark(files: Sequence[str]) -> list[ModelMessage]:
    text = f"Files in the interpreter: {', '.join(files)}."
    return [{"role": "user", "content": text}] if files else []


def _program(
    placed: PlacedProgram, messages: Sequence[Message], toolset: Toolset
) -> TranscriptSpan:
    ended = placed.program
    span = messages[placed.start : placed.stop]
    ids = set(ended.ids)
    own_messages = [m for m in span if m.tool_call_id in ids or _calls(m, ids)]
    results = rendered_results(own_messages, toolset)
    rendered = [results[key] for key in ended.ids if key in results]
    if ended.failure:
        whole = [results[key] for key in ended.statement_calls if key in results]
        rendered = _shortened(rendered, whole)
    elif ended.output or ended.statement_calls:
        rendered = [results[key] for key in ended.statement_calls if key in results]
    is_cleared = all(m.cleared for m in own_messages if m.role == "tool")
    outcome = render(
        "ended.jinja",
        failure=ended.failure,
        output=CLEARED if is_cleared and ended.output else ended.output,
        results=rendered,
        offered=bool(toolset.tools),
    )
    words = span[0].text
    places = set(map(id, own_messages))
    others = [m for m in span if id(m) not in places]
    return TranscriptSpan(
        placed.start,
        placed.stop,
        [
            {
                "role": "assistant",
                "content": render("calls.jinja", text=words, source=ended.source),
            },
            *transcript(others, toolset),
            {"role": "user", "content": joined(outcome, other_parts(own_messages))},
        ],
    )


def _calls(message: Message, ids: set[str]) -> bool:
    return any(call.id in ids for call in message.tool_calls or ())


def _shortened(
    results: Sequence[RenderedResult], whole: Sequence[RenderedResult]
) -> list[RenderedResult]:
    limit = max(_FAILED_RESULT, _FAILED_RESULTS // max(len(results), 1))
    return [
        one if one in whole else RenderedResult(one.call, _cut(one.content, limit))
        for one in results
    ]


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    omitted = len(text) - head - tail
    return f"{text[:head]}\n... [{omitted:,} characters omitted] ...\n{text[-tail:]}"
