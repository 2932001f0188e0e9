"""Without the four invariants a process can read another one's memory; with them it cannot."""

import os
from dataclasses import replace

import pytest

from explore import explore
from memory import NEW, OLD, Memory, Rules, Scene
from scenes import DEEP, SCENES, SHARED


def search(scene, rules, *only):
    model = Memory(replace(scene, rules=rules, only=only))
    found = explore(model)
    return found, model.tell(found)


def in_order(found, *wanted):
    """Do these steps, (address space, operation, number of its step), occur in this order in a trace?"""
    labels = iter([(m, name, pc) for name, m, _, _, pc in found.labels])
    return all(step in labels for step in wanted)


PARENT, CHILD, STRANGER = range(3)


def test_before_a_stranger_writes_to_what_is_mapped_by_pointer():
    """take_back() frees a block that restore_some() has adopted and is about to map."""
    scene = Scene(("munmap", "restore", "exit", "grow unhooked", "secret"), begin=SHARED)
    found, told = search(scene, OLD, "P3", "what the stranger writes")
    assert found.violation, told
    for who in (PARENT, CHILD):
        grown = (who, "munmap", 0), (who, "grow unhooked", 0)
        freed = (who, "restore", 0), (who, "munmap", 2)
        if in_order(found, *grown, *freed, (who, "restore", 1)):
            break
    else:
        pytest.fail(told)
    assert (STRANGER, "secret", 0) in [(m, name, pc) for name, m, _, _, pc in found.labels], told


def test_before_a_child_reads_what_its_parent_writes():
    """A block leaves the child's store but stays mapped; the parent takes it for its own."""
    scene = Scene(("munmap", "restore", "fault", "grow unhooked", "secret"), begin=SHARED)
    found, told = search(scene, OLD, "P3", "the child reads by an entry")
    steps = (
        (CHILD, "munmap", 0),
        (CHILD, "grow unhooked", 0),
        (CHILD, "fault", 0),
        (CHILD, "munmap", 2),
        (PARENT, "restore", 0),
        (PARENT, "restore", 1),
    )
    assert in_order(found, *steps), told


def test_before_a_child_writes_to_its_parents_memory():
    """The same, and mprotect() makes the entry that was left writable."""
    scene = Scene(("munmap", "fault", "grow unhooked", "mprotect"), begin=SHARED)
    found, told = search(scene, OLD, "P3", "the parent reads", "what the child writes")
    assert in_order(found, (CHILD, "grow unhooked", 0), (CHILD, "munmap", 2), (CHILD, "mprotect", 0)), told


PUT_BACK = {
    "removal": ("sharing", Rules(removal="trusts")),
    "installation": ("sharing", Rules(installation="pointer")),
    "alone": ("sharing", Rules(alone="pins")),
    "alone, only users": ("viewers", Rules(alone="users")),
    "zap by the context's file": ("sharing", Rules(zap="file")),
    "order of removal": ("pins", Rules(order="users first")),
    "what munmap has left": ("pins", Rules(left="ignored")),
}


@pytest.mark.parametrize("name", PUT_BACK)
def test_each_rule_is_needed(name):
    scene, rules = PUT_BACK[name]
    found, told = search(SCENES[scene], rules, "P3")
    assert found.violation, told


def test_free_is_a_second_line():
    """No violation without the check alone. If entries are made from pointers it quarantines the block."""
    found, told = search(SCENES["sharing"], Rules(free="idle"))
    assert found.clean, told
    scene = Scene(("munmap", "restore", "exit", "grow unhooked", "secret"), begin=SHARED, blocks=1)
    found, told = search(scene, Rules(installation="pointer"), "quarantined")
    before = (PARENT, "restore", 1), (STRANGER, "secret", 0)
    assert in_order(found, *before) or in_order(found, (CHILD, "restore", 1), before[1]), told
    found, told = search(scene, Rules(installation="pointer", free="idle"), "P3", "what the stranger writes")
    assert in_order(found, *before) or in_order(found, (CHILD, "restore", 1), before[1]), told


def is_clean(scene, capsys, most=None):
    model = Memory(replace(scene, rules=NEW))
    found = explore(model, most)
    assert not found.violation, model.tell(found)
    assert found.complete or most
    with capsys.disabled():
        print(f" {found.states} states{'' if found.complete else ' of more'}", end="")


@pytest.mark.parametrize("name", SCENES)
def test_new_rules(name, capsys):
    is_clean(SCENES[name], capsys)


@pytest.mark.skipif(os.environ.get("HPMMAP_TIER") != "all", reason="half an hour, in the longer runs: HPMMAP_TIER=all")
@pytest.mark.parametrize("name", DEEP)
def test_new_rules_deep(name, capsys):
    is_clean(DEEP[name], capsys, 500_000)
