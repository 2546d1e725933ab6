"""Audits of timed launches: that they compute what was checked, each of them, whenever it is.

A kernel that is right when it is checked may be anything when it is timed: it may count its launches, or keep an output
and hand it out again for the same pointers, or for the same values.  So the values change.  Before every sample some of
the images, chosen at random, change their sign, and between the two launches of a sample one more does.  The outputs of
these images are those that were checked, negated: every operation that rounds to nearest or toward zero is symmetric.
After every sample a sum over the bits of each image's outputs says whether they are.  Where bits differ, which a sum in
another order explains, the outputs go to the run's check against the reference, with the signs turned back.

At the end inputs, filters and what was prepared from them must be as they were, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Protocol

import numpy as np
import numpy.typing as npt

from alexconv.errors import Untrusted
from alexconv.executors.interface import Suspect, Values
from alexconv.records.store import Record

Marks = npt.NDArray[np.bool_]  # by image: whether its input has the other sign
Sums = npt.NDArray[np.uint64]


class Watched(Protocol):
    """A rung's arrays on a device as an audit sees them; the functions that take marks know of no other signs."""

    def negate(self, images: Sequence[int]) -> None:
        """Turns the signs of these images' inputs, after what was enqueued before."""
        ...

    def outputs(self) -> Values:
        """The outputs of all images, on the host."""
        ...

    def output_sums(self, negated: Marks) -> Sums:
        """A sum over the bits of each image's outputs, as they are once marked images are negated."""
        ...

    def input_sums(self, negated: Marks) -> Sums:
        """Sums over the bits of each image's inputs, negated likewise, of the filters, and of what is prepared."""
        ...


@dataclass
class Audit:
    """The audit of one rung's timed launches over the images that lie on the device with their checked outputs.

    ``exact`` says that outputs have the same bits in every run.  ``suspects`` are outputs that differ, to be checked.
    """

    watched: Watched
    images: int
    exact: bool = True
    random: Random = field(default_factory=SystemRandom)
    samples: int = 0
    differing: int = 0
    suspects: list[Suspect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.negated: Marks = np.zeros(self.images, np.bool_)
        self._checked = self.watched.output_sums(self.negated)
        self._inputs = self.watched.input_sums(self.negated)

    def before_sample(self) -> None:
        """New inputs: each image changes its sign with a probability of one half."""
        self._negate([image for image in range(self.images) if self.random.random() < 0.5])

    def between(self) -> None:
        """One image changes its sign, after the first launch of a sample and before its second."""
        self._negate([self.random.randrange(self.images)])

    def after_sample(self) -> None:
        """Looks at the outputs of the last launch."""
        self.samples += 1
        if self.exact and (self.watched.output_sums(self.negated) != self._checked).any():
            self.differing += 1
            if not self.suspects:
                self._suspect(f"after {2 * self.samples} timed launches")

    def finish(self) -> Record:
        """Turns the signs back; what the record says.  Raises Untrusted for inputs that are not what they were."""
        if not self.exact:
            self._suspect("after the last timed launch")
        self._negate(np.flatnonzero(self.negated).tolist())
        if (self.watched.input_sums(self.negated) != self._inputs).any():
            raise Untrusted("its launches changed x, w or what is prepared from w")
        return {"samples": self.samples, "differing": self.differing}

    def _negate(self, images: Sequence[int]) -> None:
        self.watched.negate(images)
        self.negated[list(images)] ^= True

    def _suspect(self, when: str) -> None:
        y = self.watched.outputs()
        np.negative(y, out=y, where=self.negated[(slice(None), *[None] * (y.ndim - 1))])
        self.suspects.append(Suspect(when, y))
