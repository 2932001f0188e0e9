"""The record of a run of scripts/check, for continuing it and for scripts/check-table."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Record:
    """A file with lines about one step of a check on one commit."""

    path: Path
    commit: str
    step: str
    resume: bool
    """Whether what has passed is left out."""

    @classmethod
    def of_check(cls) -> "Record | None":
        """The record of the check that has started this process, if any."""
        path = os.environ.get("HPMMAP_RECORD")
        if not path:
            return None
        return cls(
            Path(path), os.environ["HPMMAP_COMMIT"], os.environ["HPMMAP_STEP"], bool(os.environ["HPMMAP_RESUME"])
        )

    def passed(self) -> set[tuple[str, str]]:
        """Kernels and items whose last result on this commit was not a failure."""
        results = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            commit, step, kernel, item, result, _ = line.split("\t")
            if (commit, step) == (self.commit, self.step):
                results[kernel, item] = result
        return {key for key, result in results.items() if result != "FAILED"}

    def add(self, kernel: str, item: str, result: str, seconds: float) -> None:
        with self.path.open("a") as file:
            print(self.commit, self.step, kernel, item, result, f"{seconds:.1f}", sep="\t", file=file)
