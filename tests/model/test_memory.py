import pytest
import torch

from lad.errors import ModelError
from lad.model.memory import Budget, is_out_of_memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 9 bytes"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(error, expected):
    assert is_out_of_memory(error) is expected


def capacity(limit, seen):
    def call(items):
        seen.append(list(items))
        if len(items) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [item * item for item in items]

    return call


def test_everything_is_run_once_in_order():
    seen = []
    pieces = list(Budget(30).run(list(range(7)), 10, capacity(99, seen)))
    assert seen == [[0, 1, 2], [3, 4, 5], [6]]
    assert [result for _, result in pieces] == [[0, 1, 4], [9, 16, 25], [36]]


def test_a_batch_that_does_not_fit_is_halved_and_nothing_is_lost():
    seen = []
    budget = Budget(80)
    pieces = list(budget.run(list(range(11)), 10, capacity(3, seen)))
    assert [item for items, _ in pieces for item in items] == list(range(11))
    assert [value for _, result in pieces for value in result] == [item * item for item in range(11)]
    # 8 and 4 failed; from then on it is two at a time
    assert [len(items) for items in seen] == [8, 4, 2, 2, 2, 2, 2, 1]
    assert budget.halvings == 2


def test_the_smaller_size_is_kept_for_later_items_whatever_they_cost():
    seen = []
    budget = Budget(80)
    list(budget.run(list(range(8)), 10, capacity(4, seen)))
    list(budget.run(list(range(4)), 20, capacity(4, seen)))
    assert [len(items) for items in seen] == [8, 4, 4, 2, 2]


def test_one_item_is_always_tried_and_its_failure_is_for_people():
    assert [result for _, result in Budget(5).run([3], 10, capacity(1, []))] == [[9]]
    with pytest.raises(ModelError, match="Not even one image at a time fits into memory") as caught:
        list(Budget(100, "image").run([3, 4], 10, capacity(0, [])))
    assert "bfloat16" in str(caught.value)


def test_other_errors_pass():
    def call(items):
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        list(Budget(5).run([3], 1, call))


def test_the_failed_call_holds_no_tensors_while_the_next_one_runs():
    import gc
    import weakref

    held = []

    class Big:
        pass

    def call(items):
        assert all(reference() is None for reference in held), "the failed call's objects are still alive"
        big = Big()
        held.append(weakref.ref(big))
        if len(items) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return None

    gc.disable()  # reference counts alone must do
    try:
        list(Budget(4).run([1, 2, 3, 4], 1, call))
    finally:
        gc.enable()
    assert len(held) == 6
