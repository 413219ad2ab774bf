"""Replies that the upstream constrains to a JSON Schema built from the toolset.

    {"say": "It is warm."}
    {"calls": [{"name": "get_weather", "arguments": {"location": "Oslo"}}]}

`schema.reply_schema` builds the schema and `schema.constraint` the request field that carries it;
`reply.ConstrainedSplitter` reads such a reply, `reply.write_reply` writes one for the history. A schema may
allow less than the tools do, and servers ignore some of its keywords: `Toolset.bind` validates every call.
"""
