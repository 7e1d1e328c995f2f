"""A process that forks computes on one thread, its children on more."""

import torch

from conformance.host.isolation import Done, run_isolated
from conformance.host.threads import most, thread_count


def test_children_may_compute_on_several_threads_and_their_parent_on_one() -> None:
    assert most(2) == 1
    (outcome,) = run_isolated([3], most)
    assert outcome == Done(3)


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    with thread_count(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
