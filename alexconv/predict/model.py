"""The time of a rung's launches on a GPU: blocks on one multiprocessor, waves of them, device memory, overheads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import ceil, fsum, prod

from alexconv.compiling import nvcc
from alexconv.kernels.bound import BoundRung, LaunchConfig
from alexconv.kernels.rung import BATCH, Dims, bounding_box
from alexconv.predict import cubins, disassembly, native, traffic
from alexconv.predict.disassembly import UnknownInstruction
from alexconv.predict.gpu import SECTOR, WARP, Gpu
from alexconv.predict.native import ARRAY_SHIFT, Outcome, Work
from alexconv.predict.opcodes import COMPILERS

FEWEST_WAVES, MOST_WAVES = 3, 12  # of blocks that are simulated
ENOUGH_ISSUED = 1_500_000  # instructions of all warps; fewer waves where a block has many
TRIED = 12  # blocks of a small grid that are run alone, to see which have work
WORKS = 0.2  # of the busiest block's instructions
FEW_WAVES = 2  # or fewer: single blocks decide the time
SLOWER = 1.05  # than a block in the middle
# Blocks of one multiprocessor are 132, 124 or 82 apart at first, later any number (measured: placement).  The model
# takes a prime, without common factors with the sizes of a grid: 127 of 132, 103 of 108.
OUT_OF_STEP = 5
UNIT_NAMES = {
    "issue": "issue slots",
    "fma": "FMA pipe",
    "alu": "ALU pipe",
    "half": "half-precision pipe",
    "xu": "special-function unit",
    "tensor": "tensor cores",
    "lsu": "L1 and shared memory",
    "l2": "L2",
    "dram": "device memory",
}


@dataclass(frozen=True)
class Kernel:
    """A kernel's machine code and what a block of it needs."""

    entry: str
    code: tuple[disassembly.Instruction, ...]
    needs: cubins.Needs

    @cached_property
    def table(self) -> native.Table:
        """The code as the simulator reads it; raises UnknownInstruction."""
        return native.table(self.code)

    @cached_property
    def named_registers(self) -> int:
        """Registers that the code names."""
        return native.registers_of(self.code)


@dataclass(frozen=True)
class Prediction:
    """A launch: ``seconds`` with its overhead, the busy share of each unit, and what was simulated.

    ``blocks_each`` is the mean number of blocks per multiprocessor; ``simulated`` is how many were run.
    """

    entry: str
    seconds: float
    overhead: float
    dram_bytes: tuple[float, float]  # read, written
    utilisation: dict[str, float]
    resident: int
    occupancy: float
    blocks_each: float
    waves: float
    simulated: int
    needs: cubins.Needs
    dynamic_shared: int
    multiprocessors: int
    outcome: Outcome = field(repr=False)

    @property
    def limiting(self) -> str:
        """The busiest unit, or ``latency`` if none is busy for more than half of the time."""
        unit = max(self.utilisation, key=lambda name: self.utilisation[name])
        return UNIT_NAMES[unit] if self.utilisation[unit] > 0.5 else "latency"


def compile_kernels(bound: BoundRung, gpu: Gpu) -> dict[str, Kernel]:
    """The kernels of a rung's file by entry point; raises MissingTool, CompileError, UnknownInstruction."""
    arch = nvcc.arch_name(gpu.capability)
    cubin = nvcc.compile_cubin(bound.rung.path, bound.macros, arch)
    try:
        kernels = read_kernels(disassembly.disassembled(cubin), cubins.needs(cubin, arch), bound.entries())
        if not all(len(kernel.table) for kernel in kernels.values()):
            raise UnknownInstruction("a kernel without instructions")
    except UnknownInstruction as error:
        raise UnknownInstruction(
            f"{bound.rung.name} by nvcc {nvcc.nvcc_version()}: {error}; use nvcc {COMPILERS}, or add it to "
            "alexconv/predict/opcodes.py"
        ) from None
    return kernels


def read_kernels(text: str, needs: Mapping[str, cubins.Needs], entries: Sequence[str]) -> dict[str, Kernel]:
    """The kernels of nvdisasm's text; raises UnknownInstruction."""
    found = disassembly.kernels(text)
    return {entry: Kernel(entry, tuple(found[entry]), needs[entry]) for entry in entries}


def predict(bound: BoundRung, kernels: Mapping[str, Kernel], images: int, gpu: Gpu) -> list[Prediction]:
    """The launches of a rung over ``images`` images, in order.

    Micro-batches of the same size are predicted once.  Raises UnknownInstruction.
    """
    constants, cached = bound.filter_bytes(), gpu["memory.constant_cache_bytes"]
    if bound.rung.constant_symbol and constants > cached:
        raise UnknownInstruction(
            f"{constants} bytes of constant memory: the model has no misses of the constant cache of {cached} bytes"
        )
    found: list[Prediction] = []
    known: dict[int, list[Prediction]] = {}
    for _, count in bound.micro_batches(images):
        launches = bound.launches(count)
        if count not in known:
            known[count] = [predict_launch(launch, kernels[launch.entry], bound, count, gpu) for launch in launches]
        for number, (launch, each) in enumerate(zip(launches, known[count], strict=True)):
            follows = "dependent" if launch.pdl and number else "next"
            overhead = gpu[f"launch.{follows if found else 'first'}_seconds"]
            found.append(replace(each, seconds=each.seconds + overhead, overhead=overhead))
    return found


def predict_launch(launch: LaunchConfig, kernel: Kernel, bound: BoundRung, images: int, gpu: Gpu) -> Prediction:
    """One launch over ``images`` images, without its overhead; raises UnknownInstruction."""
    shared = kernel.needs.static_shared + launch.dynamic_shared
    resident = gpu.resident_blocks(prod(launch.block), kernel.needs.registers, shared)
    total = prod(launch.grid)
    each = total / gpu.multiprocessors
    together = min(resident, max(1, ceil(each)))
    arrays = addresses(bound)
    work = Work(
        launch.grid,
        launch.block,
        shared,
        1,
        gpu.l1_bytes(resident, shared),
        (0,),
        tuple(images if name == BATCH else arrays[name] for name in launch.args),
        maps(bound, images),
    )

    def run(what: Work, busy: int, read: float = 0, write: float = 0) -> Outcome:
        return native.simulate(kernel.table, kernel.named_registers, what, gpu.parameters(busy, read, write))

    def alone(block: int) -> Outcome:
        return run(replace(work, footprint=True, blocks=(block,)), min(total, gpu.multiprocessors))

    busiest, busy = middle(launch.grid), min(total, gpu.multiprocessors)
    one = alone(busiest)
    tried = {busiest: one}
    slowest = None  # with few blocks, one that takes longer than the others decides
    if total <= FEW_WAVES * resident * gpu.multiprocessors:
        tried |= {block: alone(block) for block in few(total, gpu.multiprocessors)}
        longest = max(tried, key=lambda block: tried[block].finished[-1])
        if tried[longest].finished[-1] > SLOWER * one.finished[-1]:
            slowest = longest
    if total <= gpu.multiprocessors:  # a kernel of few, long blocks may leave some of them without work
        slowest = busiest if slowest is None else slowest
        one = tried[slowest]
        working = sum(each.counters["issued"] > WORKS * one.counters["issued"] for each in tried.values())
        busy = max(1, round(total * working / len(tried)))
    dram = traffic.of_launch(
        launch.grid,
        one,
        alone,
        array_bytes(bound, images),
        gpu,
    )
    blocks = sample(total, gpu.multiprocessors, together, one.counters["issued"], slowest)
    reads = max(1.0, total * one.counters["l2_reads"])
    writes = max(1.0, total * (one.counters["store_sectors"] + one.counters["reduction_sectors"]))
    read_share = min(1.0, dram.read / SECTOR / reads)
    write_share = min(1.0, dram.written / SECTOR / writes)
    outcome = run(replace(work, resident=together, blocks=blocks), busy, read_share, write_share)
    ends, count = all_ends(outcome, together, total, gpu)
    if count < len(blocks):  # earlier multiprocessors take the others: fewer run together at the end
        blocks = blocks[-count:]
        outcome = run(replace(work, resident=together, blocks=blocks), busy, read_share, write_share)
        ends = outcome.finished.tolist()
    cycles = float(ends[count - 1])
    scale = total / len(blocks)
    seconds = max(cycles / gpu.clock_hz, (dram.read + dram.written) / gpu["device.dram_bytes_per_s"])
    return Prediction(
        launch.entry,
        seconds,
        0.0,
        (dram.read, dram.written),
        utilisation(outcome, scale, seconds, dram, busy, gpu),
        resident,
        resident * ceil(prod(launch.block) / WARP) / gpu["occupancy.warps"],
        each,
        each / resident,
        len(blocks),
        kernel.needs,
        launch.dynamic_shared,
        gpu.multiprocessors,
        outcome,
    )


@cache
def _names(bound: BoundRung) -> tuple[str, ...]:
    rung = bound.rung
    arrays = [array.name for array in (*rung.scratch, *rung.prepared)]
    return ("x", "w", "y", *arrays, *(each.name for each in rung.maps))


def addresses(bound: BoundRung) -> dict[str, int]:
    """Address of each array of a rung, far from the others."""
    return {name: (k + 1) << ARRAY_SHIFT for k, name in enumerate(_names(bound))}


def maps(bound: BoundRung, images: int) -> tuple[native.Map, ...]:
    """The rung's tensor maps for ``images`` images."""
    problem, place = bound.problem(images), addresses(bound)
    return tuple(
        native.Map(
            place[each.name],
            place[each.array],
            each.dims(problem),
            each.strides(problem),
            each.box(problem),
            bounding_box(each.window(problem)) if each.window else None,
        )
        for each in bound.rung.maps
    )


def array_bytes(bound: BoundRung, images: int) -> dict[int, int]:
    """Bytes of each array for ``images`` images, by its number in ``addresses``."""
    sizes = bound.piece_bytes(images) | bound.prepared_bytes() | {"w": bound.filter_bytes()}
    return {k: sizes[name] for k, name in enumerate(_names(bound)) if name in sizes}


def few(total: int, multiprocessors: int) -> set[int]:
    """Blocks spread over a small grid; the first and the last of one with more blocks than multiprocessors."""
    return set(range(0, total, max(1, total // TRIED))) if total <= multiprocessors else {0, total - 1}


def middle(grid: Dims) -> int:
    """The number of a block away from the grid's edges."""
    x, y, z = (size // 2 for size in grid)
    return x + grid[0] * (y + grid[1] * z)


def sample(total: int, multiprocessors: int, together: int, issued: float, slowest: int | None) -> tuple[int, ...]:
    """The blocks to simulate: as many as one multiprocessor may get, or some of its waves spread over the grid.

    Blocks at the edge of a plane do less than others, so the first waves would not represent all.  ``issued`` is the
    number of one block's instructions; ``slowest``, if not None, becomes the last block.
    """
    most = together * ceil(total / multiprocessors / together)
    waves = max(FEWEST_WAVES, min(MOST_WAVES, int(ENOUGH_ISSUED / max(1.0, issued * together))))
    count = waves * together
    apart = multiprocessors - OUT_OF_STEP
    if most <= count:
        last = (total - 1) % multiprocessors // 2 + (most - 1) * apart if slowest is None else slowest
        return tuple((last - k * apart) % total for k in reversed(range(most)))
    return tuple(
        (int(total * (wave + 0.5) / waves) + k * apart) % total for wave in range(waves) for k in range(together)
    )


def all_ends(outcome: Outcome, together: int, total: int, gpu: Gpu) -> tuple[list[float], int]:
    """When the blocks of the multiprocessor with the most blocks end, and how many it gets.

    Waves after the simulated ones last as long as these.  A multiprocessor takes a block whenever one of its own ends,
    while any are left.  Their speeds differ by up to ``spread`` either way; this one is the fastest.
    """
    each = total / gpu.multiprocessors
    ends = [float(end) for end in outcome.finished]
    simulated, most = len(ends), together * ceil(each / together)
    steady = (ends[simulated - together] - ends[0]) / (simulated - together) if simulated > together else 0.0
    if most > MOST_WAVES * together:  # multiprocessors are out of step, and share the last wave
        return [*ends, ends[-1] + (each - simulated) * steady], simulated + 1
    while len(ends) < most:
        ends.append(ends[-together] + together * steady)
    left = total - together * gpu.multiprocessors  # blocks after the first wave
    spread = gpu["scheduler.multiprocessors_differ"]
    count = together
    for end in ends[: most - together]:
        before = fsum(min(1.0, max(0.0, (end / other - 1) * (1 - spread) / (2 * spread))) for other in ends)
        if before * gpu.multiprocessors >= left:
            break
        count += 1
    return ends, count


def utilisation(
    outcome: Outcome, scale: float, seconds: float, dram: traffic.Traffic, busy: int, gpu: Gpu
) -> dict[str, float]:
    """The share of the launch's time that each unit works; ``scale`` is all blocks over those simulated."""
    counters = outcome.counters
    cycles = seconds * gpu.clock_hz
    on_one = scale / gpu.multiprocessors  # a multiprocessor's share of all blocks over those simulated
    schedulers = 4
    sectors = counters["l2_reads"] + counters["store_sectors"] + counters["reduction_sectors"]

    def pipe(*names: str) -> float:
        return fsum(counters[f"pipe_{name}"] for name in names) * on_one / cycles / schedulers

    return {
        "issue": counters["issued"] * on_one / cycles / schedulers,
        "fma": pipe("fma") + pipe("heavy") / 2,
        "alu": pipe("alu"),
        "half": pipe("half"),
        "xu": pipe("xu"),
        "tensor": pipe("tensor"),
        "lsu": counters["lsu"] * on_one / cycles,
        "l2": sectors * scale / cycles / gpu["memory.l2_sectors_per_cycle"],
        "dram": (dram.read + dram.written) / seconds / gpu["device.dram_bytes_per_s"],
    }
