"""One module for each endpoint family: a request in, JSON or a stream of events out.

Each has `add_routes`, which `app.create_app` calls with the parts that the routes use. `replies` makes Flask
responses, `streaming` sends events as they are made, `uploads` reads forms and sends files.
"""
