"""Work spread over all cores: all of it once, in order, also from inside of such work and after a fork."""

import os
import threading

import numpy as np
import pytest

from alexconv.parallel import each_block, each_image, each_slice


@pytest.mark.parametrize("N", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("at_once", [0, 1, 3, 64, 100])
def test_slices_hold_each_number_once_and_in_order(N, at_once):
    slices = each_slice(lambda numbers: list(range(N))[numbers], N, at_once)
    assert [number for part in slices for number in part] == list(range(N))
    assert all(1 <= len(part) <= max(1, at_once) for part in slices)


@pytest.mark.parametrize(("nbytes", "lengths"), [(0, [1] * 6), (8, [2] * 3), (1000, [6])])
def test_blocks_have_about_as_many_bytes_as_asked_for(nbytes, lengths):
    values = np.zeros(6, np.float32)
    assert each_block(lambda block: len(values[block]), values, nbytes) == lengths
    assert each_block(lambda block: len(values[block]), values[:0], nbytes) == []


def test_nested_parallel_work_does_not_deadlock():
    """With threads that waited for each other it would not."""
    results = []
    thread = threading.Thread(target=lambda: results.extend(each_image(products, 200)), daemon=True)
    thread.start()
    thread.join(60)
    assert results == [products(number) for number in range(200)]


def products(number):
    return sum(each_image(lambda factor: number * factor, 10))


def test_an_error_is_raised_in_the_caller():
    def wrong(number):
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        each_image(wrong, 3)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # from Python 3.12 on: threads, then a fork
def test_a_forked_process_has_threads_of_its_own():
    each_image(abs, 10)
    child = os.fork()
    if not child:
        os._exit(0 if each_image(abs, 10) == list(range(10)) else 1)
    assert os.waitpid(child, 0)[1] == 0
