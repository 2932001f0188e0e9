"""The searched scenes: address spaces, their operations, and how many at once."""

from memory import NEW, OLD, Rules, Scene

# The parent has written to its slot and forked. Parent and child share the block; neither may write to it.
SHARED = ((0, "fault", 0, "write"), (0, "fork", 0, 0))

CALLS = ("fault", "munmap", "restore", "exit", "poll")
UNHOOKED = ("grow unhooked", "munmap unhooked", "mprotect")
STRANGER = ("secret", "stranger's exit")

# Searched by every run of the tests: all states are reached.
SCENES = {
    "sharing": Scene((*CALLS, *UNHOOKED, *STRANGER), begin=SHARED, blocks=2),
    "drafts": Scene((*CALLS, *UNHOOKED, "secret"), begin=SHARED, drafts=True),
    "forks": Scene(("fault", "munmap", "restore", "fork", "gup", "unpin", "mprotect"), blocks=2),
    "windows": Scene((*CALLS, "grow unhooked", "munmap unhooked", "secret", "window"), begin=SHARED, blocks=2),
    "pins": Scene(
        ("fault", "munmap", "restore", "grow unhooked", "munmap unhooked", "gup"),
        begin=SHARED,
        blocks=2,
        pins=("dma",),
    ),
    "viewers": Scene(
        ("fault", "munmap", "restore", "exit", "poll", "window", "viewer's gup", "viewer's unpin"),
        begin=SHARED,
        blocks=2,
    ),
    "moves": Scene(
        ("fault", "munmap", "restore", "mremap", "discard", "grow unhooked"), begin=SHARED, slots=2, blocks=2
    ),
}

# The same with more of each, for a longer run.
DEEP = {
    "all": Scene((*CALLS, *UNHOOKED, *STRANGER, "fork"), drafts=True),
    "three at once": Scene((*CALLS, *UNHOOKED, "secret"), begin=SHARED, blocks=2, at_once=3),
    "windows": Scene((*CALLS, *UNHOOKED, *STRANGER, "fork", "window"), drafts=True),
    "windows onto a child": Scene((*CALLS, *UNHOOKED, "secret", "window"), begin=SHARED, target=1),
    "pins": Scene((*CALLS, *UNHOOKED, "secret", "gup", "unpin"), begin=SHARED),
    "viewers": Scene((*CALLS, *UNHOOKED, "secret", "window", "viewer's gup", "viewer's unpin"), begin=SHARED),
    "two children": Scene(
        (*CALLS, *UNHOOKED, "fork"),
        people=("parent", "child", "child of either"),
        actors=(0, 1, 2),
        begin=SHARED,
        blocks=2,
    ),
    "moves": Scene((*CALLS, *UNHOOKED, "secret", "mremap", "discard"), begin=SHARED, slots=2),
}

__all__ = ["DEEP", "NEW", "OLD", "SCENES", "SHARED", "Rules"]
