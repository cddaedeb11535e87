#!/usr/bin/env python3
"""Which syncs does the check miss?   without.py TOOLS [the arguments of powerloss.py]

Records one run as `powerloss.py` does. Then, for each sync of it in turn, builds the states that
a power loss could leave if that one sync had not been made, until the check says that one of them
is not legal. A sync that is never missed is either redundant, or the check does not look there.
"""
import copy
import re
import sys

sys.path.insert(0, sys.argv.pop(1))
sys.dont_write_bytecode = True
import crashlib  # noqa: E402
import powerloss  # noqa: E402

NAMES = [(re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"), (re.compile(r"[0-9a-f]{64}"), "SHA256"),
         (re.compile(r"\d{8}T\d{4}Z"), "MINUTE"), (re.compile(r"\d{4}-?\d\d-?\d\d\b"), "DAY"),
         (re.compile(r"\.\d+\.\d+$"), ".PID.N"), (re.compile(r"\b(keyed|plain|ops)\b"), "DEST")]


class Missed(Exception):
    """The check has found a state that is not legal."""


def pattern(text):
    for known, name in NAMES:
        text = known.sub(name, text)
    return text


def left_out(model, sync):
    """The model of the same run, had this sync not been made."""
    other = copy.copy(model)
    other.syncs = [each for each in model.syncs if each is not sync]
    other.cover = [pair for pair in model.cover if pair[0] is not sync]
    other._at, other._bound = {}, {}
    return other


def main():
    opt = powerloss.options()
    states = caught = 0
    with crashlib.Session(opt.spool, opt.check, opt.before, opt.service, opt.timeout) as session:
        model, _ = powerloss.load(session, opt, 0)
        found = []

        def report(_search, _moment, _kept, said):
            found.append(said.strip().splitlines()[0] if said.strip() else "?")
            raise Missed

        powerloss.Search.report = report
        for number, sync in enumerate(model.syncs, 1):
            found.clear()
            search = powerloss.Search(session, left_out(model, sync), opt)
            try:
                search.run()
            except Missed:
                caught += 1
            states += len(search.verdicts)
            what = f"missed after {len(search.verdicts)}: {found[0][:120]}" if found else \
                f"NOT MISSED in {len(search.verdicts)}"
            print(f"without: {number} {pattern(sync.text)} | {what}", flush=True)
    print(f"without: {len(model.syncs)} syncs, {caught} missed, {states} states")
    return crashlib.OK


if __name__ == "__main__":
    crashlib.main_guard(main)
