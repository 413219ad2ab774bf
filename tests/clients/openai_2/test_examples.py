"""The examples of examples/ that use LlamaIndex and Instructor, as processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.clients.conftest import SharedUpstream
from tests.clients.examples import run_example

UPLOAD_AND_SUM = """\
```tool_code
upload_file(local_file_path="numbers.csv")
report = code_interpreter(python_code="sum(map(int, open('/mnt/data/numbers.csv')))")
print(report, list_files())
download_file(remote_file_path="numbers.csv", local_file_path="copy.csv")
```"""


@pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="no sandbox for kernels: no bwrap on PATH"
)
def test_llama_index(base_url: str, upstream: SharedUpstream, tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("7\n14\n21\n")
    upstream.reply(UPLOAD_AND_SUM, "They add up to 42.")
    shown = run_example("llama_index_tools.py", "Sum numbers.csv", url=base_url, folder=tmp_path)
    tools = ["upload_file", "code_interpreter", "list_files", "download_file"]
    assert [line.partition("(")[0] for line in shown.splitlines()[:-1:2]] == tools
    assert "'result': '42'" in shown
    assert shown.endswith("They add up to 42.\n")
    assert (tmp_path / "copy.csv").read_text() == "7\n14\n21\n"


def test_instructor(base_url: str, upstream: SharedUpstream, tmp_path: Path) -> None:
    """The first answer breaks a rule of the class, so the model is asked again."""
    days = "days=[Day(name='Monday', celsius=12), Day(name='Tuesday', celsius={})]"
    for celsius in (60, 15):
        upstream.reply(f"```tool_code\nForecast(city='London', {days.format(celsius)})\n```")
    made = json.loads(run_example("readme_instructor.py", url=base_url, folder=tmp_path))
    assert made == {
        "city": "London",
        "days": [{"name": "Monday", "celsius": 12.0}, {"name": "Tuesday", "celsius": 15.0}],
    }
