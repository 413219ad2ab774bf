"""What the model reads: instructions, tools as stubs, and the history as if the model had written it.

    messages, toolset, what the model saw -> messages for the upstream

`prompt` joins the parts. `transcript` writes calls as Python and results as user messages;
`program_transcript` puts what the model saw of a program or a cell instead of the client's messages.
`python_calls` writes one call. `custom_template` and `model_template` show the tools with the operator's
or the model's own template. The texts are the templates of prompts/.

Laws: the same history gives the same bytes, and a longer one begins with the bytes of the shorter one
(servers cache the prefix); what a client or a tool wrote is never read as a template.
"""
