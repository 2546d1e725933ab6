"""The ladder: every rung in reading order; of each gradient, dgrad and wgrad, another.

A rung is a ``.cu`` file and an entry in the ``ladder.py`` of its family's folder: docs/adding-a-rung.md.
Its ``time`` is what ``auto`` chooses by (``alexconv.tune.auto``).
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

from alexconv.errors import UsageError
from alexconv.kernels.depthwise.ladder import DEPTHWISE_RUNGS
from alexconv.kernels.dgrad.ladder import DGRAD_RUNGS
from alexconv.kernels.gemm.ladder import GEMM_RUNGS
from alexconv.kernels.igemm.ladder import IGEMM_RUNGS
from alexconv.kernels.mma.ladder import MMA_RUNGS
from alexconv.kernels.multi.ladder import MULTI_RUNGS
from alexconv.kernels.rung import Rung
from alexconv.kernels.shared.ladder import SHARED_RUNGS
from alexconv.kernels.single.ladder import SINGLE_RUNGS
from alexconv.kernels.tiles.ladder import TILES_RUNGS
from alexconv.kernels.wgmma.ladder import WGMMA_RUNGS
from alexconv.kernels.wgmma.ladder_floats import FLOAT_RUNGS
from alexconv.kernels.wgmma.ladder_in_place import IN_PLACE_RUNGS
from alexconv.kernels.wgmma.ladder_resident import RESIDENT_RUNGS
from alexconv.kernels.wgmma.ladder_split_k import SPLIT_K_RUNGS
from alexconv.kernels.wgmma.ladder_window import WINDOW_RUNGS
from alexconv.kernels.wgmma.ladder_winograd import WINOGRAD_RUNGS
from alexconv.kernels.wgrad.ladder import WGRAD_RUNGS
from alexconv.kernels.wgrad.ladder_wgmma import WGRAD_WGMMA_RUNGS


class Ladder(tuple[Rung, ...]):
    """Rungs in reading order.  Another ladder is another value: a rung of the user's makes one (``with_rungs``)."""

    @cached_property
    def named(self) -> Mapping[str, Rung]:
        """The rungs by name."""
        return MappingProxyType({rung.name: rung for rung in self})

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """The rungs' names by their study's abbreviations."""
        return MappingProxyType({rung.alias: rung.name for rung in self})

    def of_direction(self, direction: str) -> "Ladder":
        """The rungs of a direction."""
        return Ladder(rung for rung in self if rung.direction == direction)

    def with_rungs(self, rungs: Iterable[Rung], source: object) -> "Ladder":
        """The ladder with more rungs at its end, without those that it has already.

        Raises UsageError, which names the ``source``, for a rung whose name is taken or whose file is missing.
        """
        ladder = self
        for rung in rungs:
            known = ladder.named.get(rung.name)
            if known and known.path == rung.path:
                continue
            if {rung.name, rung.alias} & {*ladder.named, *ladder.aliases}:
                raise UsageError(f"{source}: the ladder already has the rung {rung.name} or alias {rung.alias}")
            if not rung.path.is_file():
                raise UsageError(f"{source}: the rung {rung.name} has no file {rung.path}")
            ladder = Ladder((*ladder, rung))
        return ladder


LADDER = Ladder(  # of the forward direction
    (
        *SINGLE_RUNGS,
        *MULTI_RUNGS,
        *TILES_RUNGS,
        *SHARED_RUNGS,
        *GEMM_RUNGS,
        *IGEMM_RUNGS,
        *MMA_RUNGS,
        *WGMMA_RUNGS,
        *WINDOW_RUNGS,
        *RESIDENT_RUNGS,
        *WINOGRAD_RUNGS,
        *IN_PLACE_RUNGS,
        *SPLIT_K_RUNGS,
        *FLOAT_RUNGS,
        *DEPTHWISE_RUNGS,
    )
)
RUNGS, ALIASES = LADDER.named, LADDER.aliases

GRADIENTS = Ladder((*DGRAD_RUNGS, *WGRAD_RUNGS, *WGRAD_WGMMA_RUNGS))
ALL_DIRECTIONS = Ladder((*LADDER, *GRADIENTS))  # what commands choose from

# Abbreviations of the AlexNet study that name a rung with a transfer.
TRANSFER_ALIASES: Mapping[str, tuple[str, str]] = MappingProxyType({"um": ("direct", "managed")})
