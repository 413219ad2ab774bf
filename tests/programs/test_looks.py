"""A program acts after a failed call only if the failure has answered it (docs/programs.md).

Each program is given a failure as the result of its first call. The table says whether it then acts, and the
model reads why if it does not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.chat import plain
from tests.support.programs import result
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

TOOLS = [
    function("run", strings("command"), "Run a command."),
    function("act", strings("text"), "Do something."),
    function("read_file", strings("path"), "Read a file."),
    function("get_weather", {"properties": {"city": {}}, "required": ["city"]}, "Get the weather."),
]
MISSING = "Error: file not found: log.txt"
TIMEOUT = "Error: command timed out"
DENIED = "Error: permission denied"
ROW = '{"error": "no such user: ann"}'
STATUS = '{"success": false, "error": "no such user: ann"}'

READ = 't = read_file("log.txt")\n'
RUN = 't = run("x")\n'
CHECK_NOTHING: list[tuple[str, str]] = [
    # The first 25 are ordinary programs; then kin.
    (MISSING, READ + 'n = sum(1 for l in t.splitlines() if "ERROR" in l)\nact(f"{n} errors today")'),
    (TIMEOUT, RUN + 'if t != "clean":\n    act("reset")'),
    (DENIED, RUN + 'if "debug" not in t:\n    act("overwrite")'),
    (ROW, RUN + 'act(str(t.get("score", 0) + 1))'),
    (ROW, RUN + 'if t:\n    act("b")'),
    (MISSING, RUN + 'if not t:\n    act("a")\nelse:\n    act("b")'),
    (MISSING, RUN + 'known = {str(t)}\nact("b")'),
    (MISSING, RUN + 'seen = {}\nseen[t] = 1\nact(str(len(seen)))'),
    (MISSING, RUN + 'if t.find("x-ray") < 0:\n    act("b")'),
    (MISSING, RUN + 'n = t.count("x-ray")\nact(f"{n} rays")'),
    (MISSING, RUN + 'if not t.startswith("OK"):\n    act("b")'),
    (MISSING, RUN + 'if t.endswith("ready"):\n    pass\nelse:\n    act("b")'),
    (MISSING, RUN + 'if len(t) > 0:\n    act("b")'),
    (MISSING, RUN + 'if t > "a" or t < "a":\n    act("b")'),
    (MISSING, RUN + 'act("long" if len(t.split()) > 3 else "short")'),
    (MISSING, RUN + 'if t.isascii() and t.isprintable():\n    act("b")'),
    (MISSING, RUN + 'if t is not None:\n    act("b")'),
    (MISSING, RUN + 'if isinstance(t, str):\n    act("b")'),
    (ROW, RUN + 'if isinstance(t, dict):\n    act(str(len(t)))'),
    (ROW, RUN + 'act(t.get("status", "unknown"))'),
    (ROW, RUN + 'if t.get("admin") is None:\n    act("b")'),
    (ROW, RUN + 'if "banned" not in t:\n    act("b")'),
    (ROW, RUN + 'for key in t:\n    act("b")'),
    (MISSING, RUN + 'import re\nif not re.search("ready|done", t):\n    act("b")'),
    (MISSING, RUN + 'longest = max([t, "x"], key=len)\nact("b")'),
    # Questions that every failure answers
    (MISSING, RUN + 'if "" in t and t.startswith(""):\n    act("b")'),
    (MISSING, RUN + 'if t.find("") == 0 and t.count("") and not t.index(""):\n    act("b")'),
    (MISSING, RUN + 'import re\nm = re.match(r"(.*)", t)\nact("b" if m else "c")'),
    (MISSING, RUN + 'import re\nif re.compile(r"\\s*").match(t):\n    act("b")'),
    (MISSING, RUN + 'import re\nlines = list(re.finditer("x-ray", t))\nact(str(len(lines)))'),
    (MISSING, RUN + 'import re\nwords = re.findall("[0-9]+", t)\nact(str(len(words)))'),
    (MISSING, RUN + 'u = read_file("y")\nif t == u:\n    act("nothing has changed")'),
    (MISSING, RUN + 'if t == t:\n    act("b")'),
    (MISSING, RUN + 'if t in [t]:\n    act("b")'),
    (MISSING, RUN + 'if type(t) is str or type(t) == str:\n    act("b")'),
    (MISSING, RUN + 'match t:\n    case "ok":\n        act("a")\n    case _:\n        act("b")'),
    (MISSING, RUN + 'match t:\n    case str():\n        act("b")'),
    (ROW, RUN + 'match t:\n    case {"id": i}:\n        act("a")\n    case dict():\n        act("b")'),
    (ROW, RUN + 'd = {"admin": False, **t}\nact("b")'),
    (ROW, RUN + 'd = dict(t)\nd.update(t)\nact(str(d.get("admin", 0)))'),
    (ROW, RUN + 'd = {"admin": False} | t\nif not d["admin"]:\n    act("b")'),
    (ROW, RUN + 'act(", ".join(k for k in t.keys() if t[k]))'),
    (ROW, RUN + 'n = t.setdefault("n", 1) + t.pop("m", 1)\nact(str(n))'),
    (ROW, RUN + 't["n"] = t.get("n", 0) + 1\nact(str(t["n"]))'),
    (ROW, RUN + 't["n"] = 1\nu = t.copy()\nact(str(u["n"]))'),
    (ROW, RUN + 'import copy\nt["n"] = 1\nact(str(copy.deepcopy(t)["n"]))'),
    (ROW, RUN + 't.setdefault("n", 1)\nact(str(t["n"]))'),
    (ROW, RUN + 'd = t | {"n": 1}\nact(str(d["n"]))'),
    (ROW, RUN + 'import copy\nu = copy.deepcopy(t)\nif u:\n    act("b")'),
    (ROW, RUN + 'if bool(t) and hash(str(t)):\n    act("b")'),
    (MISSING, RUN + 'import operator\nif operator.ne(t, "clean") or operator.is_(t, None):\n    act("b")'),
    (MISSING, RUN + 'if t not in ("clean", "ok"):\n    act("b")'),
    (MISSING, RUN + 'if all(c != "!" for c in t):\n    act("b")'),
    (MISSING, RUN + 'act({"clean": "a"}.get(t, "b"))'),
    (MISSING, RUN + 'import json\nact("b" if json.dumps({"t": t}) else "c")'),
    # A test for success with an ``else``: a model turn
    (MISSING, RUN + 'if "passed" in t:\n    act("a")\nelse:\n    act("b")'),
    (STATUS, RUN + 'if t == {"success": True}:\n    act("a")\nelse:\n    act("b")'),
]  # fmt: skip

CHECK: list[tuple[str, str]] = [
    # The first 17 are ordinary programs; then kin. The act is "b".
    (MISSING, RUN + 'if t.startswith("Error"):\n    act("b")'),
    (MISSING, RUN + 'if "not found" in t:\n    act("b")'),
    (MISSING, RUN + 'if "error" in t.lower():\n    act("b")'),
    (TIMEOUT, RUN + 'if t == "Error: command timed out":\n    act("b")'),
    (STATUS, RUN + 'if not t["success"]:\n    act("b")'),
    (STATUS, RUN + 'if t.get("success") is False:\n    act("b")'),
    (ROW, RUN + 'if "error" in t:\n    act("b")'),
    (ROW, RUN + 'if t.get("error"):\n    act("b")'),
    (ROW, RUN + 'e = t["error"]\nact("b")'),
    (ROW, RUN + 'match t:\n    case {"error": message}:\n        act("b")'),
    (MISSING, 'try:\n    t = run("x")\nexcept Exception as e:\n    act("b")'),
    (MISSING, 'try:\n    t = run("x")\nexcept ToolError as e:\n    print(str(e))\n    act("b")'),
    (MISSING, RUN + 'try:\n    n = int(t)\nexcept ValueError:\n    act("b")'),
    (MISSING, RUN + 'import json\ntry:\n    n = json.loads(t)\nexcept ValueError:\n    act("b")'),
    (MISSING, RUN + 'import re\nif re.search(r"not found|denied", t):\n    act("b")'),
    (MISSING, RUN + 'if t.find("not found") >= 0:\n    act("b")'),
    (MISSING, RUN + 'if t.count("Error") > 0:\n    act("b")'),
    # Kin
    (MISSING, RUN + 'if t.rfind("found") != -1 and t.endswith("log.txt"):\n    act("b")'),
    (MISSING, RUN + 'if t.index("not found"):\n    act("b")'),
    (MISSING, RUN + 'if not t != "Error: file not found: log.txt":\n    act("b")'),
    (MISSING, RUN + 'if any(w in t for w in ("denied", "not found")):\n    act("b")'),
    (MISSING, RUN + 'if t.split(":")[0] == "Error":\n    act("b")'),
    (MISSING, RUN + 'if t[:5] == "Error":\n    act("b")'),
    (MISSING, RUN + 'if f"<{t}>".startswith("<Error"):\n    act("b")'),
    (MISSING, RUN + 'if "Error" in "%s!" % (t,):\n    act("b")'),
    (MISSING, RUN + 'import re\nif "Error" in re.sub(r"\\s+", " ", t):\n    act("b")'),
    (MISSING, RUN + 'import re\nif re.compile("^error", re.I).match(t):\n    act("b")'),
    (MISSING, RUN + 'import re\nif re.findall("not found", t):\n    act("b")'),
    (MISSING, RUN + 'match t.split(":")[0]:\n    case "Error":\n        act("b")'),
    (STATUS, RUN + 'ok = t.pop("success")\nif not ok:\n    act("b")'),
    (STATUS, RUN + 'for k, v in t.items():\n    if k == "success" and not v:\n        act("b")'),
    (STATUS, RUN + 'd = {"tries": 0, **t}\nif d["error"].startswith("no such"):\n    act("b")'),
    (ROW, RUN + 'if "no such user" in str(t):\n    act("b")'),
    (ROW, RUN + 'import json\nif "error" in json.loads(json.dumps(t)):\n    act("b")'),
    (MISSING, RUN + 'try:\n    assert t == "ok"\nexcept AssertionError:\n    act("b")'),
    (MISSING, 'from contextlib import suppress\nwith suppress(Exception):\n    t = run("x")\nact("b")'),
    (MISSING, 'import asyncio\nasync def f():\n    return await run("x")\nasync def main():\n'
     '    return await asyncio.gather(f(), return_exceptions=True)\n[t] = asyncio.run(main())\n'
     'if isinstance(t, Exception):\n    act("b")'),
]  # fmt: skip

PASSED_ON: list[str] = [
    'get_weather(city=t)',
    'get_weather(city=f"in {t}")',
    'get_weather("in " + t)',
    'get_weather(t.strip().lower()[:20])',
    'get_weather("{} {}".format(t, 1))',
    'get_weather("%s" % t)',
    'get_weather("%s %s" % (t, 1))',
    'get_weather("%(t)s" % {"t": t})',
    'get_weather(", ".join([t, "x"]))',
    'get_weather(city=t.split(": ")[1])',
    'for line in t.splitlines():\n    get_weather(line)',
    'for c in t.partition(":"):\n    get_weather(c)',
    'import json\nget_weather(json.dumps({"t": [t]}))',
    'import re\nget_weather(re.sub("Error: ", "", t))',
    'import re\nfor part in re.split(":", t):\n    get_weather(part)',
    'get_weather([t])',
    'get_weather({"t": (1, {t})})',
    'from dataclasses import dataclass\n@dataclass\nclass C:\n    t: str\nget_weather(C(t))',
    'import copy\nget_weather(copy.copy(t))',
    'print([get_weather(t), get_weather("Oslo")])',
]  # fmt: skip


@dataclass
class Played:
    """What a program did after its first call failed: the arguments of its other calls, the model's turns,
    and the last message that the model read."""

    calls: list[str]
    turns: int
    read: str


def played(url: str, upstream: ScriptedUpstream, source: str, failure: str) -> Played:
    before = len(upstream.requests)
    upstream.reply(f"```tool_code\n{source}\n```", "Done.")
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    made: list[str] = []
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        while True:
            answer = plain(client, model="m", messages=messages, tools=TOOLS).choices[0].message
            messages.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                break
            for call in answer.tool_calls:
                if call.function.name in ("act", "get_weather"):
                    made.append(next(iter(json.loads(call.function.arguments).values())))
                messages.append(result(call, "ok" if made else failure))
    requests = upstream.requests[before:]
    return Played(made, len(requests), str(requests[-1]["messages"][-1]["content"]))


def test_a_program_that_checks_nothing_does_not_act_after_a_failure(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """18 of the first 25 acted: the question counted, not the answer."""
    url = start_proxy()
    for failure, source in CHECK_NOTHING:
        found = played(url, upstream, source, failure)
        assert (found.calls, found.turns) == ([], 2), source
        said = json.loads(failure)["error"] if failure.startswith("{") else failure
        for words in (said, "had not checked its result", "in line 1", "act(", "make them now"):
            assert words in found.read, (source, found.read)


def test_a_program_that_the_failure_answers_acts(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy()
    for failure, source in CHECK:
        found = played(url, upstream, source, failure)
        assert found.calls == ["b"], (source, found.read)


@pytest.mark.parametrize("checked", [False, True])
def test_a_failure_is_passed_to_a_call_only_if_it_was_looked_at(
    start_proxy: StartProxy, upstream: ScriptedUpstream, checked: bool
) -> None:
    """``get_weather(city="Error: x must be 2")`` was sent: only acting calls were judged."""
    url = start_proxy()
    for use in PASSED_ON:
        look = 'if "Error" in t:\n    print("failed")\n' if checked else ""
        found = played(url, upstream, f"{RUN}{look}{use}", MISSING)
        if checked:
            assert found.calls, (use, found.read)
        else:
            assert found.calls == [], use
            assert "had not checked its result" in found.read, (use, found.read)
