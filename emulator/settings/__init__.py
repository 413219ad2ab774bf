"""The settings: what the operator wrote, where, and whether it is right.

    command line > environment > emulator.toml > providers' variables > defaults -> `Configuration`

`settings` has one class with a field for each setting; `upstream_settings`, `mcp_settings` and
`web_search_settings` have the tables of emulator.toml. `sources` reads the places that settings come
from, `configuration` merges them and reports each mistake in one line that names its place and the
nearest name. `redaction` knows which values are secret, for every page, message and log.

Laws: the rooms above read a finished `Settings`, never a variable or a file; a secret is a `SecretStr`.

Start at `configuration.read`.
"""
