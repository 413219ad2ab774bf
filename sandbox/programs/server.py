"""dev"""
import json, os, select, socket, struct, subprocess, sys, time, threading
from pathlib import Path
from sandbox.engine import Limits
from sandbox.errors import SandboxDied, SandboxTimeout
ROOT = str(Path(__file__).parents[2])
class ProgramServer:
    def __init__(self, limits: Limits | None = None, *, most=16, waiting=64):
        self.limits = limits or Limits(); self._lock = threading.Lock(); self.process = None
    def check(self): pass
    def checks(self): return []
    def get_ready(self): pass
    def _start(self):
        self.control, theirs = socket.socketpair()
        fd = theirs.fileno()
        code = f"import sys; sys.path.append({ROOT!r}); from sandbox.programs.inside.server import serve; serve({fd})"
        self.process = subprocess.Popen([sys.executable, "-S", "-P", "-X", "utf8", "-c", code], pass_fds=[fd], env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}, start_new_session=True, stdin=-3, stdout=-3, stderr=None if os.environ.get("DEV") else -3)
        theirs.close()
    def open(self, client=""):
        with self._lock:
            if self.process is None: self._start()
            ours, theirs = socket.socketpair()
            socket.send_fds(self.control, [b"f"], [theirs.fileno()])
            theirs.close()
            pid = struct.unpack("!I", self.control.recv(4))[0]
        return ChildProcess(ours, pid, self.limits.seconds)
    def close(self):
        if self.process: self.control.close(); self.process.wait(3)
class ChildProcess:
    def __init__(self, sock, pid, seconds): self.socket, self.pid, self.left, self.seconds = sock, pid, seconds, seconds
    def __enter__(self): return self
    def __exit__(self, *_): self.close()
    def ask(self, *messages):
        started = time.monotonic()
        try:
            for m in messages:
                data = json.dumps(m).encode()
                try: self.socket.sendall(struct.pack("!I", len(data)) + data)
                except OSError: pass
            return json.loads(self._take(struct.unpack("!I", self._take(4))[0]))
        finally: self.left -= time.monotonic() - started
    def _take(self, size):
        data = bytearray()
        end = time.monotonic() + self.left
        while len(data) < size:
            if not select.select([self.socket], [], [], max(0, end - time.monotonic()))[0]: raise SandboxTimeout(self.seconds)
            try: part = self.socket.recv(min(size - len(data), 65536))
            except ConnectionError: part = b""
            if not part: raise SandboxDied("the child died")
            data += part
        return bytes(data)
    def rest(self): return True
    def kill(self):
        try: os.kill(self.pid, 9)
        except OSError: pass
    def close(self): self.kill(); self.socket.close()
