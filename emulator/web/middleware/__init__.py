"""What every request passes before and after its route.

Two kinds. WSGI middleware surrounds the whole application, outermost first:

    admission      limits concurrent requests and the bytes of their bodies
    disconnects    watches the client's connection

Flask hooks run inside it, in the order in which `app.create_app` registers them: `request_log`, `loop_guard`,
`browser_guard`, then for API routes `authorization`, `limits` and `recording`. After the route `recording`,
`limits`, `request_log` and `browser_guard` see the response; `error_replies` makes one of every exception.

Law: a request that is refused here costs no more than its head: its body is not parsed, nothing is recorded.
"""
