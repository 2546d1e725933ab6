"""The ladder: every rung in reading order.  Its tables are read-only.

A rung is a ``.cu`` file and an entry in the ``ladder.py`` of its family's folder: docs/adding-a-rung.md.  Whether
``auto`` prefers it is said in ``alexconv.tuning.auto``.
"""

from collections.abc import Mapping
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
from alexconv.kernels.wgmma.ladder_resident import RESIDENT_RUNGS
from alexconv.kernels.wgmma.ladder_winograd import WINOGRAD_RUNGS

LADDER: tuple[Rung, ...] = (
    *SINGLE_RUNGS,
    *MULTI_RUNGS,
    *TILES_RUNGS,
    *SHARED_RUNGS,
    *GEMM_RUNGS,
    *IGEMM_RUNGS,
    *MMA_RUNGS,
    *WGMMA_RUNGS,
    *RESIDENT_RUNGS,
    *WINOGRAD_RUNGS,
)
_rungs = {rung.name: rung for rung in LADDER}
_former_names = {name: rung.name for rung in LADDER for name in rung.formerly}

RUNGS: Mapping[str, Rung] = MappingProxyType(_rungs)
ALIASES: Mapping[str, str] = MappingProxyType({rung.alias: rung.name for rung in LADDER})
FORMER_NAMES: Mapping[str, str] = MappingProxyType(_former_names)

# Abbreviations of the AlexNet study that name a rung with a transfer.
TRANSFER_ALIASES: Mapping[str, tuple[str, str]] = MappingProxyType({"um": ("direct", "managed")})
