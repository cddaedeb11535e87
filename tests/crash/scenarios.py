"""The commands that are put under the checkers: what the spool holds before, and what must come of it.

A scenario is a function that fills a spool with a `Maker` and names the command. To add one, write
the function and put it into `TABLE`. What each item must come to is said when it is made; `check.py`
holds every state that a fault leaves against it.
"""
import hashlib
import json
import os
import re
import subprocess
import time

import spool as outsider

CONFIG = """\
[tick]
concurrency = 4
[retry]
base = "1ms"
factor = 1
max = "2ms"
attempts = 50
[retention]
confirmed = "1d"
failed = "1d"
[limits]
min_free = 1
[notify]
destinations = ["ops"]
[destination.keyed]
base_url = "http://127.0.0.1:PORT"
key = { kind = "header", name = "Idempotency-Key", window = "24h" }
timeout = { connect = "5s", response = "20s" }
[destination.plain]
base_url = "http://127.0.0.1:PORT"
timeout = { connect = "5s", response = "20s" }
[destination.ops]
base_url = "http://127.0.0.1:PORT/do/200"
key = { kind = "header", name = "Idempotency-Key", window = "24h" }
on_unknown = "resend"
"""
LARGE = 70_000


class Maker:
    """Makes the spool of one scenario, and the facts that its check goes by."""

    def __init__(self, binary, port, top):
        self.binary, self.port, self.top = binary, port, top
        self.spool = os.path.join(top, "spool")
        self.facts = {"binary": binary, "port": port, "items": {}, "boxed": {}, "argv": None,
                      "input": os.devnull, "repeat": "never", "corrupt": [], "release": [],
                      "new_id_of": None, "adopted": False, "script": None, "files": []}

    def ready(self, used=True):
        """An empty spool with three destinations. One that was used has its boxes and its reserve."""
        self.tickpost("init")
        with open(os.path.join(self.spool, "tickpost.toml"), "w", encoding="utf-8") as file:
            file.write(CONFIG.replace("PORT", str(self.port)))
        if used:
            self.tickpost("tick")
            # The reserve counts as there by its names; its bytes would be copied for every state.
            for directory, _, names in os.walk(os.path.join(self.spool, "reserve")):
                for name in names:
                    os.truncate(os.path.join(directory, name), 0)

    def tickpost(self, *words, codes=(0,)):
        done = subprocess.run([self.binary, "-q", "--spool", self.spool, *words], check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode not in codes:
            raise RuntimeError(f"{' '.join(words)}: {done.returncode} {done.stderr}")
        return done.stdout.strip()

    def file(self, name, text):
        path = os.path.join(self.top, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def expect(self, name, final="confirmed", effects=1, **more):
        """What must come of an item, once it is accepted."""
        self.facts["items"][name] = {"id": None, "final": final, "effects": effects, **more}

    def item(self, name, destination, steps, *options, **more):
        """An item that is there before the command runs. Returns its id."""
        self.expect(name, **more)
        body = name + " " + "x" * LARGE if "large" in name else name
        given = ["--file", self.file("body", body)] if "large" in name else ["--data", body]
        made = self.tickpost("enqueue", destination, "--path", f"/do/{steps}", *given, *options)
        self.facts["items"][name]["id"] = made
        return made

    def drop(self, file, name, destination, steps, **more):
        """A file in a drop box."""
        final = {key: more.pop(key) for key in ("final", "effects") if key in more}
        self.expect(name, **final)
        text = name + " " + "x" * LARGE if "large" in name else name
        draft = {"request": {"path": f"/do/{steps}", "body": {"text": text}}, **more}
        self.raw_drop(file, destination, json.dumps(draft))
        self.facts["boxed"][name] = [destination, file, more.get("request_id")]

    def raw_drop(self, file, destination, text):
        box = os.path.join(self.spool, "incoming", destination)
        os.makedirs(box, mode=0o700, exist_ok=True)
        with open(os.open(os.path.join(box, file), os.O_WRONLY | os.O_CREAT, 0o600), "w",
                  encoding="utf-8") as out:
            out.write(text)

    def killed_tick(self, arrivals):
        """A tick that is killed when so many requests have arrived."""
        before = len(outsider.arrivals(self.port))
        with subprocess.Popen([self.binary, "-q", "--spool", self.spool, "tick"]) as tick:
            while len(outsider.arrivals(self.port)) < before + arrivals:
                if tick.poll() is not None:
                    raise RuntimeError("the tick ended before it was killed")
                time.sleep(0.001)
            tick.kill()

    def days_ago(self, days):
        """Makes the spool look as if all of it had happened so many days ago."""
        now = time.time()
        for back in (0, 1):  # midnight may have passed meanwhile
            old = time.strftime("%Y-%m-%d", time.gmtime(now - back * 86400))
            new = time.strftime("%Y-%m-%d", time.gmtime(now - (back + days) * 86400))
            for directory, _, names in os.walk(self.spool, topdown=False):
                for name in names:
                    if name.endswith(".jsonl"):
                        self.older(os.path.join(directory, name), old + "T", new + "T")
                        compact = name.replace(old.replace("-", ""), new.replace("-", ""))
                        os.rename(os.path.join(directory, name), os.path.join(directory, compact))
                if os.path.basename(directory) == old.replace("-", ""):
                    os.rename(directory, os.path.join(os.path.dirname(directory), new.replace("-", "")))

    @staticmethod
    def older(path, old, new):
        with open(path, encoding="utf-8") as file:
            lines = file.read().replace(old, new).split("\n")
        digest = hashlib.sha256(lines[0].encode()).hexdigest()
        if len(lines) > 1:
            lines[1] = re.sub(r'"envelope_sha256":"[0-9a-f]+"', f'"envelope_sha256":"{digest}"', lines[1])
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))

    def command(self, *words, **facts):
        """The command that is put under the checkers."""
        self.facts.update(facts)
        self.facts["argv"] = list(words)

    def batch(self, *lines, destination=None):
        """`enqueue --batch` of these lines, by a shell that opens the file."""
        self.facts["input"] = self.file("batch", "".join(
            (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        words = ["enqueue", "--batch"] if destination is None else ["enqueue", destination, "--batch"]
        self.command(*words, repeat="always")


def draft(name, destination, steps="200", **more):
    text = name + " " + "x" * LARGE if "large" in name else name
    return {"destination": destination, "request": {"path": f"/do/{steps}", "body": {"text": text}}, **more}


OWN = "66666666-6666-4666-8666-66666666666"


def init(make):
    os.mkdir(make.spool)
    make.command("init", repeat="always")


def enqueue(make):
    make.ready()
    make.expect("e1", line=0)
    make.command("enqueue", "keyed", "--path", "/do/200", "--data", "e1")


def enqueue_key(make):
    make.ready()
    make.expect("e1", line=0)
    make.command("enqueue", "plain", "--path", "/do/200", "--data", "e1", "--key", "K", repeat="always")


def enqueue_key_id(make):
    make.ready()
    make.expect("e1", line=0)
    make.command("enqueue", "keyed", "--path", "/do/200", "--data", "e1", "--key", "K",
                 "--request-id", OWN + "1", repeat="always")


def enqueue_large(make):
    make.ready()
    make.expect("large1", line=0)
    body = make.file("body", "large1 " + "x" * 300_000)
    make.command("enqueue", "keyed", "--path", "/do/200", "--file", body, "--key", "K", repeat="always")


def enqueue_known(make):
    """A key of an item whose own `enqueue` died before it synced the directory."""
    make.ready()
    made = make.item("e1", "keyed", "200", "--key", "K", line=0)
    words = ["enqueue", "keyed", "--path", "/do/200", "--data", "e1", "--key", "K"]
    make.command(*words, repeat="always")
    unsynced(make, "e1", "keyed", made, words)


def enqueue_new_dir(make):
    """Somebody has made the destination's directory and died before it was synced."""
    make.ready()
    make.expect("e1", line=0)
    make.command("enqueue", "keyed", "--path", "/do/200", "--data", "e1", script="""
        mkdir -m 700 "$2/pending/keyed" && exec "$1" -q --spool "$2" enqueue keyed --path /do/200 --data e1""")


def unsynced(make, name, destination, made, words):
    """The item is renamed into its place just before the command, and nothing has synced that."""
    lies = next(place for place in outsider.places(make.spool)[0] if place.id == made)
    given = make.file(f"{name}.jsonl", "")
    os.rename(lies.path, given)
    make.facts["items"][name].update(id=None)
    logs = os.path.join(make.spool, "log")
    for log in os.listdir(logs):
        if log.startswith("accepted-"):  # that comes after the sync
            os.unlink(os.path.join(logs, log))
    make.facts.update(files=[given, f"pending/{destination}/{made}.jsonl", *words], script="""
        binary=$1 spool=$2; cp "$3" "$2/tmp/new" && sync "$2/tmp/new" && mv "$2/tmp/new" "$2/$4" &&
        shift 4 && exec "$binary" -q --spool "$spool" "$@" """)


def batch_few(make):
    make.ready()
    for number in range(3):
        make.expect(f"b{number}", line=number)
    make.batch(draft("b0", "keyed", key="B0"), draft("b1", "plain", key="B1"),
               draft("b2", "keyed", request_id=OWN + "2"))


def batch(make):
    make.ready()
    lines = [draft("b0", "keyed", key="B0"), draft("large1", "keyed", key="B1"), "{ this is no item",
             draft("b3", "plain", request_id=OWN + "3"), draft("b4", "plain", key="B4"),
             draft("b5", "keyed", key="B5", request_id=OWN + "5"),
             draft("b6", "keyed", "503/200", key="B6"), draft("b4", "plain", key="B4"),
             draft("large8", "plain", key="B8"), draft("b9", "keyed", key="B9")]
    for number, line in enumerate(lines):
        if number not in (2, 7):
            make.expect(line["request"]["body"]["text"].split(" ")[0], line=number)
    make.facts["batch_code"] = 65
    make.batch(*lines)


def box(make):
    make.ready()
    make.drop("d1.json", "d1", "keyed", "200")
    make.drop("d2.json", "d2", "plain", "200", key="D2")
    make.drop("d3.json", "d3", "keyed", "200", request_id=OWN + "3")
    make.drop("d4.json", "large4", "keyed", "200", key="D4")
    make.raw_drop("bad.json", "keyed", "{ this is no item")
    make.raw_drop(".unfinished", "keyed", "{")
    make.command("tick", repeat="tick", corrupt=["bad.json"])


def box_new(make):
    """A tick makes the box, then somebody drops into it as the protocol says."""
    make.ready()
    for name in os.listdir(os.path.join(make.spool, "incoming")):
        os.rmdir(os.path.join(make.spool, "incoming", name))
    make.expect("d1", line=0)
    given = make.file("d1.json", json.dumps({"request": {"path": "/do/200", "body": {"text": "d1"}}, "key": "D1"}))
    make.command("tick", repeat="tick", files=[given], script="""
        "$1" -q --spool "$2" tick && cd "$2/incoming/plain" && cp "$3" .d1 && sync .d1 && mv .d1 d1.json &&
        sync . && echo d1""")
    make.facts["boxed"]["d1"] = ["plain", "d1.json", None]


def box_known(make):
    """A drop whose item was accepted before, by its key and by its id."""
    make.ready()
    make.item("d1", "keyed", "200", "--key", "D1")
    make.drop("d1.json", "d1", "keyed", "200", key="D1")
    make.item("d2", "plain", "200", "--request-id", OWN + "2")
    make.drop("d2.json", "d2", "plain", "200", request_id=OWN + "2")
    make.command("tick", repeat="tick")


def tick_confirmed(make):
    make.ready()
    for name in ("a1", "a2", "large3"):
        make.item(name, "keyed", "200")
    make.item("a4", "plain", "200")
    make.command("tick", repeat="tick")


def tick_first(make):
    """The first tick of a spool, which makes boxes and the reserve."""
    make.ready(used=False)
    make.item("a1", "keyed", "200")
    make.item("f2", "plain", "422", final="failed", effects=0)
    make.command("tick", repeat="tick")


def tick_failed(make):
    make.ready()
    make.item("f1", "keyed", "422", final="failed", effects=0)
    make.item("f2", "plain", "400", final="failed", effects=0)
    make.item("f3", "plain", "200")
    make.command("tick", repeat="tick")


def tick_pending(make):
    make.ready()
    for name in ("p1", "p2"):
        make.item(name, "keyed", "503/200")
    make.item("p3", "plain", "429/503/200")
    make.command("tick", repeat="tick")


def tick_held(make):
    """401: the item is held and the destination suspended, until somebody mends it."""
    make.ready()
    for name in ("h1", "h2"):
        make.item(name, "keyed", "401/200")
    make.item("h3", "plain", "403/200")
    make.command("tick", repeat="tick", release=["h1", "h2", "h3"])


def tick_unknown(make):
    """The receiver acted, and the answer was lost or said otherwise: sent again by itself."""
    make.ready()
    for name, steps in (("u1", "lost/200"), ("u2", "reset/200"), ("u3", "a500/200"), ("u4", "deaf/200")):
        make.item(name, "keyed", steps)
    make.command("tick", repeat="tick")


def tick_maybe_503(make):
    """Maybe acted on, then told to come again: it stays maybe-acted."""
    make.ready()
    make.item("m1", "keyed", "lost/503/200")
    make.item("m2", "keyed", "deaf/503/200")
    make.tickpost("tick")
    make.command("tick", repeat="tick")


def tick_parked(make):
    """As `tick_unknown`, where nothing makes a repeat harmless: a person asks the receiver."""
    make.ready()
    for name, steps in (("q1", "lost/200"), ("q2", "reset/200"), ("q3", "a500/200"), ("q4", "deaf/200")):
        make.item(name, "plain", steps)
    make.command("tick", repeat="tick")


def tick_expired(make):
    make.ready()
    for number in (1, 2):
        make.item(f"x{number}", "keyed", "200", "--not-after", "+1s", final="failed", effects=0)
    make.item("x3", "plain", "200")
    time.sleep(1.1)
    make.command("tick", repeat="tick")


def tick_notices(make):
    """Notices that wait for their own turn, beside items that make more."""
    make.ready()
    make.item("n1", "keyed", "422", final="failed", effects=0)
    make.item("n2", "plain", "lost")
    make.tickpost("tick", "--destination", "keyed")
    make.tickpost("tick", "--destination", "plain")
    make.item("n3", "keyed", "422", final="failed", effects=0)
    make.item("n4", "plain", "403/200")
    make.command("tick", repeat="tick", release=["n4"])


def tick_filing(make):
    """Items that are not due are sorted into their minute and day."""
    make.ready()
    make.item("w1", "keyed", "200", "--not-before", "+1h", final="pending", effects=0)
    make.item("w2", "keyed", "200", "--not-before", "+9d", final="pending", effects=0)
    make.item("w3", "plain", "200")
    make.command("tick", repeat="tick")


def tick_unsynced(make):
    """An item whose `enqueue` died before it synced the directory: it must not be sent before that."""
    make.ready()
    made = make.item("e1", "plain", "200")
    make.command("tick", repeat="tick")
    unsynced(make, "e1", "plain", made, ["tick"])


def tick_recovers(make):
    """After a tick that was killed while it sent: replay, then what each destination allows."""
    make.ready()
    for name in ("r1", "r2"):
        make.item(name, "keyed", "hang/200")
    for name in ("r3", "r4"):
        make.item(name, "plain", "hang/200")
    make.killed_tick(4)
    make.command("tick", repeat="tick")


def tick_resends(make):
    """What was maybe acted on is due again."""
    make.ready()
    for name, steps in (("u1", "lost/200"), ("u2", "deaf/200"), ("u3", "lost/lost/200")):
        make.item(name, "keyed", steps)
    make.tickpost("tick")
    make.command("tick", repeat="tick")


def hold(make):
    make.ready()
    ids = [make.item(f"o{number}", "keyed", "200", final="held", effects=0) for number in (1, 2)]
    make.item("o3", "plain", "200")
    make.command("hold", *ids, "--note", "look", repeat="always", done={"o1": "held", "o2": "held"})


def release(make):
    make.ready()
    ids = [make.item(f"o{number}", "keyed", "200", "--hold", "look") for number in (1, 2)]
    make.command("release", *ids, repeat="always", done={"o1": "pending", "o2": "pending"})


def cancel(make):
    make.ready()
    ids = [make.item("o1", "keyed", "200", final="failed", effects=0),
           make.item("o2", "keyed", "200", "--hold", "look", final="failed", effects=0)]
    make.command("cancel", *ids, repeat="always", done={"o1": "failed", "o2": "failed"})


def refused(make):
    make.ready()
    ids = [make.item(f"o{number}", "keyed", "422/200") for number in (1, 2)]
    make.tickpost("tick")
    make.tickpost("tick")
    return ids


def retry(make):
    make.command("retry", *refused(make), repeat="always", done={"o1": "pending", "o2": "pending"})


def retry_new_id(make):
    """The receiver refuses the new ones too: each end is told."""
    ids = refused(make)
    make.command("retry", "--new-id", *ids, repeat="never", new_id_of=["o1", "o2"])


def parked(make, steps, final, effects):
    make.ready()
    ids = [make.item(f"o{number}", "plain", steps, final=final, effects=effects) for number in (1, 2)]
    make.tickpost("tick")
    make.tickpost("tick")
    return ids


def resolve_confirmed(make):
    make.command("resolve", "--confirmed", *parked(make, "lost", "confirmed", 1), repeat="always",
                 done={"o1": "confirmed", "o2": "confirmed"})


def resolve_failed(make):
    make.command("resolve", "--failed", *parked(make, "deaf", "failed", 0), repeat="always",
                 done={"o1": "failed", "o2": "failed"})


def resolve_resend(make):
    make.command("resolve", "--resend", *parked(make, "deaf/200", "confirmed", 1), repeat="always",
                 done={"o1": "pending", "o2": "pending"})


def hold_destination(make):
    make.ready()
    make.item("o1", "keyed", "200")
    make.command("hold", "--destination", "keyed", "--note", "look", repeat="always",
                 destination_held={"keyed": True})


def release_destination(make):
    make.ready()
    make.item("o1", "keyed", "401/200")
    make.item("o2", "keyed", "200")
    make.tickpost("tick")
    make.tickpost("hold", "--destination", "keyed")
    make.command("release", "--destination", "keyed", repeat="always", release=["o1"],
                 destination_held={"keyed": False})


def prune(make):
    make.ready()
    make.item("z1", "keyed", "200", "--key", "Z1", final="pruned")
    make.item("z2", "plain", "200", "--request-id", OWN + "2", final="pruned")
    make.item("large3", "keyed", "200", final="pruned")
    make.item("z4", "plain", "422", final="pruned", effects=0)
    for _ in range(3):
        make.tickpost("tick")
    make.days_ago(9)
    # The clock has leapt, as far as the spool can tell: the next tick makes it count again.
    make.tickpost("tick", "--destination", "ops")
    make.item("z5", "keyed", "200")
    make.command("prune", repeat="always", done=dict.fromkeys(("z1", "z2", "large3", "z4"), "pruned"))


def audit(make):
    make.ready()
    make.item("a1", "keyed", "200")
    make.item("a2", "plain", "lost/200")
    make.tickpost("tick")
    make.item("a3", "keyed", "200")
    make.command("audit", repeat="always")


def doctor_repair(make):
    """A misplaced item and modes to mend; a body and a key of nobody's, too young to be removed."""
    make.ready()
    make.item("k1", "keyed", "200", "--key", "K1")
    make.item("k2", "plain", "200")
    moved = make.item("k3", "keyed", "200")
    make.tickpost("tick", "--destination", "keyed")
    lies = next(place for place in outsider.places(make.spool)[0] if place.id == moved)
    os.makedirs(os.path.join(make.spool, "held", "keyed"), mode=0o700, exist_ok=True)
    os.rename(lies.path, os.path.join(make.spool, "held", "keyed", f"{moved}.jsonl"))
    body, key = f"bodies/{OWN}9", "keys/keyed/" + hashlib.sha256(b"nobody's").hexdigest()
    for path, holds in ((body, "nobody's"), (key, json.dumps({
            "request_id": OWN + "8", "body_sha256": "0" * 64, "request_sha256": "0" * 64}))):
        path = os.path.join(make.spool, path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(holds)
    os.chmod(os.path.join(make.spool, "failed"), 0o755)
    make.command("doctor", "--repair", repeat="always", repeat_codes=[0, 1])


def doctor_adopt(make):
    """A copy: what is pending is held, what is unknown is parked, before it is taken for the spool."""
    make.ready()
    make.item("k1", "keyed", "200")
    make.item("k2", "keyed", "lost/200")
    make.tickpost("tick", "--destination", "keyed", "--limit", "2")
    make.item("k3", "keyed", "200")
    make.item("k4", "plain", "200")
    make.command("doctor", "--adopt", repeat="always", repeat_codes=[0, 1], adopted=True,
                 release=["k1", "k3", "k4"])


# What the checkers do to a command: all of it, or what makes sense. The calls of a tick come in another
# order in each run, and a short transfer must strike the very call whose length it was made for.
EVERY = ("kill", "errors", "sticky", "strict", "ext4", "failsync", "cut-ext4", "cut-xfs", "cut-btrfs")
FAULTS = ("short",) + EVERY
TICK = ("again",) + EVERY

# name, how it is made, modes, the subcommand that must exist.
TABLE = [
    ("init", init, FAULTS, "init"),
    ("enqueue", enqueue, FAULTS, "enqueue"),
    ("enqueue-key", enqueue_key, FAULTS, "enqueue"),
    ("enqueue-key-id", enqueue_key_id, FAULTS, "enqueue"),
    ("enqueue-large", enqueue_large, FAULTS, "enqueue"),
    ("enqueue-new-dir", enqueue_new_dir, FAULTS, "enqueue"),
    ("enqueue-known", enqueue_known, FAULTS, "enqueue"),
    ("batch-few", batch_few, FAULTS, "enqueue"),
    ("batch", batch, FAULTS, "enqueue"),
    ("box", box, TICK, "tick"),
    ("box-new", box_new, FAULTS, "tick"),
    ("box-known", box_known, TICK, "tick"),
    ("tick-confirmed", tick_confirmed, TICK, "tick"),
    # The reserve's bytes would be most of every state of a power loss.
    ("tick-first", tick_first, [mode for mode in TICK if mode not in ("strict", "ext4", "failsync")], "tick"),
    ("tick-failed", tick_failed, TICK, "tick"),
    ("tick-pending", tick_pending, TICK, "tick"),
    ("tick-held", tick_held, TICK, "tick"),
    ("tick-unknown", tick_unknown, TICK, "tick"),
    ("tick-maybe-503", tick_maybe_503, TICK, "tick"),
    ("tick-parked", tick_parked, TICK, "tick"),
    ("tick-expired", tick_expired, TICK, "tick"),
    ("tick-notices", tick_notices, TICK, "tick"),
    ("tick-filing", tick_filing, TICK, "tick"),
    ("tick-unsynced", tick_unsynced, FAULTS, "tick"),
    ("tick-recovers", tick_recovers, TICK, "tick"),
    ("tick-resends", tick_resends, TICK, "tick"),
    ("hold", hold, TICK, "hold"),
    ("release", release, TICK, "release"),
    ("cancel", cancel, TICK, "cancel"),
    ("retry", retry, TICK, "retry"),
    ("retry-new-id", retry_new_id, FAULTS, "retry"),
    ("resolve-confirmed", resolve_confirmed, TICK, "resolve"),
    ("resolve-failed", resolve_failed, TICK, "resolve"),
    ("resolve-resend", resolve_resend, TICK, "resolve"),
    ("hold-destination", hold_destination, TICK, "hold"),
    ("release-destination", release_destination, TICK, "release"),
    ("prune", prune, TICK, "prune"),
    ("audit", audit, TICK, "audit"),
    ("doctor-repair", doctor_repair, TICK, "doctor"),
    ("doctor-adopt", doctor_adopt, TICK, "doctor"),
]
