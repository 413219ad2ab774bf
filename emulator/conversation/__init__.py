"""What a client asks for: its request, parsed once into values that nothing below the front reads again.

    ChatCompletionRequest -> AnswerRequest: messages, toolset, `call_policy`, `profiles`, `answer_format`

`answer_request.AnswerRequest` is the value from which every decision about one answer is made.
`client_history` joins the items or blocks of a front to messages. `deferred_tools` and `tool_search`
decide which of many tools the model sees at first; `hosted_offer` adds the proxy's own tools under free
names; `forced_call` is the only call that a reply may make. `context` decides what the model reads of a long
history.

Laws: nothing here asks a model or knows what a prompt looks like; a mistake of the client is an error
that names its place in the request.
"""
