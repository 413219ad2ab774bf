"""What every request passes before and after its route.

    admission    the WSGI middleware: a slot of the process, the address of the path (`doors`), the client's
                 connection watched (`disconnects`)
    checks       Flask's hooks: one function before the route (`loop_guard`, `browser_guard`, `authorization`,
                 `limits`, `recording`), one after it (`recording`, `request_log`)

`in_flight.RequestInFlight` is what both know of a request. `error_replies` makes a response of every error.

Law: a request that is refused here costs no more than its head: its body is not parsed, and nothing but the
error is recorded.
"""
