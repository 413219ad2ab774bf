"""LangGraph: the loop of model and tools drawn as a graph.

make run                             # in another terminal: the proxy, in front of your model
pip install langgraph langchain-openai
python examples/readme_langgraph.py
"""

from __future__ import annotations

from proxy import KEY, MODEL, URL
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


def get_weather(location: str) -> dict[str, float]:
    """Get the current weather of a city."""
    return {"celsius": {"London": 12.0, "Oslo": 4.0}.get(location, 20.0)}


def main() -> None:
    model = ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY).bind_tools([get_weather])

    def ask(state: MessagesState) -> dict[str, list]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode([get_weather]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    question = ("user", "Where is it warmer, in London or in Oslo?")
    for step in graph.compile().stream({"messages": [question]}, stream_mode="updates"):
        for node, update in step.items():
            for message in update["messages"]:
                print(f"{node}: {message.content or message.tool_calls}")


if __name__ == "__main__":
    main()
