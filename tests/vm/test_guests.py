"""Each item of each guest: the programs of tests/guest, natively and registered,
and the scenarios. It passes if it ended with status 0, left the pools free and
the kernel had nothing to complain about; see suite.py and guest/runner.sh."""

import pytest


def test_guest(item, outcome, failures):
    if outcome.skipped and not failures:
        pytest.skip(outcome.skipped)
    assert not failures, "; ".join(failures)
