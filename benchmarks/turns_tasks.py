"""Tasks of several steps: what is asked, tools that do it, and how a good model would go about it.

Each task is played twice: as programs that use results, and in steps, where the model sees the results
of its calls before it makes the next ones. Steps make in one turn all calls that can be made by then,
as a model with parallel calls does. Knows nothing of models, prompts or servers.
"""
# ruff: noqa: ARG002 - tools take what a real one would need

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar

Json = Any
Call = tuple[str, dict[str, Json]]
Steps = Generator[list[Call], list[Json], None]
"""Yields the calls of one turn, is sent their results."""


class World:
    """A task's own world. Public methods are its tools, `effects` is what they did to it, in order."""

    def __init__(self) -> None:
        self.effects: list[tuple[Json, ...]] = []


@dataclass(frozen=True)
class Task:
    name: str
    request: str
    world: type[World]
    programs: tuple[str, ...]
    """What the model writes, one after the other. More than one where it must read what came out."""
    steps: Callable[[], Steps]
    chain: int
    """The longest row of calls of which each needs the result of the one before."""
    effects: tuple[tuple[Json, ...], ...]


# A trip


class Travel(World):
    def search_flights(self, origin: str, destination: str, date: str) -> Json:
        """Flights of a day, with prices."""
        return [
            {"id": "SK1", "price": 210, "arrives": "2026-05-02T11:00"},
            {"id": "AF7", "price": 140, "arrives": "2026-05-02T16:30"},
            {"id": "KL3", "price": 175, "arrives": "2026-05-02T13:10"},
        ]

    def list_seats(self, flight_id: str) -> Json:
        """Free seats of a flight."""
        return [{"seat": "21B", "window": False}, {"seat": "14A", "window": True}]

    def book_flight(self, flight_id: str, seat: str) -> Json:
        """Book a seat on a flight."""
        self.effects.append(("flight", flight_id, seat))
        return {"booking": f"B-{flight_id}-{seat}", "city": "Paris", "day": "2026-05-02"}

    def search_hotels(self, city: str, day: str, max_price: int) -> Json:
        """Hotels with free rooms."""
        return [{"id": "h1", "rating": 7.9}, {"id": "h2", "rating": 8.8}]

    def book_hotel(self, hotel_id: str, day: str, flight_booking: str) -> Json:
        """Book a room and link it to a flight booking."""
        self.effects.append(("hotel", hotel_id, day, flight_booking))
        return {"booking": f"R-{hotel_id}"}


def travel_steps() -> Steps:
    (flights,) = yield [
        (
            "search_flights",
            {"origin": "Oslo", "destination": "Paris", "date": "2026-05-02"},
        )
    ]
    flight = min(flights, key=lambda f: f["price"])["id"]
    (seats,) = yield [("list_seats", {"flight_id": flight})]
    seat = next(s["seat"] for s in seats if s["window"])
    (booked,) = yield [("book_flight", {"flight_id": flight, "seat": seat})]
    (hotels,) = yield [
        ("search_hotels", {"city": booked["city"], "day": booked["day"], "max_price": 150})
    ]
    hotel = max(hotels, key=lambda h: h["rating"])["id"]
    yield [
        (
            "book_hotel",
            {"hotel_id": hotel, "day": booked["day"], "flight_booking": booked["booking"]},
        )
    ]


TRAVEL = Task(
    "trip search and booking",
    "Book me the cheapest flight from Oslo to Paris on 2 May 2026, a window seat if there is one, "
    "and the best hotel below 150 for the night.",
    Travel,
    (
        """\
flights = search_flights(origin="Oslo", destination="Paris", date="2026-05-02")
flight = min(flights, key=lambda f: f["price"])
seats = list_seats(flight_id=flight["id"])
windows = [s for s in seats if s["window"]]
seat = (windows or seats)[0]["seat"]
booked = book_flight(flight_id=flight["id"], seat=seat)
hotels = search_hotels(city=booked["city"], day=booked["day"], max_price=150)
hotel = max(hotels, key=lambda h: h["rating"])
room = book_hotel(hotel_id=hotel["id"], day=booked["day"], flight_booking=booked["booking"])
print(booked["booking"], room["booking"])
""",
    ),
    travel_steps,
    5,
    (("flight", "AF7", "14A"), ("hotel", "h2", "2026-05-02", "B-AF7-14A")),
)

# An inventory


class Inventory(World):
    def list_stock(self) -> Json:
        """All articles with their stock and the stock that there should be."""
        return [
            {"sku": "nut", "stock": 12, "target": 100},
            {"sku": "bolt", "stock": 300, "target": 100},
            {"sku": "gear", "stock": 3, "target": 20},
            {"sku": "belt", "stock": 0, "target": 5},
        ]

    def list_offers(self, sku: str) -> Json:
        """What suppliers ask for an article."""
        prices = {"nut": (3, 2), "gear": (40, 45), "belt": (9, 7)}[sku]
        return [
            {"supplier": name, "price": price}
            for name, price in zip(("Acme", "Bolt & Co"), prices, strict=True)
        ]

    def order(self, sku: str, supplier: str, amount: int) -> Json:
        """Order an article."""
        self.effects.append(("order", sku, supplier, amount))
        return {"order": f"O-{sku}"}

    def notify(self, team: str, text: str) -> Json:
        """Tell a team something."""
        self.effects.append(("notify", team, text))
        return "sent"


def inventory_steps() -> Steps:
    (stock,) = yield [("list_stock", {})]
    low = [item for item in stock if item["stock"] < item["target"]]
    offers = yield [("list_offers", {"sku": item["sku"]}) for item in low]
    best = [min(each, key=lambda o: o["price"])["supplier"] for each in offers]
    orders = yield [
        (
            "order",
            {
                "sku": item["sku"],
                "supplier": supplier,
                "amount": item["target"] - item["stock"],
            },
        )
        for item, supplier in zip(low, best, strict=True)
    ]
    text = "Ordered " + ", ".join(each["order"] for each in orders)
    yield [("notify", {"team": "stock", "text": text})]


INVENTORY = Task(
    "inventory reorder",
    "Reorder what has run low, each from the cheapest supplier, and tell the stock team the orders.",
    Inventory,
    (
        """\
low = [item for item in list_stock() if item["stock"] < item["target"]]
offers = [list_offers(sku=item["sku"]) for item in low]
orders = []
for item, each in zip(low, offers):
    best = min(each, key=lambda o: o["price"])
    amount = item["target"] - item["stock"]
    orders.append(order(sku=item["sku"], supplier=best["supplier"], amount=amount))
print(notify(team="stock", text="Ordered " + ", ".join(o["order"] for o in orders)))
""",
    ),
    inventory_steps,
    4,
    (
        ("order", "nut", "Bolt & Co", 88),
        ("order", "gear", "Acme", 17),
        ("order", "belt", "Bolt & Co", 5),
        ("notify", "stock", "Ordered O-nut, O-gear, O-belt"),
    ),
)

# A meeting


class Calendar(World):
    BUSY: ClassVar = {"u1": [9, 10, 13], "u2": [10, 11], "u3": [9, 12, 13]}

    def find_person(self, name: str) -> Json:
        """A colleague's id."""
        return {"id": {"Ann": "u1", "Ben": "u2", "Cem": "u3"}[name]}

    def busy_hours(self, person_id: str, day: str) -> Json:
        """The hours of a day at which somebody is busy."""
        return self.BUSY[person_id]

    def find_room(self, day: str, hour: int, seats: int) -> Json:
        """A free room, or null."""
        return None if hour == 14 else {"room": f"R{hour}"}

    def create_event(self, title: str, day: str, hour: int, room: str, people: list[str]) -> Json:
        """Put a meeting into all calendars."""
        self.effects.append(("event", title, day, hour, room, people))
        return {"event": "e1"}


def calendar_steps() -> Steps:
    names = ("Ann", "Ben", "Cem")
    found = yield [("find_person", {"name": name}) for name in names]
    people = [person["id"] for person in found]
    busy = yield [("busy_hours", {"person_id": id_, "day": "2026-03-04"}) for id_ in people]
    taken = {hour for hours in busy for hour in hours}
    for hour in (hour for hour in range(9, 17) if hour not in taken):
        (room,) = yield [("find_room", {"day": "2026-03-04", "hour": hour, "seats": 3})]
        if room:
            event = {"title": "Plan", "day": "2026-03-04", "hour": hour}
            yield [("create_event", {**event, "room": room["room"], "people": people})]
            return


CALENDAR = Task(
    "calendar finding",
    "Find the first hour on 4 March 2026 at which Ann, Ben and Cem are free and a room is too, "
    "and set up the meeting 'Plan'.",
    Calendar,
    (
        """\
found = [find_person(name=name) for name in ("Ann", "Ben", "Cem")]
people = [person["id"] for person in found]
busy = [busy_hours(person_id=id, day="2026-03-04") for id in people]
taken = {hour for hours in busy for hour in hours}
for hour in range(9, 17):
    if hour in taken:
        continue
    room = find_room(day="2026-03-04", hour=hour, seats=3)
    if room:
        event = create_event(
            title="Plan", day="2026-03-04", hour=hour, room=room["room"], people=people
        )
        print(hour, room["room"], event)
        break
else:
    print("no hour fits")
""",
    ),
    calendar_steps,
    5,
    (("event", "Plan", "2026-03-04", 15, "R15", ["u1", "u2", "u3"]),),
)

# Logs


class Logs(World):
    def list_services(self) -> Json:
        """The services that run."""
        return ["api", "auth", "mail"]

    def count_errors(self, service: str, hours: int) -> Json:
        """How often each error occurred in a service."""
        return {
            "api": [{"error": "timeout", "count": 4}],
            "auth": [{"error": "bad-token", "count": 61}, {"error": "timeout", "count": 2}],
            "mail": [],
        }[service]

    def stack_trace(self, service: str, error: str) -> Json:
        """The latest stack trace of an error."""
        return {"file": "tokens.py", "line": 88, "text": "KeyError: 'kid'\n" + "  at ...\n" * 40}

    def find_owner(self, file: str) -> Json:
        """Who looks after a file."""
        return {"team": "identity", "person": "dana"}

    def open_ticket(self, title: str, assignee: str, details: str) -> Json:
        """Open a ticket."""
        self.effects.append(("ticket", title, assignee, details))
        return {"ticket": "T-9"}


def logs_steps() -> Steps:
    (services,) = yield [("list_services", {})]
    counts = yield [("count_errors", {"service": name, "hours": 24}) for name in services]
    count, service, error = max(
        (one["count"], name, one["error"])
        for name, errors in zip(services, counts, strict=True)
        for one in errors
    )
    (trace,) = yield [("stack_trace", {"service": service, "error": error})]
    (owner,) = yield [("find_owner", {"file": trace["file"]})]
    ticket = {"title": f"{service}: {error}", "assignee": owner["person"]}
    details = f"{count} times, {trace['file']}:{trace['line']}"
    yield [("open_ticket", {**ticket, "details": details})]


LOGS = Task(
    "log triage",
    "Find the most frequent error of the last 24 hours over all services and open a ticket for the owner "
    "of the code.",
    Logs,
    (
        """\
services = list_services()
counts = [count_errors(service=name, hours=24) for name in services]
worst = {"count": 0}
for name, errors in zip(services, counts):
    for one in errors:
        if one["count"] > worst["count"]:
            worst = {"service": name, "error": one["error"], "count": one["count"]}
trace = stack_trace(service=worst["service"], error=worst["error"])
owner = find_owner(file=trace["file"])
ticket = open_ticket(
    title=f"{worst['service']}: {worst['error']}",
    assignee=owner["person"],
    details=f"{worst['count']} times, {trace['file']}:{trace['line']}",
)
print(ticket["ticket"], owner["person"])
""",
    ),
    logs_steps,
    5,
    (("ticket", "auth: bad-token", "dana", "61 times, tokens.py:88"),),
)

# Pages


class Pages(World):
    def fetch_page(self, cursor: str = "") -> Json:
        """One page of invoices and the cursor of the next, null at the last."""
        page = int(cursor or 0)
        rows = [
            {"invoice": 10 * page + n, "customer": f"customer {n}", "due": 5 * n + page}
            for n in range(12)
        ]
        return {"rows": rows, "next": str(page + 1) if page < 5 else None}

    def submit_report(self, invoices: int, total: int) -> Json:
        """Hand in the totals."""
        self.effects.append(("report", invoices, total))
        return "accepted"


def pages_steps() -> Steps:
    (page,) = yield [("fetch_page", {})]
    rows = list(page["rows"])
    while page["next"] is not None:
        (page,) = yield [("fetch_page", {"cursor": page["next"]})]
        rows += page["rows"]
    total = sum(row["due"] for row in rows)
    yield [("submit_report", {"invoices": len(rows), "total": total})]


PAGES = Task(
    "paginated fetch",
    "Add up what is due over all invoices, page by page, and submit the report.",
    Pages,
    (
        """\
rows = []
page = fetch_page()
rows += page["rows"]
while page["next"] is not None:
    page = fetch_page(cursor=page["next"])
    rows += page["rows"]
total = sum(row["due"] for row in rows)
print(len(rows), total, submit_report(invoices=len(rows), total=total))
""",
    ),
    pages_steps,
    7,
    (("report", 72, 2160),),
)

# Retries


class Payments(World):
    def __init__(self) -> None:
        super().__init__()
        self._tries = 0

    def charge(self, processor: str, order: str, amount: int) -> Json:
        """Charge a card; the answer has the member "error" if that failed."""
        self._tries += 1
        if processor == "north":
            return {"error": "timeout", "attempt": self._tries}
        self.effects.append(("charge", processor, order, amount, self._tries))
        return {"charge": f"C{self._tries}"}

    def send_receipt(self, order: str, charge: str) -> Json:
        """Mail the receipt of a charge."""
        self.effects.append(("receipt", order, charge))
        return "sent"


def payments_steps() -> Steps:
    order = {"order": "17", "amount": 40}
    for processor in ("north", "north", "north", "south"):
        (charged,) = yield [("charge", {"processor": processor, **order})]
        if "error" not in charged:
            yield [("send_receipt", {"order": "17", "charge": charged["charge"]})]
            return


PAYMENTS = Task(
    "retries with fallback",
    "Charge 40 for order 17 with north; try up to three times, then once with south. Then send the receipt.",
    Payments,
    (
        """\
for processor in ["north", "north", "north", "south"]:
    charged = charge(processor=processor, order="17", amount=40)
    if "error" not in charged:
        print(processor, send_receipt(order="17", charge=charged["charge"]))
        break
else:
    print("no processor took the charge")
""",
    ),
    payments_steps,
    5,
    (("charge", "south", "17", 40, 4), ("receipt", "17", "C4")),
)

# A refund


class Shop(World):
    def find_customer(self, email: str) -> Json:
        """A customer's record."""
        return {"customer_id": "c8", "name": "Eve", "tier": "gold"}

    def list_orders(self, customer_id: str) -> Json:
        """A customer's orders, the latest first."""
        return ["o31", "o30", "o12"]

    def get_order(self, order_id: str) -> Json:
        """What was ordered, and what became of it."""
        lines = [{"item": "lamp", "price": 60, "state": "broken"}, {"item": "rug", "price": 80}]
        return {"order_id": order_id, "lines": lines}

    def refund(self, order_id: str, item: str, amount: int) -> Json:
        """Pay back a part of an order."""
        self.effects.append(("refund", order_id, item, amount))
        return {"refund_id": "r1"}

    def send_mail(self, to: str, text: str) -> Json:
        """Send a mail."""
        self.effects.append(("mail", to, text))
        return "sent"


def shop_steps() -> Steps:
    (customer,) = yield [("find_customer", {"email": "eve@example.org"})]
    (orders,) = yield [("list_orders", {"customer_id": customer["customer_id"]})]
    (order,) = yield [("get_order", {"order_id": orders[0]})]
    line = next(line for line in order["lines"] if line.get("state") == "broken")
    paid = {"order_id": orders[0], "item": line["item"], "amount": line["price"]}
    (refunded,) = yield [("refund", paid)]
    text = f"Dear {customer['name']}, refund {refunded['refund_id']} is on its way."
    yield [("send_mail", {"to": "eve@example.org", "text": text})]


SHOP = Task(
    "refund of a broken item",
    "Refund what arrived broken in the latest order of eve@example.org, and tell her by mail.",
    Shop,
    (
        """\
customer = find_customer(email="eve@example.org")
orders = list_orders(customer_id=customer["customer_id"])
order = get_order(order_id=orders[0])
broken = [line for line in order["lines"] if line.get("state") == "broken"]
if broken:
    line = broken[0]
    refunded = refund(order_id=orders[0], item=line["item"], amount=line["price"])
    text = f"Dear {customer['name']}, refund {refunded['refund_id']} is on its way."
    print(send_mail(to="eve@example.org", text=text), text)
else:
    print("nothing is broken in", order)
""",
    ),
    shop_steps,
    5,
    (
        ("refund", "o31", "lamp", 60),
        ("mail", "eve@example.org", "Dear Eve, refund r1 is on its way."),
    ),
)

# A bisection


class Repository(World):
    def list_commits(self, since: str) -> Json:
        """Commits, the oldest first."""
        return [f"c{n:02}" for n in range(16)]

    def run_tests(self, commit: str) -> Json:
        """Whether the tests pass on a commit."""
        return {"commit": commit, "passed": commit < "c11"}

    def comment(self, commit: str, text: str) -> Json:
        """Comment on a commit."""
        self.effects.append(("comment", commit, text))
        return "posted"


def repository_steps() -> Steps:
    (commits,) = yield [("list_commits", {"since": "v1"})]
    good, bad = 0, len(commits) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        (ran,) = yield [("run_tests", {"commit": commits[middle]})]
        good, bad = (middle, bad) if ran["passed"] else (good, middle)
    yield [("comment", {"commit": commits[bad], "text": "The tests fail from here on."})]


REPOSITORY = Task(
    "bisection of commits",
    "The tests passed at v1 and fail now. Find the first commit on which they fail and comment on it.",
    Repository,
    (
        """\
commits = list_commits(since="v1")
good, bad = 0, len(commits) - 1
while bad - good > 1:
    middle = (good + bad) // 2
    if run_tests(commit=commits[middle])["passed"]:
        good = middle
    else:
        bad = middle
print(commits[bad], comment(commit=commits[bad], text="The tests fail from here on."))
""",
    ),
    repository_steps,
    6,
    (("comment", "c11", "The tests fail from here on."),),
)

# A job


class Exports(World):
    def __init__(self) -> None:
        super().__init__()
        self._polls = 0

    def start_export(self, table: str) -> Json:
        """Begin an export; it takes a while."""
        return {"job": "j5"}

    def job_state(self, job: str) -> Json:
        """How far a job is."""
        self._polls += 1
        if self._polls < 4:
            return {"state": "running", "percent": 30 * self._polls}
        return {"state": "done", "file": "sales.csv", "bytes": 1024}

    def share_file(self, file: str, group: str) -> Json:
        """Give a group access to a file."""
        self.effects.append(("share", file, group))
        return {"link": f"https://files.example.org/{file}"}

    def post_message(self, channel: str, text: str) -> Json:
        """Write into a channel."""
        self.effects.append(("message", channel, text))
        return "posted"


def exports_steps() -> Steps:
    (started,) = yield [("start_export", {"table": "sales"})]
    state: Json = {}
    while state.get("state") != "done":
        (state,) = yield [("job_state", {"job": started["job"]})]
    (shared,) = yield [("share_file", {"file": state["file"], "group": "finance"})]
    yield [("post_message", {"channel": "finance", "text": shared["link"]})]


EXPORTS = Task(
    "polling a job",
    "Export the table sales, wait until that is done, share the file with finance and post the link there.",
    Exports,
    (
        """\
job = start_export(table="sales")["job"]
state = job_state(job=job)
while state["state"] != "done":
    state = job_state(job=job)
link = share_file(file=state["file"], group="finance")["link"]
print(link, post_message(channel="finance", text=link))
""",
    ),
    exports_steps,
    7,
    (
        ("share", "sales.csv", "finance"),
        ("message", "finance", "https://files.example.org/sales.csv"),
    ),
)

# A hierarchy


class Staff(World):
    CHAIN: ClassVar = {"kim": ("lee", 1), "lee": ("mia", 2), "mia": ("noa", 3), "noa": (None, 4)}

    def get_employee(self, name: str) -> Json:
        """Somebody's manager and level."""
        manager, level = self.CHAIN[name]
        return {"name": name, "manager": manager, "level": level, "office": "Bergen"}

    def request_approval(self, approver: str, subject: str) -> Json:
        """Ask somebody to approve something."""
        self.effects.append(("approval", approver, subject))
        return {"request": "a1"}


def staff_steps() -> Steps:
    (person,) = yield [("get_employee", {"name": "kim"})]
    while person["level"] < 4:
        (person,) = yield [("get_employee", {"name": person["manager"]})]
    yield [("request_approval", {"approver": person["name"], "subject": "kim's move"})]


STAFF = Task(
    "climbing a hierarchy",
    "Ask the first manager of level 4 or more above kim to approve kim's move.",
    Staff,
    (
        """\
person = get_employee(name="kim")
while person["level"] < 4:
    person = get_employee(name=person["manager"])
print(person["name"], request_approval(approver=person["name"], subject="kim's move"))
""",
    ),
    staff_steps,
    5,
    (("approval", "noa", "kim's move"),),
)

# A tree of folders


class Disk(World):
    TREE: ClassVar[dict[str, list[tuple[str, int | None]]]] = {
        "/": [("logs", None), ("photos", None), ("notes.txt", 3)],
        "/logs": [("old", None), ("today.log", 20)],
        "/photos": [("cat.jpg", 300)],
        "/logs/old": [("may.log", 900), ("june.log", 800)],
    }

    def list_folder(self, path: str) -> Json:
        """What is in a folder; size is null for folders."""
        return [{"name": name, "size": size} for name, size in self.TREE[path]]

    def delete_file(self, path: str) -> Json:
        """Delete a file."""
        self.effects.append(("delete", path))
        return "deleted"


def disk_steps() -> Steps:
    level, large = ["/"], []
    while level:
        listed = yield [("list_folder", {"path": path}) for path in level]
        below = []
        for path, entries in zip(level, listed, strict=True):
            for entry in entries:
                place = path.rstrip("/") + "/" + entry["name"]
                if entry["size"] is None:
                    below.append(place)
                elif entry["size"] > 500:
                    large.append(place)
        level = below
    yield [("delete_file", {"path": path}) for path in large]


DISK = Task(
    "walking a tree of folders",
    "Delete all files of more than 500 MB, wherever they are.",
    Disk,
    (
        """\
level = ["/"]
large = []
while level:
    listed = [list_folder(path=path) for path in level]
    below = []
    for path, entries in zip(level, listed):
        for entry in entries:
            place = path.rstrip("/") + "/" + entry["name"]
            if entry["size"] is None:
                below.append(place)
            elif entry["size"] > 500:
                large.append(place)
    level = below
for path in large:
    delete_file(path=path)
print("deleted", large)
""",
    ),
    disk_steps,
    4,
    (("delete", "/logs/old/may.log"), ("delete", "/logs/old/june.log")),
)

# Expenses


class Expenses(World):
    def list_receipts(self, trip: str) -> Json:
        """The receipts of a trip."""
        amounts = ((120, "EUR"), (9000, "JPY"), (45, "EUR"), (30, "GBP"))
        return [{"amount": amount, "currency": currency} for amount, currency in amounts]

    def exchange_rate(self, currency: str, to: str) -> Json:
        """What one unit is worth, in thousandths."""
        return {"EUR": 1080, "JPY": 7, "GBP": 1250}[currency]

    def submit_claim(self, trip: str, total: int) -> Json:
        """Hand in an expense claim; whole units."""
        self.effects.append(("claim", trip, total))
        return {"claim": "x1", "needs_manager": total > 250}

    def ask_manager(self, claim: str) -> Json:
        """Have a manager approve a claim."""
        self.effects.append(("manager", claim))
        return "asked"


def expenses_steps() -> Steps:
    (receipts,) = yield [("list_receipts", {"trip": "tokyo"})]
    currencies = sorted({receipt["currency"] for receipt in receipts})
    rates = yield [("exchange_rate", {"currency": name, "to": "USD"}) for name in currencies]
    rate = dict(zip(currencies, rates, strict=True))
    total = sum(r["amount"] * rate[r["currency"]] for r in receipts) // 1000
    (claim,) = yield [("submit_claim", {"trip": "tokyo", "total": total})]
    if claim["needs_manager"]:
        yield [("ask_manager", {"claim": claim["claim"]})]


EXPENSES = Task(
    "expense claim",
    "Claim the receipts of the trip 'tokyo' in dollars; ask a manager if the claim needs one.",
    Expenses,
    (
        """\
receipts = list_receipts(trip="tokyo")
currencies = sorted({r["currency"] for r in receipts})
rates = [exchange_rate(currency=name, to="USD") for name in currencies]
rate = dict(zip(currencies, rates))
total = sum(r["amount"] * rate[r["currency"]] for r in receipts) // 1000
claim = submit_claim(trip="tokyo", total=total)
if claim["needs_manager"]:
    ask_manager(claim=claim["claim"])
print(total, claim)
""",
    ),
    expenses_steps,
    4,
    (("claim", "tokyo", 278), ("manager", "x1")),
)

# Little or nothing to gain


class Weather(World):
    def temperature(self, city: str) -> Json:
        """How warm it is, in degrees."""
        return {"Oslo": 4, "Rome": 19, "Cairo": 27, "Lima": 22, "Perth": 24}[city]

    def send_mail(self, to: str, text: str) -> Json:
        """Send a mail."""
        self.effects.append(("mail", to, text))
        return "sent"


CITIES = ("Oslo", "Rome", "Cairo", "Lima", "Perth")


def weather_steps() -> Steps:
    degrees = yield [("temperature", {"city": city}) for city in CITIES]
    warmest = max(zip(degrees, CITIES, strict=True))[1]
    yield [("send_mail", {"to": "me@example.org", "text": f"The warmest is {warmest}."})]


WEATHER = Task(
    "five parallel look-ups, then a mail",
    "Mail me@example.org which is the warmest now: Oslo, Rome, Cairo, Lima or Perth.",
    Weather,
    (
        """\
cities = ["Oslo", "Rome", "Cairo", "Lima", "Perth"]
degrees = [temperature(city=city) for city in cities]
warmest = max(zip(degrees, cities))[1]
print(send_mail(to="me@example.org", text=f"The warmest is {warmest}."), warmest)
""",
    ),
    weather_steps,
    2,
    (("mail", "me@example.org", "The warmest is Cairo."),),
)


class Inbox(World):
    def read_mail(self, folder: str) -> Json:
        """The text of the latest mail."""
        return "Hi, could we move Tuesday's lunch to Thursday, same place? Otherwise drop it. Joe"

    def reply(self, text: str) -> Json:
        """Answer the latest mail."""
        self.effects.append(("reply", text))
        return "sent"


def inbox_steps() -> Steps:
    yield [("read_mail", {"folder": "inbox"})]
    yield [("reply", {"text": "Thursday is fine, see you there."})]


INBOX = Task(
    "a mail that must be read",
    "Answer the latest mail in my inbox; I am free on Thursday.",
    Inbox,
    (
        'print(read_mail(folder="inbox"))\n',
        'print(reply(text="Thursday is fine, see you there."))\n',
    ),
    inbox_steps,
    2,
    (("reply", "Thursday is fine, see you there."),),
)


class Home(World):
    def set_light(self, room: str, on: bool) -> Json:
        """Switch a light."""
        self.effects.append(("light", room, on))
        return "ok"


def home_steps() -> Steps:
    yield [("set_light", {"room": "kitchen", "on": False})]


HOME = Task(
    "one call",
    "Switch off the light in the kitchen.",
    Home,
    ('print(set_light(room="kitchen", on=False))\n',),
    home_steps,
    1,
    (("light", "kitchen", False),),
)

TASKS = (
    TRAVEL,
    INVENTORY,
    CALENDAR,
    LOGS,
    PAGES,
    PAYMENTS,
    SHOP,
    REPOSITORY,
    EXPORTS,
    STAFF,
    DISK,
    EXPENSES,
    WEATHER,
    INBOX,
    HOME,
)
