"""A spool as an outsider reads it, and a command and a receiver as a script calls them.

Shared by the crash checks and the soak. Few imports: the checks start it thousands of times.
"""
import hashlib
import json
import os
import re
import socket

STATES = ("pending", "unknown", "held", "confirmed", "failed")   # in the order of an item's life
ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
ITEM = re.compile(rf"({ID})(?:\.([1-9][0-9]*))?\.jsonl")
MINUTE = re.compile(r"\d{8}T\d{4}Z")
DAY = re.compile(r"\d{8}")


class Place:
    """Where a file of an item lies."""

    def __init__(self, spool, state, destination, slot, name):
        self.state, self.destination, self.slot, self.name = state, destination, slot, name
        self.path = os.path.join(spool, state, destination, slot, name)
        self.id, self.attempt = ITEM.fullmatch(name).groups()

    def __str__(self):
        return "/".join(part for part in (self.state, self.destination, self.slot, self.name) if part)

    @property
    def parked(self):
        return self.state == "unknown" and self.slot == "parked"


def places(spool):
    """([Place…] of all items, [paths of what does not belong there])."""
    found, foreign = [], []
    for state in STATES:
        top = os.path.join(spool, state)
        for directory, below, names in os.walk(top):
            parts = [] if directory == top else os.path.relpath(directory, top).split("/")
            slot = parts[1] if len(parts) > 1 else ""
            known = slot == "" or MINUTE.fullmatch(slot) or DAY.fullmatch(slot) or \
                (slot == "parked" and state == "unknown")
            for name in names:
                match = ITEM.fullmatch(name)
                claimed = state == "unknown" and slot == ""
                if not (match and len(parts) in (1, 2) and known) or bool(match[2]) != claimed:
                    foreign.append(os.path.relpath(os.path.join(directory, name), spool))
                else:
                    found.append(Place(spool, state, parts[0], slot, name))
    return found, foreign


class Item:
    """An item's envelope, and of its events those that are whole."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        lines = data.split(b"\n")
        self.whole = lines.pop() == b""
        self.envelope = json.loads(lines[0])
        self.events = []
        for line in lines[1:]:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.whole = False
                break
        first = self.events[0] if self.events else {}
        digest = hashlib.sha256(lines[0]).hexdigest()
        if first.get("event") != "accepted" or first.get("envelope_sha256") != digest:
            raise ValueError("line 2 does not speak for line 1")

    def told(self):
        """What of it somebody is told: how often it was held, failed and parked."""
        counts = {}
        for event in self.events:
            state = event["state"]
            # Of what is held and parked in a copy, whoever adopts it is told, and nobody else.
            if event["event"] in ("accepted", "released", "retried") or event.get("reason") == "restored":
                continue
            if state == "unknown":
                state = "parked" if "due" not in event else ""
            if state in ("held", "failed", "parked"):
                counts[state] = counts.get(state, 0) + 1
        return counts


def item_name(spool, item):
    """What an item is called: the first word of its body."""
    body = item.envelope["request"].get("body") or {}
    if "file" in body:
        path = os.path.join(spool, body["file"])
        with open(path, "rb") as file:
            data = file.read()
        if len(data) != body["bytes"] or \
                hashlib.sha256(data).hexdigest() != item.envelope["request"]["body_sha256"]:
            raise ValueError(f"{body['file']} is not the body that the envelope speaks of")
        text = data[:65].decode("utf-8", "replace")
    else:
        text = body.get("text", "")
    return "notice" if item.envelope.get("notice") else text.split(" ", 1)[0][:64]


def journal(spool):
    """The records of the journal, up to the first damaged line of each file."""
    records = []
    top = os.path.join(spool, "journal")
    for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        with open(os.path.join(top, name), "rb") as file:
            for line in file.read().split(b"\n")[:-1]:
                digits, blank, text = line[:16], line[16:17], line[17:]
                if blank != b" " or hashlib.sha256(text).hexdigest()[:16].encode() != digits:
                    break
                records.append(json.loads(text))
    return records


def recorded_ids(spool):
    """The ids that the journal has a record of."""
    ids = set()
    for record in journal(spool):
        froms = [item["from"] for item in record.get("items", [])]
        froms += [record["from"]] if "from" in record else []
        ids |= {match[1] for path in froms if (match := ITEM.fullmatch(os.path.basename(path)))}
        ids |= {claim["id"] for claim in record.get("claims", [])}
    return ids


def tombstones(spool):
    """{id: tombstone} of what is pruned; torn lines say nothing."""
    stones = {}
    top = os.path.join(spool, "log")
    for name in os.listdir(top) if os.path.isdir(top) else []:
        if not name.startswith("pruned-"):
            continue
        with open(os.path.join(top, name), "rb") as file:
            for line in file.read().split(b"\n"):
                try:
                    stone = json.loads(line)
                    stones[stone["request_id"]] = stone
                except (ValueError, KeyError, TypeError):
                    pass
    return stones


running = {}


def kill_running():
    """Ends what `run` waits for. Returns its command line."""
    for pid in running:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return " ".join(running.values()) or "nothing"


def run(argv, scratch, stdin=os.devnull):
    """Runs a command to its end: (exit code, stdout, stderr). A signal's number is negative."""
    out, err = os.path.join(scratch, "run.out"), os.path.join(scratch, "run.err")
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    running.clear()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, out, write, 0o600), (os.POSIX_SPAWN_OPEN, 2, err, write, 0o600)])
    running[pid] = " ".join(argv)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    running.clear()
    texts = []
    for path in (out, err):
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    return code, *texts


def ask(port, method, path, body=b""):
    """One request to the receiver; returns the body of its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(b"%s %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s"
                     % (method.encode(), path.encode(), len(body), body))
        reply = b""
        while more := link.recv(1 << 20):
            reply += more
    return reply.split(b"\r\n\r\n", 1)[1]


def arrivals(port):
    """What the receiver has seen, in order."""
    return [json.loads(line) for line in ask(port, "GET", "/log").splitlines()]


def preload(port, lines):
    """Makes the receiver forget everything but these arrivals."""
    ask(port, "POST", "/reset")
    if lines:
        ask(port, "POST", "/preload", json.dumps(lines).encode())
