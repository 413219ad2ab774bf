"""Choose the way of a request by its profile, the settings and its tools."""

from __future__ import annotations

from emulator.answering.ways.json_way import JsonWay
from emulator.answering.ways.schema import constraint, reply_schema
from emulator.answering.ways.tiny import TinyWay
from emulator.answering.ways.way import Way
from emulator.conversation.answer_request import AnswerRequest
from emulator.conversation.profiles import Profile
from emulator.rendering.custom_template import teaches_label


def way_of(request: AnswerRequest, *, has_interpreter: bool) -> Way:
    """With a code interpreter the model writes Python, whatever its profile."""
    profile = request.profile
    if has_interpreter:
        return Way(profile.acts == "any")
    constrains = _constrains(request)
    if profile.few_shot:
        return TinyWay(constrains=constrains)
    if constrains and (schema := reply_schema(request.toolset.tools, request.call_policy)):
        return JsonWay(constraint=constraint(profile.grammar, schema))
    return Way(_any_call_acts(profile))


def _constrains(request: AnswerRequest) -> bool:
    """Return True if the reply may be a JSON object of words or calls.

    An answer in the client's own format cannot be one of its strings.
    """
    free = request.answer_format is None or request.call_policy.required
    on = request.settings.grammar and request.profile.grammar != "off"
    on = on and not request.chat.shows_programs
    return on and free and bool(request.toolset.tools) and request.interpreter is None


def _any_call_acts(profile: Profile) -> bool:
    teaches_other = profile.template and not teaches_label(profile.template)
    return profile.acts == "any" or bool(profile.chat_template or teaches_other)
