"""The model's side: which upstream serves which model, how requests reach it, what its answers contain.

What flows: a front's answer asks `Upstreams.route` for a `Route` and `Upstreams.for_answer` for an
`AnswerUpstream`; its ``open`` sends one turn and returns an `UpstreamReply`, whose chunks are plain dicts,
decoded once. On its way a request passes

    routes       which upstream, under which name of the model
    windows      an error if it cannot fit the model's context
    guarded      a slot of the upstream, its `breaker`, its `retries`
    client       the HTTP request; `chunk` reads the events that `sse` finds in the response
    transport    connections (urllib3), with `chunked` for the bodies

`metering` records each request in its trace and counts its tokens. `pass_through` describes requests that are
not chats, whose model `named_model` finds; `permissions` checks it against the client's key. `reachability`
and `servers` look at the upstreams when the proxy starts, `windows` at the contexts of their models while it
runs. `local_model` serves a small model if nothing is configured.

Laws: chats are always streamed. A refusal keeps the upstream's status and words, but never its key. Nothing
is sent again once an upstream has accepted. When a client disconnects, its upstream's connection ends
immediately. Nothing here knows tools.

Start at `upstreams`.
"""
