#!/usr/bin/env python3
"""A receiver that does what the path says, and remembers what took effect.

    receiver.py [PORT]        prints its port, then serves until it is ended

One request at a time, one request a connection: `GET /log` therefore waits for whatever is under
way, and what it shows is all that there was.

POST, PUT /do/STEP/STEP/…   the first arrival of an item does the first step, the next the second,
                            all after that the last. A STEP is
    NNN      answers with that status; 2xx takes effect
    aNNN     takes effect and answers with that status all the same
    lost     takes effect and closes without an answer
    reset    takes effect and resets the connection
    deaf     closes without an answer, and nothing took effect
    hang     takes effect and keeps the connection open, without an answer, until /reset
GET  /log       a JSON object a line: name, key, path, acted; of a notice also the body
GET  /acted/N   how often the item of the name N took effect, or the notice of the key N
POST /reset     forgets everything, closes what hangs
POST /preload   takes arrivals, as /log shows them, for its own

An item is called by the first word of its body. Arrivals with an Idempotency-Key are dropped once
one with that key took effect: they are answered as the path says, and nothing happens.
"""
import json
import os
import socket
import struct
import sys

# The oldest are given up: long before, whoever asked has.
HANGING_MAX = 200


class Receiver:
    """What has arrived, and what of it took effect."""

    def __init__(self):
        self.log = []
        self.times = {}
        self.effects = {}
        self.done = set()
        self.hanging = []

    def reset(self):
        for link in self.hanging:
            link.close()
        self.__init__()

    def arrive(self, path, key, body, acts=None):
        """Notes an arrival. Returns the step that answers it."""
        notice = body.startswith("{") and '"request_ids":' in body
        name = "notice" if notice else body.split(" ", 1)[0][:64]
        steps = path.split("?")[0].split("/")[2:] or ["200"]
        who = key or name
        seen = self.times.get(who, 0)
        self.times[who] = seen + 1
        step = steps[min(seen, len(steps) - 1)]
        if acts is None:
            acts = step[0] in "2alrh"
        acted = acts and not (key and key in self.done)
        if acted and key:
            self.done.add(key)
        # A notice is asked for by its key: they have one name.
        called = key if notice else name
        self.effects[called] = self.effects.get(called, 0) + bool(acted)
        line = {"name": name, "key": key, "path": path, "acted": acted}
        if notice:
            line["body"] = body
        self.log.append(line)
        return step

    def preload(self, lines):
        for line in lines:
            self.arrive(line["path"], line["key"], line.get("body") or line["name"], line["acted"])


def read_request(link):
    """(method, path, key, body), or None of what was not whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = link.recv(65536)
        if not more:
            return None
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    fields = {}
    for line in lines[1:]:
        name, value = line.split(":", 1)
        fields[name.lower()] = value.strip()
    length = int(fields.get("content-length", "0"))
    while len(body) < length:
        more = link.recv(1 << 20)
        if not more:
            return None
        body += more
    return method, path, fields.get("idempotency-key", ""), body.decode("utf-8", "replace")


def answer(link, status, body=b""):
    link.sendall(b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                 % (status, len(body), body))


def serve(receiver, link):
    """One connection. True if it stays open."""
    link.settimeout(20)
    asked = read_request(link)
    if asked is None:
        return False
    method, path, key, body = asked
    if path == "/log":
        answer(link, 200, "".join(json.dumps(line) + "\n" for line in receiver.log).encode())
    elif path.startswith("/acted/"):
        answer(link, 200, b"%d" % receiver.effects.get(path[7:], 0))
    elif path == "/reset":
        receiver.reset()
        answer(link, 200)
    elif path == "/preload":
        receiver.preload(json.loads(body))
        answer(link, 200)
    else:
        step = receiver.arrive(path, key, body)
        if step == "reset":
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif step in ("hang", "mute"):
            receiver.hanging.append(link)
            if len(receiver.hanging) > HANGING_MAX:
                receiver.hanging.pop(0).close()
            return True
        elif step not in ("lost", "deaf"):
            answer(link, int(step.lstrip("a")), b"{}")
    return False


def main():
    receiver = Receiver()
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    door.listen(512)
    print(door.getsockname()[1], flush=True)
    parent = os.getppid()
    door.settimeout(5)
    while os.getppid() == parent:  # never outlives who started it
        try:
            link, _ = door.accept()
        except TimeoutError:
            continue
        try:
            if serve(receiver, link):
                continue
        except (OSError, ValueError):
            pass
        link.close()


if __name__ == "__main__":
    main()
