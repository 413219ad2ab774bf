"""Every format of the table, in every variant: plain, with words around, nested, cut off, stripped ..."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.format_table import PAGE, page
from tests.support.formats import AFTER, BEFORE, FORMATS, THOUGHT, VARIANTS, Format, reply
from tests.support.read_reply import Found, found_in, same_calls

every_format = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def wrong(format: Format, variant: str, found: Found) -> str:
    """What of the variant was not read as it should be; "" if nothing."""
    shown = " ".join(found.shown.replace(format.label, "").split())
    if variant == "wrong name":
        return "" if found.asked and not found.calls else f"not asked about: {found}"
    if not same_calls(found.calls, VARIANTS[variant]):
        return f"other calls: {found}"
    if variant == "prose":
        before = BEFORE if format.shown else ""
        return (
            ""
            if shown in (before, f"{before} {AFTER.strip()}".strip())
            else f"other words: {shown!r}"
        )
    if variant == "reasoning" and format.thought and found.thought.strip() != THOUGHT:
        return f"other thoughts: {found.thought!r}"
    return f"shown: {shown!r}" if shown else ""


@every_variant
@every_format
def test_a_format_is_read_whole_and_character_by_character(format: Format, variant: str) -> None:
    text = reply(format, variant)
    whole = found_in(text)
    assert found_in(text, range(1, len(text))) == whole
    if variant in format.unread:
        assert not whole.calls
    elif variant != "cut off":
        assert wrong(format, variant, whole) == ""


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FORMATS), st.sampled_from(sorted(VARIANTS)), st.data())
def test_a_format_is_read_the_same_however_it_is_cut(
    format: Format, variant: str, data: st.DataObject
) -> None:
    text = reply(format, variant)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert found_in(text, cuts) == found_in(text)


@every_format
def test_of_a_block_that_was_cut_off_nothing_is_called(format: Format) -> None:
    """Wherever a token limit falls, what is called is what the whole reply calls, from its beginning."""
    text, wanted = reply(format, "cut off"), VARIANTS["cut off"]
    for end in range(len(text)):
        calls = found_in(text[:end], cut_off=True).calls
        assert same_calls(calls, wanted[: len(calls)]), text[:end]


def test_the_page_of_formats_is_up_to_date() -> None:
    """Run ``make formats`` after a change of the table."""
    assert PAGE.read_text(encoding="utf-8") == page()
