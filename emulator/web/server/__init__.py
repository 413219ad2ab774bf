"""The server process: gunicorn's master, its workers, their connections and threads.

The life of a connection:

1. The master opens the port (`listening`) and forks the workers (`master`).
2. A worker's loop accepts a connection (`worker`).
3. The loop collects the request's head without blocking. Only a complete head gets a thread, so slow clients
   cannot occupy all threads (`connections` shows the states of a connection).
4. The thread parses the head, calls the WSGI application, reads the body against a moving deadline
   and writes the response.
5. The connection returns to the loop: it waits for the next request, or the loop closes it.

Nothing here knows the application, its routes or Flask.
"""
