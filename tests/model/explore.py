"""Breadth-first search of all states that a model can reach."""

from dataclasses import dataclass


@dataclass
class Found:
    """The result of a search: all states without a violation, or the shortest trace to one."""

    states: int
    complete: bool
    violation: str = ""
    labels: tuple = ()
    worlds: tuple = ()

    @property
    def clean(self):
        return self.complete and not self.violation


def explore(model, most=None):
    """
    Search the states of a model. model.first() is the first state, model.steps(state) gives pairs of
    a label and a state, model.broken(state) the property that a state violates, or nothing. States
    are hashable.
    """
    first = model.first()
    came = {first: None}
    if said := model.broken(first):
        return trace(model, came, first, said)
    layer = [first]
    while layer:
        following = []
        for state in layer:
            for label, reached in model.steps(state):
                if reached in came:
                    continue
                came[reached] = (state, label)
                if said := model.broken(reached):
                    return trace(model, came, reached, said)
                following.append(reached)
            if most and len(came) > most:
                return Found(len(came), False)
        layer = following
    return Found(len(came), True)


def trace(model, came, state, said):
    labels, worlds = [], [state]
    while came[state]:
        state, label = came[state]
        labels.append(label)
        worlds.append(state)
    return Found(len(came), False, said, tuple(reversed(labels)), tuple(reversed(worlds)))
