"""Each item of each guest: the programs of tests/guest, natively and registered,
and the scenarios. It passes if it ends with status 0, leaves the pools free and
the kernel reports no problem; see suite.py and guest/runner.sh."""

import pytest


def test_guest(item, outcome, failures):
    if outcome.skipped and not failures:
        pytest.skip(outcome.skipped)
    assert not failures, "; ".join(failures)
