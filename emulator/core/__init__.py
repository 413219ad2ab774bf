"""What every room may use: the values that rooms exchange, errors, JSON, logs, metrics, names and addresses.

    protocol      a Chat Completions request, as the proxy reads it
    events        the events of one answer, which each front writes in its wire format
    errors        the errors that clients see, with their place in the request
    front_paths   the APIs that the proxy serves, by path

The other modules are small and independent: one JSON codec, one log format, one table of metrics, what
counts as the same name (`spellings`), which URLs lead back to this proxy (`addresses`), what ends when a
client leaves (`client_disconnect`).

Laws: this room imports nothing else of ours and knows neither Flask nor SQL; a name that only one room
needs belongs to that room.
"""
