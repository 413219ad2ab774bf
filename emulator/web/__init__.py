"""HTTP: routes, keys, errors, streams and the server process.

Only this room and `cli` know Flask and gunicorn.
"""
