"""``auto``: the rung to use for a shape, batch size, precision and layout.

The fastest that ``python -m alexconv.tune --auto`` has measured on the GPU; where it has measured none, the first of a
list that suits the GPU, takes the shape and fits its memory.  Constants are those that ``alexconv.tune`` has found for
the rung, else its defaults.

The lists name the rungs from the fastest down, as they mostly were over AlexNet's layers on an H200: Hopper's tensor
cores, those of single warps, then CUDA cores.  Where a batch has too few outputs to give every multiprocessor a tile,
rungs come first that divide the taps of an output among blocks.  Where that ends (FEW) was measured at N=2, 4, 8, 16
and 32, and differs by a factor of two to four between layers.
"""

from dataclasses import dataclass

from alexconv.executors.interface import Executor
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.rung import Rung
from alexconv.messages import Say
from alexconv.planning.planner import DoesNotFit, plan_on
from alexconv.shapes import Conv
from alexconv.tuning import cache as tuning_cache

AUTO = "auto"
# Outputs of a batch below which the rungs of SMALL come before those of LARGE: by precision, or by rung.
FEW = {"fp32": 500_000, "fp32-tile": 500_000, "tf32": 350_000, "fp16": 600_000, "half": 600_000}
FEW_FOR = {"wgmma-winograd": 150_000, "wgmma-split-resident": 400_000}

LARGE_FP32 = (
    *("wgmma-split-resident", "wgmma-split", "igemm-stream-k", "igemm-async", "igemm"),
    *("unroll-register-matmul", "fused-unroll-matmul", "direct-register"),
)
LARGE: dict[str, tuple[str, ...]] = {
    "fp32": LARGE_FP32,
    "fp32-tile": ("wgmma-split-resident", "wgmma-winograd", *LARGE_FP32[1:]),
    "tf32": ("wgmma-window-scaled", "wgmma-scaled", "mma-tf32"),
    "fp16": ("wgmma-half", "wgmma-window-half", "wgmma-half-blocked", "mma-half"),
    "half": ("tiled-half2", "channels-half", "direct-half"),
}
SMALL: dict[str, tuple[str, ...]] = {
    "fp32": ("mma-split", "igemm-stream-k"),
    "fp32-tile": ("mma-split", "igemm-stream-k"),
    "tf32": ("mma-scaled",),
    "fp16": ("mma-half",),
    "half": ("channels-half",),
}
# With one channel nearly every image has pixels too faint for fp16 terms (docs/precision.md): these come last then.
SPLIT = ("wgmma-split-resident", "wgmma-winograd", "wgmma-split", "mma-split")
DEEP = {"wgmma-winograd": 850}  # taps of an output, fewer: its sums' bytes cost more than it saves
# On the CPU there is no fast one: these compile and run in the least time.
ON_HOST: dict[str, tuple[str, ...]] = {
    "fp32": ("direct-register",),
    "fp32-tile": ("direct-register",),
    "tf32": ("mma-tf32",),
    "fp16": ("mma-half",),
    "half": ("direct-half",),
}


@dataclass(frozen=True)
class Choice:
    """A rung with its constants, and whether that it is the fastest was measured."""

    rung: Rung
    constants: dict[str, int]
    measured: bool


def layouts_of(precision: str) -> tuple[str, ...]:
    """The layouts that the ladder has rungs of a precision for."""
    return tuple(dict.fromkeys(rung.layout for rung in LADDER if rung.precision == precision))


def preferences(executor: Executor, conv: Conv, N: int, precision: str) -> tuple[str, ...]:
    """Names of rungs, the one to try first in front; those of a class without a list from the ladder's end."""
    if precision not in LARGE:
        return tuple(rung.name for rung in reversed(LADDER) if rung.precision == precision)
    if not executor.measures:
        return ON_HOST[precision]
    outputs = N * conv.M * conv.E * conv.F
    large = [name for name in LARGE[precision] if name not in DEEP or DEEP[name] <= conv.K]
    enough = [name for name in large if outputs >= FEW_FOR.get(name, FEW[precision])]
    found = (*enough, *SMALL[precision], *(name for name in large if name not in enough))
    return tuple(sorted(found, key=lambda name: conv.C == 1 and name in SPLIT))


def choose(
    executor: Executor, conv: Conv, N: int, precision: str, layout: str, say: Say, budget: int | None = None
) -> Choice | None:
    """The rung for N images in ``budget`` bytes of device memory, the executor's own unless given.

    None if none suits.
    """
    if best := tuning_cache.load_best(executor, conv, N, precision, layout, say):
        choice = Choice(RUNGS[best.rung], best.constants, measured=True)
        if not misfit(executor, choice, conv, N, budget):
            return choice
    for rung in (RUNGS[name] for name in preferences(executor, conv, N, precision)):
        if rung.layout != layout or executor.unsuited(rung):
            continue
        tuned = tuning_cache.load(executor, rung, conv, N, say)
        choice = Choice(rung, rung.resolve(conv, tuned.constants if tuned else {}, N, executor.device), measured=False)
        if not misfit(executor, choice, conv, N, budget):
            return choice
    return None


def misfit(executor: Executor, choice: Choice, conv: Conv, N: int, budget: int | None) -> str | None:
    """Why the executor cannot run it, or None."""
    try:
        plan_on(executor, choice.rung, conv, N, choice.constants, budget)
    except DoesNotFit as error:
        return str(error)
    return None
