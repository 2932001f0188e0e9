"""How the items are spread over guests."""

import plan
import suite

GIB = 1 << 30


def item(name, last=False):
    return suite.Item(name, "main", 1, "0", "true", last=last)


def test_guests_follow_cpus_and_memory():
    assert [plan.at_once(cpus, 1000 * GIB) for cpus in (1, 2, 3, 4, 8, 16, 64)] == [1, 2, 2, 2, 4, 8, 32]
    assert [plan.at_once(16, memory * GIB) for memory in (1, 15, 32, 64)] == [1, 2, 4, 8]


def test_a_guest_is_split_where_others_would_wait_for_it():
    times = {f"i{n}": 60 for n in range(10)} | {"long": 300, "end": 20}
    items = [*map(item, list(times)[:-1]), item("end", last=True)]

    def names(total, slots):
        return [[i.name for i in part] for part in plan.parts(items, lambda i: times[i.name], total, slots)]

    # On two CPUs this guest is as long as the others together.
    assert names(4500, 2) == [list(times)]
    # 900 of 1800 seconds, 8 at once: four guests. The longest item is alone in its own.
    found = names(1800, 8)
    assert len(found) == 4
    assert ["long", "end"] in found
    assert sorted(name for part in found for name in part[:-1]) == sorted(list(times)[:-1])
    assert all(part[-1] == "end" and part == sorted(part, key=list(times).index) for part in found)


def test_little_is_not_split():
    few = [item("a"), item("b")]
    assert plan.parts(few, lambda i: 50, 100, 16) == [few]
    assert plan.parts(few, lambda i: 150, 300, 16) == [[few[0]], [few[1]]]
    assert plan.parts([], lambda i: 1, 0, 16) == [[]]


def test_what_was_measured_counts():
    seconds = plan.seconds_of({"6.12.1 a": 7.5})
    assert seconds("6.12.1", item("a")) == 7.5
    assert seconds("6.1.1", item("a")) == seconds("6.12.1", item("b")) > 0
