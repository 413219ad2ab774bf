"""HTTP: the server process, what every request passes, the endpoints and the inspector's pages.

A request passes through the sub-rooms in this order:

    server/       gunicorn: accepts a connection, reads a head, assigns a thread
    middleware/   checks, limits and records every request
    routes/       one module for each endpoint family: parses the body, calls a front, writes the reply
    inspector/    pages that show recorded requests

`app.create_app` is the composition root; `services.open_services` opens everything that lives longer than a
request.
Imports point only from the last line of this table to the first (`make lint`). Only this room and `cli` know
Flask and gunicorn.

Law: all input is hostile until a room below has parsed it, and every error is sent in the shape of the API
that the client called.
"""
