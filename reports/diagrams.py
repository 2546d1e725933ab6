"""How a rung works, for templates/charts.js to draw step by step from the rung's own constants.

All diagrams are of one layer of AlexNet, with a large batch, on an H200.
"""

from collections.abc import Iterator

from alexconv.kernels.igemm import ladder as igemm
from alexconv.kernels.problem import H200, Problem
from alexconv.kernels.rung import Rung
from alexconv.kernels.wgmma import blocked, ladder_winograd
from alexconv.kernels.wgmma.ladder import consumers
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import MANY
from alexconv.reports.elements import Chart
from alexconv.shapes import WORKLOADS

LAYER = 3
PLAIN_WGMMA = ("wgmma-half", "wgmma-scaled", "wgmma-split")  # of tiles of pixels and filters, one after the other
WGMMA_STEP = 64  # taps of a stage
PLACE = f"{WORKLOAD} layer {LAYER}, N={MANY}, H200"


def diagrams(rung: Rung) -> list[Chart]:
    """Those of a rung; none for most."""
    conv = WORKLOADS[WORKLOAD].layer(LAYER)
    drawn = {"igemm": of_igemm, "wgmma": of_wgmma}.get(rung.family)
    problem = Problem(conv, MANY, rung.resolve(conv, {}, MANY), H200)
    return [] if not drawn or rung.refuses(problem) else list(drawn(rung, problem))


def of_igemm(rung: Rung, p: Problem) -> Iterator[Chart]:
    """A block's tile, its pipeline, and its waves; with SLOTS the last tiles are cut along K."""
    slots = p["BLOCKS_PER_SM"] * p.device.multiprocessors
    if "STAGES" not in p.constants:
        warps, thread = (p["WARPS_DOWN"], p["WARPS_ACROSS"]), (p["THREAD_ROWS"], p["THREAD_COLUMNS"])
        yield tile(rung, p, (igemm.tile_rows(p), igemm.tile_columns(p)), warps, thread, p["DEPTH"])
    if "STAGES" in p.constants:
        yield ring(rung, p["STAGES"], igemm.k_tiles(p), "cp.async copies", "all warps multiply")
    yield waves(rung, igemm.tiles(p), slots, cut="SLOTS" in p.constants)


def of_wgmma(rung: Rung, p: Problem) -> Iterator[Chart]:
    """A block's tile, the ring between producer and consumers, the waves; a row of Winograd tiles."""
    if "TILE_OUTPUTS" in p.constants:
        yield winograd(rung, p)
    if rung.name in PLAIN_WGMMA:
        parts = consumers(p)
        size = p["TILE_PIXELS"], p["TILE_FILTERS"]
        yield tile(rung, p, size, (parts, 1), (size[0] // parts, size[1]), WGMMA_STEP)
        yield ring(rung, p["STAGES"], -(-p.conv.K // WGMMA_STEP), "producer: TMA", "consumers: wgmma")
        yield waves(rung, blocked.tiles(p), p["GRID_BLOCKS"], cut=False)


def tile(
    rung: Rung, p: Problem, size: tuple[int, int], parts: tuple[int, int], part: tuple[int, int], depth: int
) -> Chart:
    """A block's tile of the product: ``size`` rows and columns, its warps or warpgroups, what one of them computes."""
    pixels, filters = ("pixels", MANY * p.conv.E * p.conv.F), ("filters", p.conv.M)
    rows, columns = (pixels, filters) if rung.family == "wgmma" else (filters, pixels)
    data = {
        "rows": rows,
        "columns": columns,
        "tile": size,
        "parts": parts,
        "part": part,
        "of": "warpgroups" if rung.family == "wgmma" else "warps",
        "worker": "warpgroup" if rung.family == "wgmma" else "thread",
        "depth": depth,
        "K": p.conv.K,
    }
    caption = f"{PLACE}. Each step multiplies {depth} taps of the block's rows by those of its columns."
    return Chart(f"{rung.name}-tile", "A block's tile of the product", caption, "tile", data)


def ring(rung: Rung, stages: int, steps: int, copies: str, products: str) -> Chart:
    """Stages of shared memory, each filled while others are multiplied."""
    data = {"stages": stages, "steps": steps, "copies": copies, "products": products}
    caption = f"{PLACE}. {stages} stages of shared memory: while one is multiplied, the others are being filled."
    return Chart(f"{rung.name}-ring", "The pipeline", caption, "ring", data)


def waves(rung: Rung, tiles: int, slots: int, *, cut: bool) -> Chart:
    """Blocks of a launch on the multiprocessors, over time; with ``cut`` the last tiles are cut along K."""
    caption = f"{PLACE}. A column for each of the {slots} blocks that run at a time; down is time. " + (
        "What is left after the full waves is cut into equal parts." if cut else "The last wave is not full."
    )
    return Chart(f"{rung.name}-waves", "Waves", caption, "waves", {"tiles": tiles, "slots": slots, "cut": cut})


def winograd(rung: Rung, p: Problem) -> Chart:
    """A row of outputs, in tiles that share inputs."""
    data = {
        "outputs": p["TILE_OUTPUTS"],
        "taps": ladder_winograd.tile_taps(p),
        "points": ladder_winograd.points(p),
        "row": p.conv.F,
        "tiles": ladder_winograd.tiles_across(p),
    }
    caption = f"{PLACE}. One row of outputs and the inputs above it, for one row of a filter."
    return Chart(f"{rung.name}-tiles", "Winograd tiles", caption, "winograd", data)
