"""Run a program where it can harm nobody: `unshare --net --uts --mount --pid ... own_machine.py SOURCE`.

In namespaces of its own a program may mount, take another host name, and reach a cloud's metadata
address and a name server: stand-ins for these answer here. Knows nothing of sandboxes: this is the control
that shows what a sandbox stops. Runs as a script, without the project next to it.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
import tempfile
import threading

METADATA = "169.254.169.254"
_SET_ADDRESS, _SET_FLAGS = 0x8916, 0x8914  # linux/sockios.h
_UP = 0x1
_BIND = 0x1000  # sys/mount.h


def give_address(interface: str, address: str) -> None:
    """Bring an interface up with an IPv4 address (netdevice(7))."""
    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        at = struct.pack("=16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(any_socket, _SET_ADDRESS, at)
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("=16sh14x", name, _UP))


def name_server(server: socket.socket) -> None:
    """Every name has the address 192.0.2.1, and none of IPv6 (RFC 1035, section 4)."""
    while True:
        query, client = server.recvfrom(512)
        question = query[12 : query.index(0, 12) + 5]
        found = question[-4:-2] == b"\0\1"
        counts = struct.pack("!4H", 1, found, 0, 0)
        record = struct.pack("!HHHIH4B", 0xC00C, 1, 1, 60, 4, 192, 0, 2, 1) if found else b""
        server.sendto(query[:2] + b"\x81\x80" + counts + question + record, client)


def main() -> None:
    give_address("lo", "127.0.0.1")
    give_address("lo:0", METADATA)
    metadata = socket.create_server((METADATA, 80))
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    threading.Thread(target=name_server, args=[names], daemon=True).start()
    with tempfile.NamedTemporaryFile("w") as configuration:
        configuration.write("nameserver 127.0.0.1\n")
        configuration.flush()
        libc = ctypes.CDLL(None, use_errno=True)
        path = configuration.name.encode()
        if libc.mount(path, b"/etc/resolv.conf", None, _BIND, None) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with metadata:
        exec(sys.argv[1], {"__name__": "__main__"})


if __name__ == "__main__":
    main()
