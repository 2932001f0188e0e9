#!/usr/bin/env python3
"""Compares the results of outside test programs, natively and under HPMMAP.

    compare.py RECORDS PROGRAM...    RECORDS/native/PROGRAM and RECORDS/hpmmap/PROGRAM

A test that passes natively must pass under HPMMAP, unless expected.toml lists it. A test that fails
or is skipped natively does not count.
"""

import re
import sys
import tomllib
from pathlib import Path

EXPECTED = Path(__file__).with_name("expected.toml")
# Exit status of "timeout", and of programs that a signal has ended.
_ENDED = {124, *range(129, 193)}


def results(text: str) -> dict[str, tuple[str, str]]:
    """The result (pass, fail or skip) and title of each subtest; without subtests the program is one."""
    found = {}
    for line in text.splitlines():
        if match := re.match(r"\s*(not )?ok (\d+) ?(.*)", line):
            failed, key, title = match.groups()
            skipped = re.search(r"# SKIP\b", title)
            found[key] = ("skip" if skipped else "fail" if failed else "pass", title)
        elif match := re.match(r"Testing (.+?)\.\.\. *(\w*)", line):
            title, how = match.groups()
            found[title] = ({"done": "pass", "skipped": "skip"}.get(how, "fail"), title)
    ends = re.findall(r"^exit status (\d+)$", text, re.MULTILINE)
    if not ends:
        raise ValueError("the record has no end")
    status = int(ends[-1])
    if not found or status in _ENDED:
        found["end"] = ("pass" if status == 0 else "skip" if status == 4 else "fail", f"exit status {status}")
    return found


def differences(native: str, hpmmap: str) -> list[str]:
    """The tests that pass natively but not under HPMMAP."""
    ours = results(hpmmap)
    found = []
    for key, (how, title) in results(native).items():
        other, instead = ours.get(key, ("missing", title))
        if how == "pass" and other != "pass":
            name = title if key in title else f"{key}: {title}"
            found.append(name if instead == title else f"{name} -> {instead}")
    # It may have been ended from outside after the last subtest.
    if ours.get("end", ("pass", ""))[0] == "fail" and "end" not in results(native):
        found.append(ours["end"][1])
    return found


def main() -> int:
    records = Path(sys.argv[1])
    names = sys.argv[2:]
    # The directory of the records has the name of the kernel.
    expected = [
        entry
        for entry in tomllib.loads(EXPECTED.read_text())["difference"]
        if records.resolve().name.startswith(entry.get("kernels", ""))
    ]
    new = passed = known = 0
    for name in names:
        native, hpmmap = ((records / how / name).read_text(errors="replace") for how in ("native", "hpmmap"))
        passed += sum(how == "pass" for how, _ in results(native).values())
        for title in differences(native, hpmmap):
            reasons = [e["reason"] for e in expected if name in e["programs"] and re.search(e["tests"], title)]
            print(f"{name:26} {title[:90]:90} {reasons[0] if reasons else 'NEW'}")
            new += not reasons
            known += bool(reasons)
    print(
        f"{len(names)} programs, {passed} tests pass natively; under HPMMAP {known} do not as expected, {new} new ones"
    )
    if not passed:
        print("nothing was compared", file=sys.stderr)
    return 1 if new or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
