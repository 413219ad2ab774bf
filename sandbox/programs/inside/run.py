"""What a child does once it is enclosed: run one program."""

from sandbox.programs.inside import channel


def install() -> None:
    """Prepare the server, before its children are forked."""


def main() -> None:
    """Run one program. The process ends when this returns."""
    channel.send({"echo": channel.receive()})
