"""The four tools of a code session as a LlamaIndex ToolSpec; here its FunctionAgent uses them.

make run                                     # in another terminal: the proxy, in front of your model
pip install llama-index-llms-openai-like     # brings llama-index-core, which alone is enough for the tools
python examples/llama_index_tools.py "Sum the numbers in numbers.csv" [FOLDER]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from proxy import KEY, MODEL, URL
from code_session import CodeSession
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.llms.openai_like import OpenAILike


class CodeSessionToolSpec(CodeSession, BaseToolSpec):
    """`to_tool_list()` makes a tool of each of `spec_functions`."""

    spec_functions = CodeSession.spec_functions


async def main(question: str, folder: Path) -> None:
    llm = OpenAILike(
        model=MODEL,
        api_base=URL,
        api_key=KEY,
        is_chat_model=True,
        is_function_calling_model=True,
    )
    agent = FunctionAgent(tools=CodeSessionToolSpec(folder).to_tool_list(), llm=llm)
    run = agent.run(question)
    async for event in run.stream_events():
        if isinstance(event, ToolCallResult):
            print(f"{event.tool_name}({event.tool_kwargs})\n  -> {event.tool_output.content}")
    print(await run)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else ".")))
