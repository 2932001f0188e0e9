"""The choice of items for a run."""

import pytest

import suite


def test_a_tier_needs_a_reason():
    assert suite._item_tier("x", "#!/bin/bash\n# tier: newest  it says the same on all\n") == "newest"
    assert suite._item_tier("x", "#!/bin/bash\n") == "check"
    for line in ("# tier: all", "# tier: nightly  it takes long", "# tier:"):
        with pytest.raises(ValueError, match="x: '# tier:"):
            suite._item_tier("x", f"{line}\n")


def test_a_longer_run_leaves_nothing_out():
    def item(tier):
        return suite.Item("x", "main", 1, "0", "true", tier=tier)

    assert [suite.runs_in(item(tier), "check", True) for tier in ("check", "newest", "all")] == [True, True, False]
    assert [suite.runs_in(item(tier), "check", False) for tier in ("check", "newest", "all")] == [True, False, False]
    for newest in (True, False):
        assert all(suite.runs_in(item(tier), "all", newest) for tier in ("check", "newest", "all"))


def test_pools_grow_in_a_guest():
    pools = {"a": "1G", "b": "512M", "c": "0", "d": "512M", "end": "0"}
    items = [suite.Item(name, "main", 1, pool, "true", last=name == "end") for name, pool in pools.items()]
    assert [item.name for item in suite.in_order(items)] == ["c", "b", "d", "a", "end"]


def test_the_run_is_one_there_is(monkeypatch):
    monkeypatch.delenv("HPMMAP_TIER", raising=False)
    assert suite.selected_tier() == "check"
    monkeypatch.setenv("HPMMAP_TIER", "nightly")
    with pytest.raises(ValueError, match="there are: check, all, parallel"):
        suite.selected_tier()
