#!/usr/bin/env python3
"""Is this what a fault may leave of a spool?

    check.py FACTS             judges the state that the environment names; exit code 0: it is legal
    check.py FACTS before      readies the copy that the command will run on
    check.py FACTS serve DIR   does both, over and over, for CLIENT, which asks by two FIFOs in DIR

`killpoints.py` and `powerloss.py` have every state judged. It is looked at as it is; then timers and
a person go on, until all is quiet; then it is looked at again. Starting Python would be most of the
cost, so that one process judges all the states of a mode.

What it holds to, with the guarantees of the contract:
  raw     who was acknowledged is somewhere (G1, G2); what the receiver has seen is not `pending`
          without a record of it (G3); nothing is confirmed that the receiver did not do (G5)
  then    repeating the command with its key or id, or an operator's command, completes it (G1)
  quiet   each item once, settled as its receiver's script says; each effect once (G2, G6, G7); each
          move to held, failed and parked told once (G8); nothing in the journal, nothing misplaced
"""
import json
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import spool as outsider  # noqa: E402

ROUNDS_MAX = 15
NOT_ACCEPTED = {"2", "65", "66", "69", "73", "75", "77", "78"}
WORKERS = ("keyed", "plain")
JUDGE_S_MAX = 60
# How ids begin that callers of the scenarios choose.
OWN = "66666666-6666"
ASKED = ("ASKED", "SPOOL", "WORK", "CRASH_TOOL", "CRASH_EXIT", "CRASH_STDOUT", "CRASH_EVENTS", "CRASH_FAULT")
# A line of shell, for `before` or `check`: no process but the shell itself.
CLIENT = ('cd {meeting} && printf "%s\\n" {what} "$SPOOL" "$WORK" "$CRASH_TOOL" "$CRASH_EXIT" '
          '"$CRASH_STDOUT" "$CRASH_EVENTS" "$CRASH_FAULT" >ask && read code <answer && '
          '{{ [ "$code" = 0 ] || {{ cat said; exit 1; }}; }}')


class Late(Exception):
    """A check that takes too long."""


class Check:
    """One state, and what is wrong with it."""

    def __init__(self, facts):
        self.facts = facts
        self.items = facts["items"]
        self.spool, self.work = os.environ["SPOOL"], os.environ["WORK"]
        self.port = facts["port"]
        self.exit = os.environ["CRASH_EXIT"]
        self.powerloss = os.environ["CRASH_TOOL"] == "powerloss"
        self.bad = []
        self.printed = {}

    def fault(self, text):
        if text not in self.bad:
            self.bad.append(text)

    def all(self):
        if self.powerloss:
            self.own_the_lock()
        if self.exit in ("70", "101"):
            self.fault(f"exit {self.exit}: a bug")
        if self.facts["argv"] == ["init"]:
            outsider.preload(self.port, [])
            of_init(self)
            return
        self.raw(self.seen_before_the_fault())
        if not self.facts["adopted"]:
            self.accounts()
        if self.facts["repeat"] == "always" and not self.bad:
            self.repeat()
        if not self.bad:
            self.go_on()
        self.quiet()
        self.accounts()

    # ---- what there is
    def own_the_lock(self):
        """The lock of a state that was written out anew has a number of its own."""
        try:
            with open(os.path.join(self.spool, "spool.json"), encoding="utf-8") as file:
                text = file.read()
            says = json.loads(text)["lock_inode"]
            lock = os.stat(os.path.join(self.spool, "lock")).st_ino
        except (OSError, ValueError, KeyError):
            return
        with open(os.path.join(self.work, "lock-inode"), encoding="utf-8") as file:
            was = file.read()
        if str(says) == was or not was:
            set_inode(self.spool, lock)

    def look(self):
        """All items by name: {name: [(Place, Item)…]}; damage is a fault."""
        by_name = {}
        found, foreign = outsider.places(self.spool)
        for path in foreign:
            self.fault(f"{path} does not belong there")
        for place in found:
            try:
                item = outsider.Item(place.path)
                name = outsider.item_name(self.spool, item)
            except (OSError, ValueError, KeyError, IndexError) as problem:
                self.fault(f"{place} is damaged: {problem}")
                continue
            if item.envelope["request_id"] != place.id or item.envelope["destination"] != place.destination:
                self.fault(f"{place} is another item's file")
            by_name.setdefault(name, []).append((place, item))
        return by_name

    def seen_before_the_fault(self):
        """What the receiver had seen, and goes on with."""
        if self.powerloss:
            outsider.preload(self.port, self.facts["arrived"])
            with open(os.environ["CRASH_EVENTS"], encoding="utf-8") as file:
                sent = {}
                for event in json.load(file):
                    if event["type"] == "send":
                        sent[event["conn"]] = sent.get(event["conn"], "") + event["text"]
                    elif event["type"] == "recv":
                        self.deliver(sent.pop(event["conn"], ""))
                for text in sent.values():
                    self.deliver(text)
        return outsider.arrivals(self.port)

    def deliver(self, text):
        """Sends to the receiver again what had left before the power went, answers unread."""
        while "\r\n\r\n" in text:
            head, rest = text.split("\r\n\r\n", 1)
            length = 0
            for line in head.split("\r\n")[1:]:
                if line.lower().startswith("content-length:"):
                    length = int(line.split(":")[1])
            if len(rest) < length:
                return
            body, text = rest[:length], rest[length:]
            send_again(self.port, head.split(" ")[1], head, body)

    def effects(self, log):
        counts = {}
        for line in log:
            counts[line["name"]] = counts.get(line["name"], 0) + bool(line["acted"])
        return counts

    # ---- the state as it is
    def raw(self, log):
        by_name = self.look()
        with open(os.environ["CRASH_STDOUT"], encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")[:-1]
        is_enqueue = self.facts["argv"][0] == "enqueue"
        recorded = outsider.recorded_ids(self.spool)
        seen = {line["name"] for line in log}
        effects = self.effects(log)
        stones = outsider.tombstones(self.spool)
        for name, wants in self.items.items():
            there = by_name.get(name, [])
            ids = {place.id for place, _ in there}
            if is_enqueue and "line" in wants:
                said = lines[wants["line"]] if wants["line"] < len(lines) else None
                if said:
                    self.printed[name] = said
                    if said not in ids:
                        self.fault(f"{name} was printed as {said}, and is in {places_of(there)}")
                    # Else the id could be given again when it is pruned.
                    if said.startswith(OWN) and not self.is_reserved(said):
                        self.fault(f"{name}'s own id {said} is not reserved")
                elif self.exit == "0" or self.exit == str(self.facts.get("batch_code")) and lines:
                    self.fault(f"{name} was acknowledged without an id")
                # With a script somebody else may have accepted it.
                if self.exit in NOT_ACCEPTED and not said and wants["id"] is None and there and \
                        not self.facts["script"] and \
                        not (self.exit == "65" and self.facts.get("batch_code")):
                    self.fault(f"exit {self.exit} says not accepted, and {name} is in {places_of(there)}")
            if name in seen and not there and name not in self.facts["boxed"] and wants["id"] not in stones:
                self.fault(f"the receiver has seen {name}, and it is in no place")
            if name in self.facts["boxed"]:
                acknowledged = "line" not in wants or lines[wants["line"]:]
                if acknowledged and not there and not self.in_box(name):
                    self.fault(f"{name} is neither in its box nor accepted")
            elif wants["id"]:
                gone = wants["final"] == "pruned" and wants["id"] in stones
                if wants["id"] not in ids and not gone:
                    self.fault(f"{name} ({wants['id']}) is in {places_of(there)}")
            for place, item in there:
                attempts = [event for event in item.events if event["event"] == "attempt"]
                if name in seen and "retry_of" not in item.envelope and place.state in ("pending", "held") and not attempts \
                        and place.id not in recorded:
                    self.fault(f"the receiver has seen {name}, yet {place} has no record of it")
                by_person = any("by" in event for event in item.events[1:])
                if place.state == "confirmed" and not effects.get(name) and not by_person:
                    self.fault(f"{place} is confirmed, but nothing took effect")
        if self.exit == "0":
            self.acknowledged_as_done(by_name)

    def is_reserved(self, own_id):
        try:
            with open(os.path.join(self.spool, "keys/_ids", own_id), encoding="utf-8") as file:
                return json.load(file)["request_id"] == own_id
        except (OSError, ValueError, KeyError):
            return False

    def in_box(self, name):
        destination, file, _ = self.facts["boxed"][name]
        box = os.path.join(self.spool, "incoming", destination)
        if not os.path.isdir(box):
            return False
        stem = file.removesuffix(".json")
        return any(entry == file or entry.startswith(stem + ".") and entry.endswith(".taking")
                   for entry in os.listdir(box))

    def acknowledged_as_done(self, by_name):
        """An operator's command that has exited 0 has done it."""
        for name, state in self.facts.get("done", {}).items():
            found = places_of(by_name.get(name, []))
            if state == "pruned" and os.environ.get("CRASH_FAULT", "").startswith("E"):
                continue  # what could not be read is left for the next time, and warned of
            if state == "pruned":
                if found or self.items[name]["id"] not in outsider.tombstones(self.spool):
                    self.fault(f"exit 0, yet {name} is not pruned: {found}")
            elif not any(path.startswith(state + "/") for path in found):
                self.fault(f"exit 0, yet {name} is in {found}, not {state}")
        for destination, is_held in self.facts.get("destination_held", {}).items():
            path = os.path.join(self.spool, "destinations", f"{destination}.hold.json")
            if os.path.exists(path) != is_held:
                self.fault(f"exit 0, yet {destination} is {'not ' if is_held else ''}held")

    # ---- as timers and a person would go on
    def tickpost(self, *words, codes=(0,), stdin=os.devnull):
        argv = [self.facts["binary"], "-q", "--spool", self.spool, *words]
        code, out, err = outsider.run(argv, self.work, stdin)
        if code not in codes or "panicked" in err:
            self.fault(f"`{' '.join(words)}` exited {code}: {err.strip()[:300]} {out.strip()[:300]}")
        return out

    def repeat(self):
        """The command again, as who has got no answer would."""
        words = self.facts["argv"]
        if words[0] == "enqueue":
            code = self.facts.get("batch_code", 0)
            lines = self.tickpost(*words, codes=(code,), stdin=self.facts["input"]).split("\n")
            for name, wants in self.items.items():
                if "line" not in wants:
                    continue
                said = lines[wants["line"]] if wants["line"] < len(lines) else ""
                if self.printed.setdefault(name, said) != said or not said:
                    self.fault(f"{name} was printed as {self.printed[name]}, and when repeated as {said!r}")
        else:
            self.tickpost(*words, codes=self.facts.get("repeat_codes", (0, 1)))

    def go_on(self):
        if self.facts["new_id_of"]:
            self.retry_those_left()
        for destination, is_held in self.facts.get("destination_held", {}).items():
            if is_held:
                before = len(outsider.arrivals(self.port))
                self.tickpost("tick")
                if len(outsider.arrivals(self.port)) != before:
                    self.fault(f"something was sent to {destination}, which is held")
                self.tickpost("release", "--destination", destination)
        for _ in range(ROUNDS_MAX):
            self.tickpost("tick")
            if self.bad:
                return
            found, _ = outsider.places(self.spool)
            if self.as_a_person(found):
                continue
            if all(self.may_stay(place) for place in found):
                break
        else:
            self.fault(f"not quiet after {ROUNDS_MAX} ticks: "
                       f"{[str(place) for place in found if not self.may_stay(place)]}")
        before = len(outsider.arrivals(self.port))
        self.tickpost("tick")
        if len(outsider.arrivals(self.port)) != before:
            self.fault("all was settled, yet something was sent")

    def retry_those_left(self):
        """`retry --new-id` knows no repeats: a person looks which have a successor."""
        by_name = self.look()
        for name in self.facts["new_id_of"]:
            there = by_name.get(name, [])
            if not any("retry_of" in item.envelope for _, item in there):
                self.tickpost("retry", "--new-id", self.items[name]["id"])

    def may_stay(self, place):
        if place.state in ("confirmed", "failed"):
            return True
        final = {wants["id"]: wants["final"] for wants in self.items.values()}.get(place.id)
        return final == place.state and place.state in ("pending", "held")

    def as_a_person(self, found):
        """Does what waits for a person. True if there was something."""
        did = False
        for place in found:
            if place.parked:
                name = outsider.item_name(self.spool, outsider.Item(place.path))
                name = place.id if name == "notice" else name
                acted = int(outsider.ask(self.port, "GET", f"/acted/{name}"))
                self.tickpost("resolve", "--confirmed" if acted else "--resend", place.id)
                did = True
            elif place.state == "held" and self.wants_release(place):
                self.tickpost("release", place.id)
                did = True
        for destination in WORKERS:
            path = os.path.join(self.spool, "destinations", f"{destination}.json")
            try:
                with open(path, encoding="utf-8") as file:
                    suspended = json.load(file).get("suspended")
            except (OSError, ValueError):
                continue
            # Not what a tick will try again at once.
            if suspended and suspended.get("until", "9") > soon():
                self.tickpost("release", "--destination", destination)
                did = True
        return did

    def wants_release(self, place):
        item = outsider.Item(place.path)
        # An injected error that concerns one item alone, as when its body cannot be read.
        is_local = item.events[-1].get("reason") == "local_error"
        return is_local or outsider.item_name(self.spool, item) in self.facts["release"]

    # ---- when all is quiet
    def quiet(self):
        by_name = self.look()
        log = outsider.arrivals(self.port)
        effects = self.effects(log)
        stones = outsider.tombstones(self.spool)
        for name, wants in self.items.items():
            self.one_item(name, wants, by_name.get(name, []), effects.get(name, 0), stones)
        for name in by_name:
            if name not in self.items and name != "notice":
                self.fault(f"nobody asked for {name}: {places_of(by_name[name])}")
        self.notices(by_name, log)
        self.nothing_left()

    def one_item(self, name, wants, there, effects, stones):
        found = places_of(there)
        if wants["final"] == "pruned":
            if there or wants["id"] not in stones:
                self.fault(f"{name} is in {found}, tombstone: {wants['id'] in stones}")
            if effects != wants["effects"]:
                self.fault(f"{name} took effect {effects} times")
            return
        if self.facts["new_id_of"] and name in self.facts["new_id_of"]:
            ends = sorted((place.state, "retry_of" in item.envelope) for place, item in there)
            if ends != [("failed", False), ("failed", True)] or effects:
                self.fault(f"{name} is in {found}, and took effect {effects} times")
            return
        needed = wants["id"] or name in self.printed or name in self.facts["boxed"] and "line" not in wants
        if not there and not needed:
            if effects:
                self.fault(f"{name} was never accepted, and took effect {effects} times")
            return
        if len(there) != 1 or not found[0].startswith(wants["final"] + "/"):
            self.fault(f"{name} is in {found or 'no place'}, not once in {wants['final']}")
            return
        known = wants["id"] or self.printed.get(name)
        if known and there[0][0].id != known:
            self.fault(f"{name} was {known}, and is {there[0][0].id}")
        if effects != wants["effects"]:
            self.fault(f"{name} took effect {effects} times, not {wants['effects']}")
        if not there[0][1].whole:
            self.fault(f"{found[0]} has a damaged end")

    def notices(self, by_name, log):
        """Whoever should be told was told once: by what the receiver has got under distinct keys."""
        told = {}
        for line in log:
            if line["name"] == "notice" and line["acted"]:
                notice = json.loads(line["body"])
                for subject in notice["request_ids"]:
                    told.setdefault(subject, []).append(notice["notice"])
        for there in by_name.values():
            for place, item in there:
                if item.envelope.get("notice"):
                    continue
                wanted = sorted(about for about, times in item.told().items() for _ in range(times))
                got = sorted(told.pop(place.id, []))
                if got != wanted:
                    self.fault(f"{place}: told of {got}, not {wanted}")
        for file in self.facts["corrupt"]:
            if told.pop(file, []) != ["corrupt"]:
                self.fault(f"nobody, or somebody twice, was told of corrupt/{file}")
        pruned = {wants["id"] for wants in self.items.values() if wants["final"] == "pruned"}
        for subject in set(told) - pruned:
            self.fault(f"somebody was told of {subject}: {told[subject]}")

    def nothing_left(self):
        def entries(name):
            return sorted(os.listdir(os.path.join(self.spool, name)))

        if entries("journal"):
            self.fault(f"in the journal: {entries('journal')}")
        wanted = sorted(name + end for name in self.facts["corrupt"] for end in ("", ".why.json"))
        if entries("corrupt") != wanted:
            self.fault(f"in corrupt/: {entries('corrupt')}, not {wanted}")
        for name in self.facts["corrupt"]:
            try:
                with open(os.path.join(self.spool, "corrupt", f"{name}.why.json"), encoding="utf-8") as file:
                    json.load(file)["reason"]
            except (OSError, ValueError, KeyError) as problem:
                self.fault(f"corrupt/{name}.why.json says nothing: {problem!r}")
        for name in entries("tmp"):
            if not os.path.isfile(os.path.join(self.spool, "tmp", name)):
                self.fault(f"tmp/{name} is no unfinished write")
        for directory, _, names in os.walk(os.path.join(self.spool, "incoming")):
            for name in names:
                if not name.startswith("."):
                    self.fault(f"left in a box: {name}")
        if self.facts["doctor"]:
            self.tickpost("doctor", "--repair", codes=(0, 1))
            # What was set aside is a finding until a person has dealt with it.
            self.tickpost("doctor", codes=(1 if self.facts["corrupt"] else 0,))

    def accounts(self):
        if self.facts["audit"]:
            self.tickpost("audit")


def send_again(port, path, head, body):
    """A request with its own head; the answer is not looked at."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(f"{head}\r\n\r\n{body}".encode())
        try:
            while "/hang" not in path and link.recv(65536):
                pass
        except OSError:
            pass


def soon():
    """In a second from now, as the spool writes times."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.999Z", time.gmtime())


def places_of(there):
    return [str(place) for place, _ in there]


def set_inode(spool, inode):
    path = os.path.join(spool, "spool.json")
    with open(path, encoding="utf-8") as file:
        about = json.load(file)
    about["lock_inode"] = inode
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(about, separators=(",", ":")) + "\n")


def before(facts):
    """The copy gets its lock's number, and the receiver what it had seen when it was made."""
    spool = os.environ["SPOOL"]
    lock = os.path.join(spool, "lock")
    inode = str(os.stat(lock).st_ino) if os.path.exists(lock) else ""
    with open(os.path.join(os.environ["WORK"], "lock-inode"), "w", encoding="utf-8") as file:
        file.write(inode)
    if inode and not facts["adopted"]:
        set_inode(spool, int(inode))
    outsider.preload(facts["port"], facts["arrived"])


def of_init(check):
    """Whatever a death of `init` leaves, it completes; then the spool works."""
    if check.exit == "0":
        check.tickpost("status")
        check.tickpost("config", "check")
    check.tickpost("init")
    if check.bad:
        return
    config = os.path.join(check.spool, "tickpost.toml")
    with open(config, "a", encoding="utf-8") as file:
        file.write("\n" + check.facts["config"])
    check.tickpost("enqueue", "keyed", "--path", "/do/200", "--data", "i1")
    check.tickpost("tick")
    if check.effects(outsider.arrivals(check.port)).get("i1") != 1:
        check.fault("a spool that was completed does not send")


def judge(facts):
    """What is wrong with the state that the environment names."""
    check = Check(facts)
    signal.setitimer(signal.ITIMER_REAL, JUDGE_S_MAX)
    try:
        check.all()
    except Late:
        check.fault(f"the check did not end in {JUDGE_S_MAX} s; running was {outsider.kill_running()}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return check.bad


def serve(facts, meeting):
    """Answers CLIENT until nobody is there any more."""
    ask, answer = os.path.join(meeting, "ask"), os.path.join(meeting, "answer")
    for path in (ask, answer):
        os.mkfifo(path)
    print("ready", flush=True)
    # Open for both, so that a client that was killed blocks nobody.
    replies = os.open(answer, os.O_RDWR)
    while True:
        with open(ask, encoding="utf-8") as file:
            words = file.read().split("\n")
        os.environ.update(zip(ASKED, words))
        if words[0] == "before":
            bad = before(facts) or []
        else:
            bad = judge(facts)
        with open(os.path.join(meeting, "said"), "w", encoding="utf-8") as file:
            file.write("\n".join(bad) + "\n")
        os.write(replies, b"1\n" if bad else b"0\n")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        facts = json.load(file)

    def late(*_):
        raise Late

    signal.signal(signal.SIGALRM, late)
    if sys.argv[2:] == ["before"]:
        before(facts)
    elif sys.argv[2:3] == ["serve"]:
        serve(facts, sys.argv[3])
    else:
        bad = judge(facts)
        print("\n".join(bad) or "ok")
        sys.exit(bool(bad))


if __name__ == "__main__":
    main()
