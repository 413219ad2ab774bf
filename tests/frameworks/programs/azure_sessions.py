"""The classes that run code in Azure's dynamic sessions, each as its documentation shows it.

    python azure_sessions.py CLASS    in a folder with data.csv and words.txt

Only the pool's endpoint and the token are the proxy's. What each class answers is printed for the test.
Runs in an environment of its own: nothing of the proxy is here.
"""

import asyncio
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENDPOINT = os.environ["POOL_ENDPOINT"]
KEY = "client-key"
SUM = "total = sum(int(cell) for cell in open('/mnt/data/data.csv').read().split(','))\ntotal"
WRITE = "open('/mnt/data/total.txt', 'w').write(str(total))\nprint('written')"
FAIL = "total / 0"
PICTURE = (
    "from IPython.display import display\n"
    "display({'image/png': 'iVBORw0KGgo='}, raw=True)  # a PNG's first eight bytes"
)


def llama_index() -> dict[str, Any]:
    from llama_index.tools.azure_code_interpreter import AzureCodeInterpreterToolSpec

    spec = AzureCodeInterpreterToolSpec(pool_management_endpoint=ENDPOINT, local_save_path=".")
    # Its constructor takes no credential: without this it asks for DefaultAzureCredential.
    spec.access_token_provider = lambda: KEY
    run, list_files = spec.to_tool_list()
    uploaded = spec.upload_file(local_file_path="data.csv")
    outputs = [
        run.call(python_code=code).raw_output["properties"] for code in (SUM, WRITE, FAIL, PICTURE)
    ]
    [saved] = Path().glob("*.png")
    return {
        "uploaded": [(file.filename, file.file_full_path) for file in uploaded],
        "results": [output["result"] for output in outputs],
        "status": [output["status"] for output in outputs],
        "stdout": outputs[1]["stdout"],
        "stderr": outputs[2]["stderr"],
        "picture": saved.read_bytes().hex(),
        "files": {file.filename: file.size_in_bytes for file in list_files.call().raw_output},
        "content": spec.download_file_to_local("/mnt/data/total.txt").read().decode(),
    }


def langchain() -> dict[str, Any]:
    from langchain_azure_dynamic_sessions import SessionsPythonREPLTool

    with SessionsPythonREPLTool(
        pool_management_endpoint=ENDPOINT, access_token_provider=lambda: KEY
    ) as tool:
        uploaded = tool.upload_file(local_file_path="data.csv")
        with Path("words.txt").open("rb") as words:
            below = tool.upload_file(data=words, remote_file_path="in/words.txt")
        outputs = [json.loads(tool.invoke(code)) for code in (SUM, WRITE, FAIL, PICTURE)]
        return {
            "uploaded": [uploaded.full_path, below.full_path],
            "outputs": outputs,
            "files": {file.filename: file.size_in_bytes for file in tool.list_files()},
            "content": tool.download_file(remote_file_path="total.txt").read().decode(),
        }


def semantic_kernel() -> dict[str, Any]:
    from httpx import AsyncClient
    from semantic_kernel.core_plugins.sessions_python_tool.sessions_python_plugin import (
        SessionsPythonTool,
    )

    async def run() -> dict[str, Any]:
        tool = SessionsPythonTool(
            auth_callback=lambda: KEY,
            pool_management_endpoint=ENDPOINT,
            http_client=AsyncClient(timeout=60),  # its own waits for five seconds
            enable_dangerous_file_uploads=True,
            allowed_upload_directories={"."},
        )
        uploaded = await tool.upload_file(local_file_path="data.csv")
        outputs = [await tool.execute_code(code) for code in (SUM, WRITE, FAIL)]
        content = await tool.download_file(remote_file_name="total.txt")
        return {
            "uploaded": uploaded.full_path,
            "outputs": outputs,
            "files": {file.filename: file.size_in_bytes for file in await tool.list_files()},
            "content": content.read().decode(),
        }

    return asyncio.run(run())


def double(number: int) -> int:
    return math.prod([2, number])


def autogen() -> dict[str, Any]:
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock, with_requirements
    from autogen_ext.code_executors.azure import ACADynamicSessionsCodeExecutor
    from azure.core.credentials import AccessToken

    class Credential:
        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            return AccessToken(KEY, 4102444800)

    async def run() -> dict[str, Any]:
        token = CancellationToken()
        executor = ACADynamicSessionsCodeExecutor(
            pool_management_endpoint=ENDPOINT,
            credential=Credential(),
            work_dir=".",
            functions=[with_requirements(["ipykernel"], ["math"])(double)],
        )

        async def execute(*codes: str) -> tuple[int, str]:
            blocks = [CodeBlock(code, "python") for code in codes]
            result = await executor.execute_code_blocks(blocks, token)
            return result.exit_code, result.output

        outputs = [await execute("double(21)")]
        await executor.upload_files(["data.csv", "words.txt"], token)
        outputs += [
            await execute(SUM, WRITE),
            await execute(FAIL),
            await execute("open('words.txt').read()"),
        ]
        report = {
            "outputs": outputs,
            "files": sorted(await executor.get_file_list(token)),
            "downloaded": await executor.download_files(["total.txt"], token),
        }
        await executor.restart()
        return report | {"after restart": await execute("total")}

    report = asyncio.run(run())
    return report | {"content": Path(report["downloaded"][0]).read_text()}


CLASSES: dict[str, Callable[[], dict[str, Any]]] = {
    program.__name__: program for program in (llama_index, langchain, semantic_kernel, autogen)
}
print("\nREPORT", json.dumps(CLASSES[sys.argv[1]]()))
