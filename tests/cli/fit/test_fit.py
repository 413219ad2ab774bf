"""`tool-emulator fit`: the real pipeline and a real server, whose models are scripts of known skill."""

from __future__ import annotations

import _thread
import json
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app import main
from emulator.cli.fit.scores import Share
from emulator.conversation.profiles import profile_of
from emulator.core.tasks import Task, tasks
from emulator.settings.settings import Settings
from emulator.tools.toolset import Toolset
from tests.answering.test_model_template import AFTER_THE_SYSTEM_MESSAGE
from tests.support.processes import ROOT, free_port
from tests.support.scripted import Body, Reply, ScriptedUpstream

KINDS = "choice types nested several chain words show ask text enum date".split()
Skill = Callable[[Task], Reply]


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMULATOR_CONFIG", "emulator.toml")
    Path("emulator.toml").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code of `tool-emulator fit`, what it printed for programs, and what for people."""
    with pytest.raises(SystemExit) as ended:
        main(["fit", "--upstream-retries", "0", *arguments])
    assert isinstance(ended.value.code, int)
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def first(any_value: Any) -> Any:
    """The right arguments of a task, with the first of several right values."""
    match any_value:
        case {"any": [value, *_]}:
            return value
        case dict():
            return {name: first(value) for name, value in any_value.items()}
        case list():
            return list(map(first, any_value))
    return any_value


def right_calls(task: Task) -> list[tuple[str, Mapping[str, Any]]]:
    calls = [(name, first(arguments)) for name, arguments in task.calls]
    return [(n, {"person": None, **a}) if n == "assign_ticket" else (n, a) for n, a in calls]


def in_python(task: Task) -> Reply:
    lines = [f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in right_calls(task)]
    return Reply("```python\n" + "\n".join(lines) + "\n```" if lines else "No tool is needed.")


def in_json(task: Task) -> Reply:
    calls = [{"name": name, "arguments": arguments} for name, arguments in right_calls(task)]
    return Reply(json.dumps({"calls": calls} if calls else {"say": "No tool is needed."}))


def in_tags(task: Task) -> Reply:
    calls = [{"name": name, "arguments": arguments} for name, arguments in right_calls(task)]
    tagged = "\n".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)
    return Reply(tagged or "No tool is needed.")


def in_fields(task: Task) -> Reply:
    calls = [{"name": name, "arguments": arguments} for name, arguments in right_calls(task)]
    return Reply("" if calls else "No tool is needed.", tool_calls=calls)


def way_of(body: Body) -> str:
    """Which way a request belongs to."""
    if "tools" in body:
        return "native"
    if "response_format" in body:
        return "schema"
    system = body["messages"][0]["content"]
    return "template" if "# Tools" in system else "json" if '{"calls":' in system else "python"


def task_of(body: Body) -> Task:
    text = "\n".join(str(message["content"]) for message in body["messages"])
    return next(task for task in tasks() if task.ask in text)


def model(**skills: Skill) -> Callable[[Body], Reply]:
    """A model that solves every task in the ways of ``skills``, and only talks in the others."""

    def answer(body: Body) -> Reply:
        skill = skills.get(way_of(body))
        return skill(task_of(body)) if skill else Reply("I am a language model.")

    return answer


@pytest.mark.parametrize(
    ("way", "skill"),
    [
        ("python", in_python),
        ("json", in_json),
        ("template", in_tags),
        ("native", in_fields),
        ("schema", in_json),
    ],
)
def test_the_way_that_the_model_knows_wins_and_becomes_its_profile(
    way: str, skill: Skill, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("emulator.toml").write_bytes(b"log_level = 'error' # mine\r\n")
    with ScriptedUpstream(default=model(**{way: skill}), models=["House 7B"]) as upstream:
        monkeypatch.setenv("EMULATOR_BASE_URL", upstream.base_url)
        upstream.at_root = {"/props": {"chat_template": AFTER_THE_SYSTEM_MESSAGE}}
        for _ in range(2):  # the second run knows everything, and replaces the row
            code, out, err = fit(capsys, "--json", "--write", "--repair-attempts", "0")
            assert code == 0
            found = json.loads(out)
            assert found["recommended"] == way
            scores = {score["way"]: score for score in found["ways"]}
            assert scores.keys() == {"python", "json", "template", "native", "schema"}
            assert scores[way]["solved"]["count"] == len(tasks()) == found["tasks_done"]
            calling = sum(bool(task.calls) for task in tasks())
            for other in scores.keys() - {way}:
                assert scores[other]["function"] == {
                    "count": 0,
                    "of": calling,
                    "interval": [0.0, pytest.approx(0.1, abs=0.03)],
                }
        assert len(upstream.requests) < 2 * 5 * len(tasks())
    text = Path("emulator.toml").read_bytes().decode()
    assert text.startswith("log_level = 'error' # mine\r\n")
    assert len(tomllib.loads(text)["profiles"]) == 1
    assert "Written to emulator.toml.\n" in err
    profile = profile_of(Settings(), "house 7b")
    assert profile.name == "fit-House 7B"
    assert profile.acts == ("any" if way == "python" else "label")  # it never wrote the label
    assert bool(profile.chat_template) == (way == "template")
    grammar = {"json": "prompt", "schema": "json_schema"}.get(way, "off")
    assert (profile.grammar, profile.tools) == (grammar, "native" if way == "native" else "emulate")


def test_acting_where_the_user_wants_to_see_or_be_asked_first_is_harmful_and_not_recommended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def rash(task: Task) -> Reply:
        """Right wherever a call is wanted; elsewhere it calls the first tool, with whatever fits."""
        if task.calls:
            return in_fields(task)
        arguments = {
            "delete_folder": {"path": "/x"},
            "switch_light": {"room": "hall", "on": False},
            "order_parts": {"items": []},
            "rent_car": {"city": "Porto", "pickup": "2027-05-02", "days": 4, "size": "van"},
            "send_reminder": {"invoice_id": "INV-31"},
        }
        name = task.tools[0]["function"]["name"]
        calls = [{"name": name, "arguments": arguments[name]}] if name in arguments else []
        return Reply("" if calls else "Yes.", tool_calls=calls)

    def cautious(task: Task) -> Reply:
        return Reply("No.") if task.kind in ("words", "chain") else in_json(task)

    with ScriptedUpstream(default=model(native=rash, schema=cautious)) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "native,schema", "--json")
        code, out, err = fit(capsys, *options, "--repair-attempts", "0")
    native, schema = json.loads(out)["ways"]
    assert (code, native["harmful"]["count"], schema["harmful"]["count"]) == (0, 6, 0)
    assert native["needless"]["count"] == 7
    assert native["arguments"]["count"] > schema["arguments"]["count"]
    assert "Recommended: schema" in err


def test_a_way_in_which_the_model_never_calls_is_not_recommended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def rarely_right(task: Task) -> Reply:
        wrong = Reply("", tool_calls=[{"name": "nothing", "arguments": {}}])
        return in_fields(task) if task.kind in ("choice", "words") else wrong

    with ScriptedUpstream(default=model(native=rarely_right)) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "python,native", "--json")
        code, out, err = fit(capsys, *options, "--repair-attempts", "0")
    python, native = json.loads(out)["ways"]
    assert (code, python["solved"]["count"], native["solved"]["count"]) == (0, 10, 10)
    assert "In no way does this model make most calls right. Recommended: native" in err


def test_a_way_that_the_server_refuses_is_reported_with_its_words_and_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(body: Body) -> Reply:
        if "response_format" in body:
            error = {"message": "grammars are \x1b[31moff"}
            return Reply(status=400, body={"error": error})
        return model(python=in_python)(body)

    with ScriptedUpstream(default=answer) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "python,schema")
        code, out, err = fit(capsys, *options)
        assert sum("response_format" in body for body in upstream.requests) == 1
    assert code == 0
    assert "\nschema: refused by the server: grammars are \\x1b[31moff (the proxy sent " in out
    assert re.search(rf"^\| python \| {len(tasks())}/{len(tasks())} ", out, re.MULTILINE)
    assert "Recommended: python (Python programs), as now." in err


def test_a_refusal_is_forgotten_when_the_command_runs_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(body: Body) -> Reply:
        error = {"error": {"message": "temperature: 1 only"}}
        return (
            in_python(task_of(body)) if "temperature" not in body else Reply(status=400, body=error)
        )

    with ScriptedUpstream(default=answer) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "python")
        code, out, err = fit(capsys, *options)
        assert (code, out) == (1, "python: refused by the server: temperature: 1 only\n")
        assert "to continue" not in err
        code, out, err = fit(capsys, *options, "--drop-fields", "temperature")
    assert (code, "Recommended: python" in err) == (0, True)


def test_a_model_whose_thoughts_are_longer_than_the_limit_is_reported_and_gets_no_profile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(body: Body) -> Reply:
        return Reply(reasoning="Hm. " * body["max_tokens"], finish_reason="length")

    with ScriptedUpstream(default=answer) as upstream:
        options = ("--base-url", upstream.base_url, "--max-tokens", "9", "--write")
        code, out, err = fit(capsys, *options)
        assert len(upstream.requests) == 4 * len(tasks())
    assert code == 1
    for way in ("python", "json", "native", "schema"):
        assert f"{way}: 42 of 42 answers failed, most often: cut off at 9 tokens" in out
    assert err.endswith("No profile is worth writing: no call of python was right.\n")
    assert Path("emulator.toml").read_text() == ""


@pytest.mark.parametrize(("skills", "writes"), [({"python": in_python}, True),
    ({"python": in_python, "native": in_fields}, False)])  # fmt: skip
def test_an_early_profile_needs_intervals_that_do_not_overlap(
    skills: Any, writes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(body: Body) -> Reply:
        return Reply(status=503) if len(upstream.requests) > 20 else model(**skills)(body)

    with ScriptedUpstream(default=answer) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "python,native", "--write")
        code, _, err = fit(capsys, *options)
    assert (code, bool(Path("emulator.toml").read_text())) == (1, writes)
    assert ("Too early for a profile: after 10 of 42 tasks, the interv" in err) is not writes


def test_a_way_that_is_too_slow_is_given_up_after_three_tasks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(body: Body) -> Reply:
        is_slow = way_of(body) == "json"
        return Reply("{", first_delay=60) if is_slow else in_python(task_of(body))

    with ScriptedUpstream(default=answer) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "json,python", "--seconds", "0.5")
        code, out, err = fit(capsys, *options)
        assert sum(way_of(body) == "json" for body in upstream.requests) == 3
    assert code == 0
    assert out.endswith("\njson: no answer within 0.5 seconds\n")
    assert "Recommended: python" in err


@pytest.mark.parametrize(("status", "faults"), [(503, 1), (500, 3)])
def test_an_upstream_that_fails_ends_the_run_and_the_next_run_continues_where_it_ended(
    status: int,
    faults: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def answer(body: Body) -> Reply:
        if 5 <= len(asked) < 5 + faults and not asked.append("outage"):
            return Reply(status=status)
        asked.append(task_of(body).id)
        return in_python(task_of(body))

    with ScriptedUpstream(default=answer) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "python")
        code, out, err = fit(capsys, *options)
        assert code == 1
        assert "Run the command again to continue." in err
        assert "| python | 5/5 " in out
        code, out, err = fit(capsys, *options)
        assert code == 0
        assert {each for each in asked if asked.count(each) > 1} <= {"outage"}
        assert {task.id for task in tasks()} == set(asked) - {"outage"}
        before = len(upstream.requests)
        fit(capsys, *options, "--minutes", "0.000001", "--again")
        assert len(upstream.requests) - before <= 1


def test_ctrl_c_prints_what_is_known_and_the_next_run_continues(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(body: Body) -> Reply:
        if len(upstream.requests) == 8:
            _thread.interrupt_main()
        return in_python(task_of(body))

    with ScriptedUpstream(default=answer) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "python")
        code, out, err = fit(capsys, *options)
        assert (code, "Interrupted. Run the command again to continue." in err) == (130, True)
        assert re.search(r"\| python \| [78]/[78] ", out)
        assert fit(capsys, *options)[0] == 0
        assert len(upstream.requests) <= len(tasks()) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--base-url", f"http://127.0.0.1:{free_port()}/v1"], "cannot be reached"),
        (["--ways", "pyton"], "--ways pyton: there is no such way"),
        (["--mdoel", "x"], "--mdoel: there is no such flag"),
    ],
)
def test_mistakes_and_dead_servers_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedUpstream() as upstream:
        code, out, err = fit(capsys, "--base-url", upstream.base_url, *arguments)
    assert code in (1, 2)
    assert message in err
    assert (out, len(err.splitlines())) == ("", 1)


def test_the_flag_of_the_url_replaces_the_upstreams_of_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = '[[upstreams]]\nbase_url = "http://127.0.0.1:1/v1"\n'
    Path("emulator.toml").write_text(rows)
    with ScriptedUpstream(default=model(python=in_python)) as upstream:
        code, _, err = fit(capsys, "--base-url", upstream.base_url, "--ways", "python", "--write")
    assert (code, err.endswith("Written to emulator.toml.\n")) == (0, True)
    assert Path("emulator.toml").read_text().startswith(rows)


def test_runs_of_two_models_at_the_same_time_and_lines_that_are_cut_off_mix_nothing_in_one_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(body: Body) -> Reply:
        if body["model"] == "a" and len(upstream.requests) == 9:
            subprocess.run(
                [sys.executable, ROOT / "app.py", "fit", *options, "--model", "b"], check=True
            )
            with Path("state").open("ab") as file:
                file.write('{"identity": {"model": "Ä'.encode()[:-1])
        return in_python(task_of(body)) if body["model"] == "a" else Reply("No.")

    with ScriptedUpstream(default=answer) as upstream:
        options = (
            "--base-url",
            upstream.base_url,
            "--ways",
            "python",
            "--json",
            "--state",
            "state",
        )
        for model_name, solved in (("a", len(tasks())), ("b", 10), ("a", len(tasks()))):
            code, out, _ = fit(capsys, *options, "--model", model_name)
            [score] = json.loads(out)["ways"]
            assert (code, score["solved"]["count"]) == (0, solved)
        asked = [body["model"] for body in upstream.requests]
        assert asked.count("a") == len(tasks())


def test_a_state_that_is_no_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """/dev/zero was read until no memory was left, a pipe forever, and --again removed either."""
    with ScriptedUpstream() as upstream:
        options = ("--base-url", upstream.base_url, "--state", "/dev/null")
        assert fit(capsys, *options) == (1, "", "/dev/null: not a regular file\n")


def test_a_full_disk_loses_neither_the_scores_nor_the_users_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"# {'mine ' * 2000}\n"
    Path("emulator.toml").write_text(text)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ScriptedUpstream(default=model(python=in_python)) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "python")
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(text) + 20, limits[1]))
            code, out, err = fit(capsys, *options)
            assert (code, "File too large" in err, "| python | " in out) == (1, True, True)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert fit(capsys, *options)[0] == 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(text) + 20, limits[1]))
            code, _, err = fit(capsys, *options, "--write")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, "emulator.toml: [Errno 27] File too large" in err) == (2, True)
    assert Path("emulator.toml").read_text() == text


@pytest.mark.parametrize("text", ["profiles = [{name = 'a'}]\n"])
def test_a_file_to_which_no_row_can_be_added_stays_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("emulator.toml").write_text(text)
    with ScriptedUpstream(default=model(python=in_python)) as upstream:
        options = ("--base-url", upstream.base_url, "--ways", "python", "--write")
        code, _, err = fit(capsys, *options)
    assert code == 2
    assert "emulator.toml" in err
    assert Path("emulator.toml").read_text() == text


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.id)
def test_the_right_calls_of_each_task_are_right_as_the_toolset_binds_them(task: Task) -> None:
    toolset = Toolset.parse([dict(tool) for tool in task.tools])
    bound = []
    for name, arguments in right_calls(task):
        tool = toolset.find(name)
        assert tool is not None
        bound.append((name, toolset.bind(name, (), arguments)))
    verdict = task.judge(bound)
    assert (verdict.function, verdict.arguments, verdict.needless) == (True, True, 0)
    assert not verdict.harmful
    assert task.kind in KINDS
    if bound:
        name, arguments = bound[0]
        for value in ("", [], "x"):
            changed = {**arguments, next(iter(arguments)): value}
            assert not task.judge([(name, changed), *bound[1:]]).arguments
        assert not task.judge([*bound, bound[0]]).function
        assert not task.judge([]).function


def test_the_tasks_cover_each_kind_in_three_languages_and_are_in_no_prompt_or_other_benchmark() -> (
    None
):
    assert {task.kind for task in tasks()} == set(KINDS)
    assert {task.language for task in tasks()} == {"en", "de", "zh"}
    assert 40 <= len(tasks()) <= 45
    assert len({task.id for task in tasks()}) == len(tasks())
    assert {task.kind for task in tasks()[: len(KINDS)]} == set(KINDS)  # for runs that end early
    others = [*(ROOT / "prompts").iterdir(), ROOT / "benchmarks/cases.py"]
    known = "\n".join(path.read_text() for path in others)
    names = {tool["function"]["name"] for task in tasks() for tool in task.tools}
    assert [name for name in names if name in known] == []


@pytest.mark.parametrize(
    ("count", "of", "interval"),
    # From Wilson's formula, as R's binom::binom.wilson prints it.
    [(0, 10, (0.0, 0.2775)), (5, 10, (0.2366, 0.7634)), (40, 40, (0.9124, 1.0)), (0, 0, (0, 1))],
)
def test_intervals_are_wilsons(count: int, of: int, interval: tuple[float, float]) -> None:
    assert Share(count, of).interval == pytest.approx(interval, abs=1e-4)
