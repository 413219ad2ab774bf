"""HTTP: routes, keys, errors, streams and the server process.

`app.create_app` is the composition root: whatever lives longer than a request is opened and closed there.
`routes/` has one module for each API, `streaming` turns events into the bytes of an SSE response, `server`
is gunicorn. Only this room and `cli` know Flask and gunicorn.

Law: what comes in is hostile until a room below has parsed it; what goes wrong leaves in OpenAI's error
shape.
"""
