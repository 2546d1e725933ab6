"""The ladder: every rung in reading order.  Its tables are read-only, except for ``join``.

A rung is a ``.cu`` file and an entry in the ``ladder.py`` of its family's folder: docs/adding-a-rung.md.
``alexconv.tune.auto`` decides when ``auto`` chooses it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

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

_ladder = [
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
]
_rungs = {rung.name: rung for rung in _ladder}
_aliases = {rung.alias: rung.name for rung in _ladder}

LADDER: Sequence[Rung] = _ladder
RUNGS: Mapping[str, Rung] = MappingProxyType(_rungs)
ALIASES: Mapping[str, str] = MappingProxyType(_aliases)

# Abbreviations of the AlexNet study that name a rung with a transfer.
TRANSFER_ALIASES: Mapping[str, tuple[str, str]] = MappingProxyType({"um": ("direct", "managed")})


def join(rung: Rung) -> None:
    """Appends a rung from outside the package, for the rest of the process (``alexconv.own.folders``)."""
    _ladder.append(rung)
    _rungs[rung.name] = rung
    _aliases[rung.alias] = rung.name
