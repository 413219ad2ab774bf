"""Who is limited: a client with a key, or a network."""

from __future__ import annotations

from contextlib import closing

import pytest

from emulator.core.errors import RateLimited
from emulator.database import Leases, open_database
from emulator.database.counters import Counters
from emulator.settings.settings import Settings
from emulator.web.middleware.limits import Limits

SAME = {
    "2001:db8:1:2::1": "2001:db8:1:2:ffff::9",
    "fe80::1%eth0": "fe80::2%eth1",
    "192.0.2.1": "::ffff:192.0.2.1",
    "of a server: in front": "of a server: in front",
}
OTHER = ["2001:db8:1:3::1", "::ffff:192.0.2.2", "::1", ""]


@pytest.mark.parametrize("address", SAME)
def test_a_client_without_a_key_is_limited_by_its_network(address: str) -> None:
    """Who has a /64 has 2**64 addresses, and had as many limits, each with rows of its own."""
    settings = Settings(client_requests_per_minute=1, client_open_requests=1)
    with closing(open_database(":memory:")) as database:
        limits = Limits(settings, Counters(database, Leases(database), database))
        limits.count_request("", address)
        limits.open_answer("", address)
        with pytest.raises(RateLimited, match="Rate limit reached"):
            limits.count_request("", SAME[address])
        with pytest.raises(RateLimited, match="1 open requests"):
            limits.open_answer("", SAME[address])
        for other in OTHER:
            limits.count_request("", other)
            limits.open_answer("", other)
