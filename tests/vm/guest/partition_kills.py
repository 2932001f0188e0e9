"""Kill the commands and jobs of a partition at random moments: partition_kills.py ROUNDS SEED BEFORE.

After each round the host is as BEFORE, a file of host_state.py, has it.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from host_state import differences, state

CREATE = ["hpmmap", "partition", "create", "killed", "--cpus", "2-3"]
DELETE = ["hpmmap", "partition", "delete", "killed", "--kill"]
RECORD = Path("/run/hpmmap/partitions/killed")


def run(command: list[str]) -> float:
    """Run it to its end, which is success; how long it took."""
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def killed(command: list[str], after: float) -> str:
    """Kill it after a while. How it ended."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(after)
        process.kill()
        return "killed" if process.wait() < 0 else "done"


def main() -> int:
    """All rounds."""
    rounds, seed = int(sys.argv[1]), int(sys.argv[2])
    before = json.loads(Path(sys.argv[3]).read_text())
    choose = random.Random(seed)
    takes = run(CREATE)
    undoing = run(DELETE)
    print(f"create takes {takes:.2f} s, delete {undoing:.2f} s; seed {seed}")
    phases = {}
    for number in range(rounds):
        kind = ("create", "delete", "job", "both")[number % 4]
        if kind in ("create", "both"):
            ended = killed(CREATE, choose.uniform(0.0, takes * 1.1))
        else:
            run(CREATE)
            ended = "done"
        if kind == "job":
            job = ["hpmmap", "run", "--partition", "killed", "--", "sleep", "1000"]
            ended = killed(job, choose.uniform(0.0, takes))
        if kind in ("delete", "both"):
            ended += killed(DELETE, choose.uniform(0.0, undoing * 1.1))
        phase = json.loads(RECORD.read_text())["phase"] if RECORD.exists() else "none"
        phases[phase] = phases.get(phase, 0) + 1
        # The next command undoes it, be it one that makes another partition. Without a record, one
        # that was half written may be left.
        if phase == "none" or (choose.random() < 0.5 and phase in ("making", "deleting")):
            run(["hpmmap", "partition", "create", "next", "--cpus", "1"])
            run(["hpmmap", "partition", "delete", "next"])
        if RECORD.exists():
            run(DELETE)
        found = differences(before, state())
        if found:
            print(f"FAIL: round {number} ({kind}, {ended}, {phase}) leaves:", *found, sep="\n", file=sys.stderr)
            return 1
    print(f"{rounds} rounds; the phases that were found: {phases}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
