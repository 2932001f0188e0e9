"""Tests for a change."""

import changed
import suite
from hpmmap_guest.paths import ROOT


def item(name, *paths, tier="check"):
    return suite.Item(name, "main", 1, "0", "true", tier=tier, paths=paths)


ITEMS = [
    item("heap", "tests/heap.sh", "kernel/call/brk.*"),
    item("space", "tests/space.sh", "kernel/call/", "kernel/as/"),
    item("long", "tests/long.sh", "kernel/call/brk.*", tier="all"),
]


def names(*paths):
    return [i.name for i in changed.items_for(ITEMS, list(paths))]


def test_items_that_belong_to_a_path():
    assert names("kernel/call/brk.c") == ["heap", "space", "long"]
    assert names("kernel/as/deep/new.h") == ["space"]
    assert names("tests/heap.sh", "docs/design.md") == ["heap"]
    assert names("docs/design.md", "README.md") == []
    # Items that run only now and then are still run for their own change.
    assert [i.tier for i in changed.items_for(ITEMS, ["tests/long.sh"])] == ["newest"]


def test_what_nobody_claims_runs_everything():
    assert changed.items_for(ITEMS, ["kernel/call/brk.c", "kernel/hook.c"]) == ITEMS
    assert changed.parts_for(ITEMS, ["kernel/hook.c"]) == ["rust", "unit", "modules", "guests"]


def test_parts_of_a_check():
    assert changed.parts_for(ITEMS, ["kernel/as/map/file.c"]) == ["modules", "guests"]
    assert changed.parts_for(ITEMS, ["docs/design.md"]) == []
    assert changed.parts_for(ITEMS, ["tests/unit/test_buddy.c"]) == ["unit"]
    assert changed.parts_for(ITEMS, ["scripts/floors"]) == ["modules"]


def claims():
    heads = [*(path for where in suite.SCRIPTS for path in where.glob("*.sh")), *(ROOT / "tests/guest").glob("*.args")]
    return {head: suite._item_paths(head, head.read_text()) for head in heads}


def test_what_items_claim_is_there():
    for head, patterns in claims().items():
        for pattern in patterns:
            assert any(ROOT.glob(f"{pattern}**/*" if pattern.endswith("/") else pattern)), f"{head}: {pattern}"


def test_each_program_says_what_it_belongs_to():
    programs = [path.stem for path in (ROOT / "tests/guest").glob("sem_*.c") if path.stem != "sem_image"]
    named = {head.stem for head, patterns in claims().items() if len(patterns) > 1}
    assert named.issuperset(programs)
    assert named.issuperset(path.stem for path in suite.SCENARIOS.glob("*.sh"))


def test_every_file_of_a_floor_is_claimed():
    items = [item(head.stem, *patterns) for head, patterns in claims().items()]
    files = [
        p.relative_to(ROOT)
        for floor in ("mem", "as", "fs", "call", "task")
        for p in (ROOT / "kernel" / floor).iterdir()
    ]
    assert files
    assert changed._unclaimed(items, list(map(str, files))) == []
