# SPDX-License-Identifier: GPL-2.0
"""Measures the seeds' figures and tables and reports what agrees.

Runs the parts that have no result yet, each in guests, and writes study.json and
report.html into the directory. It can be interrupted at any time: what has ended
stays. Sections whose parts have not been run say so.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from . import report
from .model import Section
from .readers import READERS
from .runner import PUBLISHED, ROOT, Part, Store, load_parts, missing, run_part
from .sections import load_sections


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run study", description=__doc__, allow_abbrev=False)
    parser.add_argument("--kernel", help="kernel series, with commas (default: 6.12; with --published 6.1,6.12)")
    parser.add_argument("--only", help="sections, seeds or parts, with commas: 000-fig2,003,messages")
    parser.add_argument("--again", action="store_true", help="measure anew what has a result")
    parser.add_argument("--resume", action="store_true", help="go on with what is missing (the default)")
    parser.add_argument("--report", action="store_true", help="run nothing, report what there is")
    parser.add_argument("--published", action="store_true", help="run nothing, report the project's own measurements")
    parser.add_argument("--list", action="store_true", help="list the sections and parts, and what has been measured")
    parser.add_argument("--out", type=Path, default=ROOT / "build/study", help="directory (build/study)")
    args = parser.parse_args(words)
    if args.again and args.resume:
        parser.error("--again measures what --resume keeps: give one of them")
    if not args.out.resolve().is_relative_to(ROOT):
        parser.error(f"--out {args.out}: guests can write only below {ROOT}")
    return args


def chosen(only: str | None, parts: dict[str, Part], sections: list[Section]) -> list[Part]:
    """The parts that these sections, seeds and parts need, in the order of the file."""
    if only is None:
        return list(parts.values())
    names: set[str] = set()
    for word in only.split(","):
        of_sections = {
            part for section in sections if section.name == word or section.name[:3] == word for part in section.parts
        }
        known = word in parts or any(word in (section.name, section.name[:3]) for section in sections)
        if not known:
            raise ValueError(f"--only {word}: there is no such section, seed or part; see --list")
        names |= of_sections | ({word} & parts.keys())
    return [part for name, part in parts.items() if name in names]


def listed(parts: dict[str, Part], sections: list[Section], stores: list[Store]) -> str:
    lines = []
    for section in sections:
        lines.append(f"{section.name:<14} {section.kind:<9} {', '.join(section.parts):<24} {section.seed['title']}")
    lines.append("")
    for part in parts.values():
        done = [store.kernel for store in stores if store.is_done(part)]
        state = f"measured on {', '.join(done)}" if done else "not measured"
        lines.append(f"{part.name:<14} {part.minutes:>4} min: {part.about}; {state}")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    args = arguments(words)
    parts, sections = load_parts(), load_sections()
    kernels = args.kernel or ("6.1,6.12" if args.published else "6.12")
    stores = [Store(PUBLISHED if args.published else args.out.resolve(), kernel) for kernel in kernels.split(",")]
    if args.list:
        print(listed(parts, sections, stores))
        return 0
    try:
        wanted = chosen(args.only, parts, sections)
    except ValueError as error:
        print(f"bench/run study: {error}", file=sys.stderr)
        return 2

    def say(line: str) -> None:
        print(line, flush=True)

    status = 0
    try:
        for store in stores if not (args.report or args.published) else ():
            todo = missing(wanted, store, args.again)
            minutes = sum(part.minutes for part in todo)
            say(f"Linux {store.kernel}: {len(todo)} parts to run, about {minutes} minutes on two cores")
            for part in todo:
                if not run_part(part, store, READERS[part.reads], say):
                    status = 1
    except KeyboardInterrupt:
        say(f"interrupted; the same command{' without --again' if args.again else ''} goes on")
        status = 130
    record = report.write(args.out, sections, stores, list(parts))
    for n, store in enumerate(stores):
        tally = Counter(section["on"][n]["verdict"] for section in record["sections"])
        say(f"Linux {store.kernel}: " + ", ".join(f"{count} {what}" for what, count in tally.most_common()))
    say(f"Report: {args.out / 'report.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
