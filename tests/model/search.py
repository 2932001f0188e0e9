#!/usr/bin/env python3
"""Searches one scene of the model and prints the shortest trace to a violation, if there is one."""

import argparse
import time
from dataclasses import fields, replace

from explore import explore
from memory import NEW, OLD, Memory, Rules
from scenes import DEEP, SCENES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scene", help="of " + ", ".join([*SCENES, *(f"deep/{name}" for name in DEEP)]))
    parser.add_argument("--old", action="store_true", help="the rules before the four invariants")
    parser.add_argument("--at-once", type=int, help="operations under way at once")
    parser.add_argument("--only", action="append", default=[], help="words of what is looked for: P3, stranger")
    parser.add_argument("--most", type=int, help="states to look at")
    for rule in fields(Rules):
        parser.add_argument(f"--{rule.name}", help=f"{getattr(OLD, rule.name)}; {getattr(NEW, rule.name)}")
    args = parser.parse_args()

    deep, name = args.scene.startswith("deep/"), args.scene.removeprefix("deep/")
    scene = (DEEP if deep else SCENES)[name]
    given = {rule.name: getattr(args, rule.name) for rule in fields(Rules) if getattr(args, rule.name)}
    rules = replace(OLD if args.old else NEW, **given)
    scene = replace(scene, rules=rules, only=tuple(args.only), at_once=args.at_once or scene.at_once)

    since = time.monotonic()
    model = Memory(scene)
    found = explore(model, args.most)
    if found.violation:
        print(model.tell(found))
    else:
        print("nothing found" if found.complete else "nothing found so far")
    print(f"{found.states} states, {time.monotonic() - since:.0f} s")
    return bool(found.violation)


if __name__ == "__main__":
    raise SystemExit(main())
