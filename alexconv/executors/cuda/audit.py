"""Audits timed launches: each of them must compute what was checked.

A kernel that is correct when checked may cheat when timed: count its launches, or replay an earlier output for the same
pointers or values.  So the values change.  Before every sample random images change their sign, and one more does
between the two launches of a sample.  Their outputs must be the checked ones, negated: rounding to nearest and toward
zero is symmetric.  A bias or an activation is not, so the inputs of layers that have one stay as they are.  After every
sample a hash over the bits of each image's outputs is compared.  Where bits differ, which a different order of
summation may explain, the outputs are checked against the reference again, with the signs restored.

At the end inputs, filters and prepared arrays must be unchanged, bit for bit.  The record has digests of the inputs and
of the checked outputs, by which runs, and cards, can be compared.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Protocol

import numpy as np
import numpy.typing as npt

from alexconv.errors import Untrusted
from alexconv.executors.interface import Suspect, Values
from alexconv.parallel import each_block
from alexconv.planning.checks import CHECKED_BYTES
from alexconv.records.store import Record

Marks = npt.NDArray[np.bool_]  # by image: whether its input has the other sign
Sums = npt.NDArray[np.uint64]


class Watched(Protocol):
    """The audit's view of a rung's arrays on a device; ``negated`` marks the images whose inputs are negated."""

    def negate(self, images: Sequence[int]) -> None:
        """Enqueues the negation of these images' inputs."""
        ...

    def outputs(self) -> Values:
        """The outputs of all images, on the host."""
        ...

    def output_sums(self, negated: Marks) -> Sums:
        """A hash of each image's outputs, after undoing the negation of marked images."""
        ...

    def input_sums(self, negated: Marks) -> Sums:
        """Hashes of each image's inputs, likewise, of the filters, and of prepared arrays."""
        ...


@dataclass
class Audit:
    """The audit of one rung's timed launches over images that are on the device with their checked outputs."""

    watched: Watched
    images: int
    exact: bool = True  # outputs have the same bits in every run
    odd: bool = True  # they change their sign with the inputs
    random: Random = field(default_factory=SystemRandom)
    samples: int = 0
    differing: int = 0
    suspects: list[Suspect] = field(default_factory=list)  # outputs that differ, to be checked again

    def __post_init__(self) -> None:
        self.negated: Marks = np.zeros(self.images, np.bool_)
        self._checked = self.watched.output_sums(self.negated)
        self._inputs = self.watched.input_sums(self.negated)

    def before_sample(self) -> None:
        """Negates each image with a probability of one half."""
        if not self.odd:
            return
        drawn = np.frombuffer(self.random.randbytes(-(-self.images // 8)), np.uint8)
        self._negate(np.flatnonzero(np.unpackbits(drawn, count=self.images)).tolist())

    def between(self) -> None:
        """Negates one image, between the two launches of a sample."""
        if self.odd:
            self._negate([self.random.randrange(self.images)])

    def after_sample(self) -> None:
        """Compares the outputs of the last launch."""
        self.samples += 1
        if self.exact and (self.watched.output_sums(self.negated) != self._checked).any():
            self.differing += 1
            if not self.suspects:
                self._suspect(f"after {2 * self.samples} timed launches")

    def finish(self) -> Record:
        """Restores the signs and returns the record's part.  Raises Untrusted if inputs have changed."""
        if not self.exact:
            self._suspect("after the last timed launch")
        self._negate(np.flatnonzero(self.negated).tolist())
        if (self.watched.input_sums(self.negated) != self._inputs).any():
            raise Untrusted("its launches changed x, w or an array prepared from w")
        facts: Record = {"samples": self.samples, "differing": self.differing}
        if self.exact:
            facts["digests"] = {"inputs": digest_of(self._inputs[: self.images]), "outputs": digest_of(self._checked)}
        return facts

    def _negate(self, images: Sequence[int]) -> None:
        self.watched.negate(images)
        self.negated[list(images)] ^= True

    def _suspect(self, when: str) -> None:
        y = self.watched.outputs()
        turned = np.broadcast_to(self.negated[(slice(None), *[None] * (y.ndim - 1))], y.shape)
        each_block(lambda block: np.negative(y[block], out=y[block], where=turned[block]), y, CHECKED_BYTES)
        self.suspects.append(Suspect(when, y))


def digest_of(sums: Sums) -> str:
    """A short digest of arrays' hashes."""
    return hashlib.blake2b(sums.tobytes(), digest_size=8).hexdigest()
