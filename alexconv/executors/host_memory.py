"""Large arrays in host memory: filled and copied on all cores, and cached from one point to the next.

A gigabyte of new memory can take longer than everything timed on it: first touches of its pages, above all in a virtual
machine whose host reclaims freed pages, or page-locking.
"""

from collections.abc import Callable
from math import prod

import numpy as np
import numpy.typing as npt

from alexconv.executors.interface import Values, fill_with_nan
from alexconv.parallel import each_block

LARGE = 64 << 20  # bytes from which an array is cached
BLOCK = 16 << 20  # bytes that a core takes at a time

Locked = Callable[[int, npt.DTypeLike], Values]  # a page-locked array of a length and a type


def copied(values: Values, into: Values | None = None) -> Values:
    """A copy, in new memory unless ``into`` is given."""
    copy = np.empty_like(values) if into is None else into
    each_block(lambda block: np.copyto(copy[block], values[block]), values, BLOCK)
    return copy


def filled_with_nan(values: Values) -> Values:
    """The array itself, filled with NaN."""
    each_block(lambda block: fill_with_nan(values[block]), values, BLOCK)
    return values


class HostMemory:
    """Arrays for one user after the other.  Large ones that are returned are cached for requests of exactly their size.

    A large request that none of them satisfies frees them first, so no more is held than was in use at one time.
    """

    def __init__(self, page_locked: Locked) -> None:
        self._page_locked = page_locked
        self._cached: list[tuple[bool, Values]] = []  # whether page-locked, and bytes

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike, *, page_locked: bool) -> Values:
        """An uninitialised array, whose pages may be untouched."""
        values: Values = self._taken(prod(shape) * np.dtype(dtype).itemsize, page_locked).view(dtype).reshape(shape)
        return values

    def _taken(self, nbytes: int, page_locked: bool) -> Values:
        for index, (locked, array) in enumerate(self._cached):
            if (locked, array.nbytes) == (page_locked, nbytes):
                return self._cached.pop(index)[1]
        if nbytes >= LARGE:
            self.free()
        return self._page_locked(nbytes, np.uint8) if page_locked else np.empty(nbytes, np.uint8)

    def give_back(self, values: Values, *, page_locked: bool) -> None:
        """Ends the use of an array, which the next user overwrites."""
        if values.nbytes >= LARGE:
            self._cached.append((page_locked, values.reshape(-1).view(np.uint8)))

    def free(self) -> None:
        """Frees the cached arrays."""
        self._cached.clear()
