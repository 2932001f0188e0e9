"""
The model: stores, page-table entries, pools, forks, and unhooked actions of Linux.

README.md maps each step to a function of kernel/. A step is a lock region: it is atomic. Between
two steps of an operation other operations may take steps, unless they need a lock that the
operation holds.
"""

from dataclasses import dataclass

UNBORN, FORKING, LIVES, DYING, GONE = range(5)
FREE, USED, HELD, QUARANTINED = range(4)
STATES = ("free", "in use", "held until its pins go", "quarantined")


@dataclass(frozen=True)
class Rules:
    """
    The four invariants. Each can be replaced by the rule of the code before them.

    removal: a slot that loses its block loses its entries ("zaps"), or the caller is trusted ("trusts")
    installation: an entry is made from a look-up in the store ("looks up"), or from a pointer ("pointer")
    free: references, users and stores are checked at free and at hand-out ("checked"), or only that
        the block is idle when it is freed ("idle")
    alone: references prove it ("references"), only pins count ("pins"), only users count ("users")
    zap: by the mappings of the address space ("mappings"), or by the file of its context ("file")
    order: entries are removed before the user ("entries first"), or after it ("users first")
    left: an entry below no mapping, which munmap is about to remove, is "noticed" or "ignored"
    """

    removal: str = "zaps"
    installation: str = "looks up"
    free: str = "checked"
    alone: str = "references"
    zap: str = "mappings"
    order: str = "entries first"
    left: str = "noticed"


NEW = Rules()
OLD = Rules(removal="trusts", installation="pointer", free="idle", alone="pins", left="ignored")


@dataclass(frozen=True)
class Scene:
    """
    The address spaces (people) and the possible operations.

    Each of @actors may start each operation of @names at any time and any number of times. At most
    @at_once operations of several steps run at once. @target is the target of windows, if any.
    @begin: operations that have happened before. @only: words that a violation must contain.
    """

    names: tuple
    people: tuple = ("parent", "child", "stranger")
    actors: tuple = (0, 1)
    slots: int = 1
    blocks: int = 3
    at_once: int = 2
    target: int = 0
    drafts: bool = False
    rules: Rules = NEW
    pins: tuple = ("pipe", "dma", "dma write")
    only: tuple = ()
    begin: tuple = ()


class World:
    """One state. Lists by address space (m), by slot of one (k), or by block (b; 0: none)."""

    FIELDS = (
        "life", "tag", "reads", "late", "has_pinned", "has_window",  # m
        "pin", "pin_writes", "pin_dma",  # m, and the viewer's
        "mapped", "store", "shared", "entry", "writes", "dying", "dying_writes",  # k
        "window", "window_writes",  # slot of the target
        "users", "state", "text", "foreign_pin", "behind",  # b
    )  # fmt: skip
    __slots__ = (*FIELDS, "running")


@dataclass(frozen=True)
class Step:
    """A lock region: the locks it needs, and those it holds until the next step."""

    do: object
    needs: str = ""
    keeps: str = ""


@dataclass
class Op:
    """An operation: its steps, and its possible arguments."""

    steps: list
    args: tuple = (0,)
    whose: str = "life"
    slotted: bool = True
    remembers: bool = False  # its argument is one of the scene's pins


class Memory:
    """The model of a scene, for explore()."""

    def __init__(self, scene):
        self.scene, self.rules = scene, scene.rules
        self.m, self.s, self.b = len(scene.people), scene.slots, scene.blocks + 1
        sizes = [self.m] * 6 + [self.m + 1] * 3 + [self.m * self.s] * 7 + [self.s] * 2 + [self.b] * 5
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        self.layout = [(name, end - size, end) for name, size, end in zip(World.FIELDS, sizes, ends, strict=True)]
        self.ops = {name: OPS[name] for name in scene.names}
        self.whose = {"life": scene.actors, "pool": (self.m - 1,), "viewer": (self.m,)}

    # States.

    def pack(self, w):
        return b"".join([bytes(getattr(w, name)) for name in World.FIELDS]), tuple(sorted(w.running))

    def unpack(self, state):
        w, flat = World(), state[0]
        for name, start, end in self.layout:
            setattr(w, name, list(flat[start:end]))
        w.running = list(state[1])
        return w

    def first(self):
        """The parent has its slots mapped, without memory. All blocks are in the pool."""
        w = World()
        for name, start, end in self.layout:
            setattr(w, name, [0] * (end - start))
        w.running = []
        for m, name in enumerate(self.scene.people):
            w.life[m] = UNBORN if name.startswith("child") else LIVES
            w.tag[m] = w.reads[m] = 0 if w.life[m] == UNBORN else 1 << m
        w.mapped[: self.s] = [1] * self.s
        for m, name, s, how in self.scene.begin:
            found = ()
            for step in OPS[name].steps:
                found = step.do(self, w, m, s, how, found) or ()
                self.write_all(w)
                if found is DONE:
                    break
        return self.pack(w)

    def steps(self, state):
        """All possible next steps: pairs of a label and a state."""
        running = state[1]
        kept = [(r[1], self.ops[r[0]].steps[r[4] - 1].keeps) for r in running]
        w = None
        for i, r in enumerate(running):
            step = self.ops[r[0]].steps[r[4]]
            if r not in running[:i] and self.may(step, r[1], kept[:i] + kept[i + 1 :]):
                w = yield from self.do(w or self.unpack(state), state, step, r)
        for name, op in self.ops.items():
            step = op.steps[0]
            if len(op.steps) > 1 and len(running) >= self.scene.at_once:
                continue
            for m in self.whose[op.whose]:
                if (op.whose == "life" and state[0][m] != LIVES) or not self.may(step, m, kept):
                    continue
                for s in range(self.s) if op.slotted else (0,):
                    for arg in self.scene.pins if op.remembers else op.args:
                        w = yield from self.do(w or self.unpack(state), state, step, (name, m, s, arg, 0, ()))

    @staticmethod
    def may(step, m, others):
        """Does no other operation hold a lock that a step needs?"""
        needs = step.needs
        for who, keeps in others:
            if who != m:
                continue
            if "alone" in needs:
                return False
            if ("ops" in needs and "ops" in keeps) or ("lock" in needs and "lock" in keeps):
                return False
            if ("write" in needs and ("read" in keeps or "write" in keeps)) or ("read" in needs and "write" in keeps):
                return False
        return True

    def do(self, w, state, step, r):
        """One step. Returns the world if nothing has changed in it."""
        name, m, s, arg, pc, found = r
        if pc:
            w.running.remove(r)
        found = step.do(self, w, m, s, arg, found)
        if found is False:
            return w
        if found is not DONE and pc + 1 < len(self.ops[name].steps):
            w.running.append((name, m, s, arg if self.ops[name].remembers else 0, pc + 1, found or ()))
        self.write_all(w)
        reached = self.pack(w)
        if reached != state:
            yield r[:5], reached
        return None

    def at(self, m, s):
        return m * self.s + s

    # References.

    def refs(self, w, b):
        """As folio_ref_count(): the module's, one for each entry and pin, and temporary ones."""
        n = 1 + self.entries(w, b) + w.pin.count(b)
        for r in w.running:
            if r[4] == 1 and r[0] in HOLDS_PAGE and r[5] and r[5][0] == b and r[5][-1]:
                n += 1
        return n

    def entries(self, w, b):
        """As folio_mapcount(): those of all address spaces."""
        return w.entry.count(b) + w.dying.count(b) + w.window.count(b)

    def own_entries(self, w, m, b):
        mine = slice(m * self.s, (m + 1) * self.s)
        return w.entry[mine].count(b) + w.dying[mine].count(b)

    def is_pinned(self, w, b):
        return self.refs(w, b) > 1 + self.entries(w, b)

    def dma_pins(self, w, b):
        return sum(dma for pinned, dma in zip(w.pin, w.pin_dma, strict=True) if pinned == b)

    # Pool.

    def in_a_store(self, w, b):
        return b in w.store or b in w.behind

    def hand_out(self, w):
        """A block of the pool, or 0."""
        for b in range(1, self.b):
            if w.state[b] != FREE:
                continue
            if self.rules.free == "checked" and (self.refs(w, b) > 1 or self.in_a_store(w, b)):
                w.state[b] = QUARANTINED
                continue
            w.state[b], w.users[b], w.text[b] = USED, 1, 0
            return b
        return 0

    def free(self, w, b):
        bad = self.refs(w, b) > 1 or w.users[b] or self.in_a_store(w, b)
        w.state[b] = QUARANTINED if bad and self.rules.free == "checked" else FREE
        w.foreign_pin[b] = w.text[b] = 0

    def release(self, w, m, b):
        """A block has left the store of @m."""
        if w.behind[b]:
            behind, w.behind[b] = w.behind[b], 0
            self.release(w, m, behind)
        if w.users[b] > 1 and self.is_pinned(w, b):
            dma_only = self.refs(w, b) == 1 + self.entries(w, b) + self.dma_pins(w, b)
            if w.has_window[m] or w.has_pinned[m] or not dma_only:
                w.foreign_pin[b] = 1
        w.users[b] -= 1
        if w.users[b]:
            return
        if self.refs(w, b) == 1:
            self.free(w, b)
        else:
            w.state[b] = HELD

    # Store and page tables.

    def window_zap(self, w, m, s):
        if m == self.scene.target:
            w.window[s] = w.window_writes[s] = 0

    def zap(self, w, m, s):
        """Remove all entries of a slot, and of the windows onto it."""
        self.window_zap(w, m, s)
        for other in range(self.m):
            mine = other == m
            if self.rules.zap == "file":
                # The mappings of a child belong to its parent's file until it gets its own.
                mine = (other == m and not w.late[m]) or w.late[other] == m + 1
            k = self.at(other, s)
            if mine:
                w.entry[k] = w.writes[k] = 0
            if mine and self.rules.zap == "file":
                w.dying[k] = w.dying_writes[k] = 0

    def slot_set(self, w, m, s, b, shared=0):
        """The only function that changes or removes the block of a slot."""
        k = self.at(m, s)
        old = w.store[k]
        if old and old != b and self.rules.removal == "zaps" and self.refs(w, old) > 1:
            self.zap(w, m, s)
        if old and w.dying[k] == old and self.rules.left == "noticed":
            # That entry could still be pinned when the block belongs to another address space alone.
            w.foreign_pin[old] = 1
        w.store[k], w.shared[k] = b, shared

    def install(self, w, m, s, b):
        """The entry of a slot, for a block that is in the store at this moment."""
        k = self.at(m, s)
        if not b or not w.mapped[k]:
            return
        may_write = not w.shared[k] or bool(w.behind[b])
        if not w.entry[k]:
            w.entry[k], w.writes[k] = b, may_write
        elif w.entry[k] == b and may_write:
            w.writes[k] = 1

    def install_pointer(self, w, m, s, b):
        """The same for a block that was found before, even if the slot has another one now."""
        k = self.at(m, s)
        if w.mapped[k] and w.entry[k] in (0, b):
            w.entry[k], w.writes[k] = b, 1

    def pointer(self, b, ref):
        """The knowledge of a block after the lock was dropped; @ref: with a reference."""
        return (b, ref) if self.rules.installation == "pointer" else ()

    def may_adopt(self, w, m, b):
        if w.users[b] > 1:
            return False
        if self.rules.alone == "users":
            return True
        own_pins = w.has_pinned[m] and not w.foreign_pin[b]
        if self.rules.alone == "pins":
            return not self.is_pinned(w, b) or bool(own_pins and self.dma_pins(w, b))
        more = self.refs(w, b) - 1 - self.own_entries(w, m, b)
        return not more or bool(own_pins and more == self.dma_pins(w, b))

    def own(self, w, m, s):
        """Make the block of a slot writable by its owner; False without memory."""
        k = self.at(m, s)
        b = w.store[k]
        if not w.shared[k]:
            return True
        if w.behind[b]:
            return self.settle(w, m, s)
        if self.may_adopt(w, m, b):
            w.shared[k] = w.foreign_pin[b] = 0
            return True
        copy = self.hand_out(w)
        if not copy:
            return False
        self.zap(w, m, s)
        w.text[copy] = w.text[b]
        self.slot_set(w, m, s, copy)
        self.release(w, m, b)
        return True

    def settle(self, w, m, s):
        """A draft goes back to the block behind it, or completes its copy."""
        k = self.at(m, s)
        draft = w.store[k]
        behind = w.behind[draft]
        if self.may_adopt(w, m, behind):
            self.zap(w, m, s)
            if not self.is_pinned(w, draft):
                w.text[behind], w.foreign_pin[behind], w.behind[draft] = w.text[draft], 0, 0
                self.slot_set(w, m, s, behind)
                self.release(w, m, draft)
                return True
        w.behind[draft] = w.shared[k] = 0
        self.release(w, m, behind)
        return True

    # Properties.

    def write_all(self, w):
        """An address space that may write does so at once: the worst case."""
        for m, _, b, writes in self.accesses(w):
            if writes:
                w.text[b] = w.tag[m]

    def accesses(self, w):
        """(address space, way, block, may it write). A viewer may know what its target knows."""
        target = self.scene.target
        for k, b in enumerate(w.entry):
            if b:
                yield k // self.s, "an entry", b, w.writes[k]
            if w.dying[k]:
                yield k // self.s, "an entry that goes", w.dying[k], w.dying_writes[k]
        for s, b in enumerate(w.window):
            if b:
                yield target, "a window", b, w.window_writes[s]
        for m, b in enumerate(w.pin):
            if b:
                yield m if m < self.m else target, "a pin", b, w.pin_writes[m]

    def broken(self, state):
        w = self.unpack(state)
        for said in self.violations(w):
            if all(words in said for words in self.scene.only):
                return said
        return ""

    def violations(self, w):
        people = self.scene.people
        access = list(self.accesses(w))
        for m, how, b, _ in access:
            if w.text[b] & ~w.reads[m]:
                yield f"P3: the {people[m]} reads by {how} in block {b} what it may not know"
            for other, _, same, writes in access:
                if same == b and writes and w.tag[other] & ~w.reads[m]:
                    yield f"P3: the {people[m]} reads by {how} in block {b} what the {people[other]} writes"
        for k, b in enumerate(w.entry):
            m, s = divmod(k, self.s)
            if b and w.store[k] != b:
                yield f"P1: the {people[m]} maps block {b} at slot {s}, which is not in its store there"
            if b and w.writes[k] and not self.may_be_written(w, m, k, b):
                yield f"P2: the {people[m]} may write at slot {s} to block {b}, which is shared"
        for s, b in enumerate(w.window):
            k = self.at(self.scene.target, s)
            if b and w.store[k] != b:
                yield f"P1: a window shows block {b} at slot {s}, which is not in its target's store there"
            if b and w.window_writes[s] and not self.may_be_written(w, self.scene.target, k, b):
                yield f"P2: a window may write at slot {s} to block {b}, which is shared"
        for b in range(1, self.b):
            if w.state[b] == FREE and self.refs(w, b) > 1:
                yield f"P4: block {b} is in the pool and it has a reference"
            if w.state[b] == QUARANTINED:
                yield f"P4: block {b} is quarantined"
            has = w.store.count(b) + w.behind.count(b)
            if has != w.users[b] and FORKING not in w.life and not self.between(w):
                yield f"P5: block {b} is in {has} stores and has {w.users[b]} users"
        if not any(life in (FORKING, LIVES, DYING) for life in w.life) and not any(w.pin) and not w.running:
            for b in range(1, self.b):
                if w.state[b] not in (FREE, HELD):
                    yield f"P5: all processes are gone, and block {b} has not come back"

    def between(self, w):
        """Has a block left a store that is still its user for a moment?"""
        return any(self.ops[r[0]].steps[r[4]].do is give_up for r in w.running)

    def may_be_written(self, w, m, k, b):
        others = [o for o in range(self.m) if o != m]
        return (not w.shared[k] or bool(w.behind[b])) and not any(
            b in seen[o * self.s : (o + 1) * self.s] for o in others for seen in (w.entry, w.dying, w.store)
        )

    # Words.

    def tell(self, found):
        """A trace in plain words: each step, and the changes it made."""
        lines = [found.violation]
        for n, label in enumerate(found.labels):
            name, m, s, arg, pc = label
            what = self.ops[name].steps[pc].do.__doc__.strip().splitlines()[0].rstrip(".")
            where = f" slot {s}," if self.ops[name].slotted else ""
            option = f" {arg}," if isinstance(arg, str) else ""
            lines.append(f"{n + 1:3}. {(*self.scene.people, 'viewer')[m]}, {name},{where}{option} {what}")
            before, after = self.unpack(found.worlds[n]), self.unpack(found.worlds[n + 1])
            lines += [f"       {line}" for line in self.changes(before, after)]
        return "\n".join(lines)

    def changes(self, before, after):
        people = (*self.scene.people, "viewer")
        for k in range(self.m * self.s):
            m, s = divmod(k, self.s)
            where = f"{people[m]}, slot {s}:"
            if before.mapped[k] != after.mapped[k]:
                yield f"{where} {'a' if after.mapped[k] else 'no'} mapping"
            if (before.store[k], before.shared[k]) != (after.store[k], after.shared[k]):
                block = f"block {after.store[k]}" if after.store[k] else "nothing"
                yield f"{where} the store has {block}{', shared' if after.shared[k] else ''}"
            if (before.entry[k], before.writes[k]) != (after.entry[k], after.writes[k]):
                can = "writable" if after.writes[k] else "read-only"
                yield f"{where} " + (f"an entry for block {after.entry[k]}, {can}" if after.entry[k] else "no entry")
        for s in range(self.s):
            if (before.window[s], before.window_writes[s]) != (after.window[s], after.window_writes[s]):
                can = "writable" if after.window_writes[s] else "read-only"
                yield f"window, slot {s}: " + (f"block {after.window[s]}, {can}" if after.window[s] else "no entry")
            if before.dying[k] and not after.dying[k]:
                yield f"{where} the entry that was left is gone"
        for m in range(self.m + 1):
            if before.pin[m] != after.pin[m]:
                yield f"{people[m]}: " + (f"a pin of block {after.pin[m]}" if after.pin[m] else "no pin")
        for b in range(1, self.b):
            if before.state[b] != after.state[b]:
                yield f"block {b}: {STATES[after.state[b]]}"
            elif before.users[b] != after.users[b]:
                yield f"block {b}: users {after.users[b]}"


DONE = object()
HOLDS_PAGE = ("fault", "gup", "viewer's gup")


# Operations of the module. Each step: (model, world, address space, slot, argument, found before);
# returns what it has found, DONE, or False if it is impossible.


def fault(x, w, m, s, how, _):
    """the fault looks into the store."""
    k = x.at(m, s)
    b = w.store[k]
    if not w.mapped[k] or (w.entry[k] and (w.writes[k] or how == "read")):
        return False
    if w.shared[k]:
        if how == "read" and w.users[b] > 1 and not w.behind[b]:
            x.install(w, m, s, b)
            return DONE
        if x.scene.drafts and w.behind[b] and w.users[w.behind[b]] > 1:
            x.install(w, m, s, b)
            return DONE
        if x.scene.drafts and how == "write" and w.users[b] > 1 and not w.behind[b]:
            return begin_draft(x, w, m, s, b)
        if not x.own(w, m, s):
            return DONE
        # A block that has become the context's own gives no page to the core: no reference.
        return x.pointer(w.store[k], 0)
    if not b:
        b = x.hand_out(w)
        if not b:
            return DONE
        x.slot_set(w, m, s, b)
    if x.rules.installation == "looks up":
        x.install(w, m, s, b)
        return DONE
    return x.pointer(b, 1)


def begin_draft(x, w, m, s, b):
    draft = x.hand_out(w)
    if not draft:
        return DONE
    x.zap(w, m, s)
    w.behind[draft] = b
    x.slot_set(w, m, s, draft, shared=1)
    x.install(w, m, s, draft)
    return DONE


def map_found(x, w, m, s, how, found):
    """the block is mapped."""
    if x.rules.installation == "looks up":
        x.install(w, m, s, w.store[x.at(m, s)])
    else:
        x.install_pointer(w, m, s, found[0])


def linux_detaches(x, w, m, s, *_):
    """Linux removes the mapping, and lets others read mappings before the entries go."""
    k = x.at(m, s)
    if not w.mapped[k]:
        return False
    w.mapped[k] = 0
    w.dying[k], w.dying_writes[k] = w.entry[k], w.writes[k]
    w.entry[k] = w.writes[k] = 0


def linux_zaps(x, w, m, s, *_):
    """Linux removes the entries of what it has unmapped."""
    k = x.at(m, s)
    w.dying[k] = w.dying_writes[k] = 0


def take_back(x, w, m, s, *_):
    """take_back() removes the slot's block from the store, whatever is mapped."""
    b = w.store[x.at(m, s)]
    x.window_zap(w, m, s)
    if not b:
        return DONE
    if x.rules.order == "users first":
        x.release(w, m, b)
    else:
        x.slot_set(w, m, s, 0)
    return (b,)


def give_up(x, w, m, s, _, found):
    """take_back() gives the block up."""
    if x.rules.order == "users first":
        x.slot_set(w, m, s, 0)
    else:
        x.release(w, m, *found)


def adopt_some(x, w, m, *_):
    """blocks that are shared no more become its own."""
    found = ()
    for s in range(x.s):
        k = x.at(m, s)
        b = w.store[k]
        if not w.shared[k]:
            continue
        if w.behind[b]:
            if w.users[w.behind[b]] > 1:
                continue
            x.settle(w, m, s)
            found += ((s, *x.pointer(w.store[k], 0)),)
        elif x.may_adopt(w, m, b):
            w.shared[k] = w.foreign_pin[b] = 0
            found += ((s, *x.pointer(b, 0)),)
    return found or False


def map_adopted(x, w, m, _, __, found):
    """what was adopted is mapped writable."""
    for s, *pointer in found:
        map_found(x, w, m, s, "write", pointer)


def fork_protects(x, w, m, *_):
    """fork takes the right to write away."""
    child = next((c for c in range(x.m) if w.life[c] == UNBORN), None)
    if child is None:
        return False
    w.life[child] = FORKING
    for s in range(x.s):
        w.writes[x.at(m, s)] = 0
        x.window_zap(w, m, s)
    return (child,)


def fork_shares(x, w, m, _, __, found):
    """fork shares the blocks; what is pinned is copied."""
    (child,) = found
    for s in range(x.s):
        k, c = x.at(m, s), x.at(child, s)
        b = w.store[k]
        w.mapped[c] = w.mapped[k]
        if not b or not w.mapped[k]:
            continue
        if w.behind[b]:
            x.settle(w, m, s)
            b = w.store[k]
            w.writes[k] = 0
        if not x.is_pinned(w, b):
            w.users[b] += 1
            w.store[c], w.shared[c], w.shared[k] = b, 1, 1
            continue
        if not w.shared[k] and w.entry[k] == b:
            w.writes[k] = 1
        copy = x.hand_out(w)
        if copy:
            w.text[copy] = w.text[b]
            w.store[c] = copy
    w.life[child] = LIVES
    w.late[child] = m + 1 if x.rules.zap == "file" else 0
    # From here on neither may see what the other one writes.
    fresh = max(w.tag) << 1
    w.reads[child] = w.reads[m] | fresh << 1
    w.reads[m] |= fresh
    w.tag[m], w.tag[child] = fresh, fresh << 1


def own_file(x, w, m, *_):
    """the child's mappings get its own file."""
    w.late[m] = 0


def exit_unmaps(x, w, m, *_):
    """Linux takes the address space apart."""
    w.life[m] = DYING
    for s in range(x.s):
        k = x.at(m, s)
        w.mapped[k] = w.entry[k] = w.writes[k] = 0
        x.window_zap(w, m, s)


def exit_releases(x, w, m, *_):
    """its blocks are given up."""
    for s in range(x.s):
        b = w.store[x.at(m, s)]
        if b:
            x.slot_set(w, m, s, 0)
            x.release(w, m, b)
    w.life[m] = GONE


def look_for_pins(x, w, *_):
    """blocks whose pins have gone go to the pool."""
    any_freed = False
    for b in range(1, x.b):
        if w.state[b] == HELD and x.refs(w, b) == 1:
            x.free(w, b)
            any_freed = True
    return None if any_freed else False


def move(x, w, m, s, *_):
    """the block goes to another slot."""
    to = (s + 1) % x.s
    k, t = x.at(m, s), x.at(m, to)
    b, dst, shared = w.store[k], w.store[t], w.shared[k]
    if not b or not w.mapped[t]:
        return False
    x.slot_set(w, m, to, b, shared)
    x.slot_set(w, m, s, 0)
    if dst:
        x.release(w, m, dst)


def refresh(x, w, m, s, *_):
    """another block takes the place of one that is not shared."""
    k = x.at(m, s)
    b = w.store[k]
    if not b or w.shared[k]:
        return False
    x.zap(w, m, s)
    fresh = x.hand_out(w) if x.refs(w, b) == 1 else 0
    if not fresh:
        return DONE
    x.slot_set(w, m, s, fresh)
    x.release(w, m, b)


def view(x, w, m, s, how, _):
    """a window's fault maps what its target has."""
    k = x.at(m, s)
    b = w.store[k]
    if m != x.scene.target or not w.mapped[k]:
        return False
    w.has_window[m] = 1
    if b and how == "read" and w.shared[k] and not w.behind[b]:
        if not w.window[s]:
            w.window[s], w.window_writes[s] = b, 0
        return DONE
    was = w.shared[k]
    if not b:
        b = x.hand_out(w)
        if not b:
            return DONE
        x.slot_set(w, m, s, b)
    elif not x.own(w, m, s):
        return DONE
    b = w.store[k]
    w.window[s], w.window_writes[s] = b, 1
    return x.pointer(b, 0) if was else DONE


# Unhooked actions of Linux, at any time: by int 0x80, or with the hook left out.


def grow(x, w, m, s, *_):
    """a mapping beside the slot grows over it, and no hook sees it."""
    k = x.at(m, s)
    if w.mapped[k]:
        return False
    w.mapped[k] = 1


def protect(x, w, m, *_):
    """mprotect(READ) and mprotect(READ|WRITE): all entries that are left are writable."""
    for s in range(x.s):
        k = x.at(m, s)
        x.window_zap(w, m, s)
        if w.shared[k]:
            x.zap(w, m, s)
        elif w.entry[k]:
            w.writes[k] = 1


def walk(x, w, m, s):
    """The result of a lockless page-table walk: a block, and whether it is writable."""
    if m == x.m:
        return w.window[s], w.window_writes[s]
    k = x.at(m, s)
    return (w.entry[k], w.writes[k]) if w.entry[k] else (w.dying[k], w.dying_writes[k])


def gup_takes(x, w, m, s, how, _):
    """a lockless page-table walk takes a reference."""
    b, writes = walk(x, w, m, s)
    if w.pin[m] or not b or ("write" in how and not writes):
        return False
    if m < x.m:
        w.has_pinned[m] |= "dma" in how
    return b, writes, 1


def gup_looks_again(x, w, m, s, how, found):
    """the walk keeps its reference if the entry is as it was."""
    if walk(x, w, m, s) == found[:2]:
        w.pin[m], w.pin_writes[m], w.pin_dma[m] = found[0], "write" in how, "dma" in how


def unpin(x, w, m, *_):
    """a pin goes."""
    if not w.pin[m]:
        return False
    w.pin[m] = w.pin_writes[m] = w.pin_dma[m] = 0


# The stranger, in short.


def stranger_takes(x, w, m, s, *_):
    """a process of another user gets a block and writes a secret to it."""
    k = x.at(m, s)
    if w.store[k] or w.life[m] != LIVES:
        return False
    b = x.hand_out(w)
    if not b:
        return DONE
    w.store[k] = w.entry[k] = b
    w.mapped[k] = w.writes[k] = 1


def stranger_ends(x, w, m, s, *_):
    """the other user's process ends."""
    if w.life[m] != LIVES:
        return False
    exit_unmaps(x, w, m, s)
    exit_releases(x, w, m, s)


WAYS = ("read", "write")

TAKE_BACK = (Step(take_back, "read lock", "ops read lock"), Step(give_up))

OPS = {
    "fault": Op([Step(fault, "read lock", "read"), Step(map_found, "lock")], WAYS),
    "munmap": Op([Step(linux_detaches, "ops write", "ops read"), Step(linux_zaps, "", "ops"), *TAKE_BACK]),
    "restore": Op([Step(adopt_some, "read lock", "read"), Step(map_adopted, "lock")], slotted=False),
    "fork": Op([Step(fork_protects, "ops write lock", "ops write lock"), Step(fork_shares)], slotted=False),
    "own file": Op([Step(own_file, "ops write")], slotted=False),
    "exit": Op([Step(exit_unmaps, "alone"), Step(exit_releases)], slotted=False),
    "poll": Op([Step(look_for_pins)], whose="pool", slotted=False),
    "mremap": Op(
        [
            Step(move, "ops read lock", "ops"),
            Step(linux_detaches, "write", "ops read"),
            Step(linux_zaps, "", "ops"),
            *TAKE_BACK,
        ]
    ),
    "discard": Op([Step(refresh, "ops read lock")]),
    "window": Op([Step(view, "read lock", "read"), Step(map_found, "lock")], WAYS),
    "grow unhooked": Op([Step(grow, "write")]),
    "munmap unhooked": Op([Step(linux_detaches, "write", "read"), Step(linux_zaps)]),
    "mprotect": Op([Step(protect, "write")], slotted=False),
    "gup": Op([Step(gup_takes), Step(gup_looks_again)], remembers=True),
    "unpin": Op([Step(unpin)], slotted=False),
    "viewer's gup": Op([Step(gup_takes), Step(gup_looks_again)], remembers=True, whose="viewer"),
    "viewer's unpin": Op([Step(unpin)], whose="viewer", slotted=False),
    "secret": Op([Step(stranger_takes)], whose="pool"),
    "stranger's exit": Op([Step(stranger_ends)], whose="pool", slotted=False),
}
