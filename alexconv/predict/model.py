"""The time of a rung's launches on a GPU: blocks on one multiprocessor, waves of them, device memory, overheads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import ceil, fsum, isqrt, prod, sqrt
from statistics import fmean

from alexconv.compiling import nvcc
from alexconv.kernels.bound import BoundRung, LaunchConfig
from alexconv.kernels.rung import BATCH, BIAS, Dims, bounding_box
from alexconv.predict import cubins, disassembly, native, traffic
from alexconv.predict.disassembly import UnknownInstruction
from alexconv.predict.gpu import SECTOR, WARP, Gpu
from alexconv.predict.native import ARRAY_SHIFT, Outcome, Work
from alexconv.predict.opcodes import COMPILERS

FEWEST_WAVES, MOST_WAVES = 3, 12  # of blocks that are simulated
ENOUGH_ISSUED = 1_500_000  # instructions of all warps; fewer waves where a block has many
NEIGHBOURS = 1, 2, 3  # blocks after one, which run at the same time: do they copy the same?
GOLDEN_RATIO = (sqrt(5) - 1) / 2
TRIED = 12  # blocks of a small grid that are run alone, to see which have work
WORKS = 0.2  # of the busiest block's instructions
SCHEDULERS = 4  # of a multiprocessor
FEW_WAVES = 2  # or fewer: single blocks decide the time
SLOWER = 1.05  # than a block in the middle
# Blocks of one multiprocessor are 132, 124 or 82 apart at first, later any number (measured: placement).  The model
# takes a prime, without common factors with the sizes of a grid: 127 of 132, 103 of 108, 31 of 40.
OUT_OF_STEP = 5  # at least
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
    literals: bytes = b""  # constant bank 2

    @cached_property
    def table(self) -> native.Table:
        """The code as the simulator reads it; raises UnknownInstruction."""
        return native.table(self.code)

    @property
    def has_products_of_warpgroups(self) -> bool:
        """Whether it multiplies by wgmma."""
        return any(instruction.name == "HGMMA" for instruction in self.code)

    @property
    def has_copies(self) -> bool:
        """Whether the copy engine brings its operands."""
        return any(instruction.name in ("UTMALDG", "UBLKCP") for instruction in self.code)

    @cached_property
    def named_registers(self) -> int:
        """Registers that the code names."""
        return native.registers_of(self.code)


@dataclass(frozen=True)
class Prediction:
    """A launch: ``seconds`` with its overhead, the busy share of each unit, and what was simulated.

    ``blocks_per_multiprocessor`` is their mean number; ``simulated`` is how many were run.
    """

    entry: str
    seconds: float
    overhead: float
    dram_bytes: tuple[float, float]  # read, written
    utilisation: dict[str, float]
    resident: int
    occupancy: float
    blocks_per_multiprocessor: float
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
        kernels = read_kernels(
            disassembly.disassembled(cubin), cubins.needs(cubin, arch), bound.entries(), cubins.literals(cubin)
        )
        if not all(len(kernel.table) for kernel in kernels.values()):
            raise UnknownInstruction("a kernel without instructions")
    except UnknownInstruction as error:
        raise UnknownInstruction(
            f"{bound.rung.name} by nvcc {nvcc.nvcc_version()}: {error}; use nvcc {COMPILERS}, or add it to "
            "alexconv/predict/opcodes.py"
        ) from None
    return kernels


def read_kernels(
    text: str, needs: Mapping[str, cubins.Needs], entries: Sequence[str], literals: Mapping[str, bytes] | None = None
) -> dict[str, Kernel]:
    """The kernels of nvdisasm's text, with their constant bank 2; raises UnknownInstruction."""
    code = disassembly.kernels(text)
    return {
        entry: Kernel(entry, tuple(code[entry]), needs[entry], (literals or {}).get(entry, b"")) for entry in entries
    }


def predict(bound: BoundRung, kernels: Mapping[str, Kernel], images: int, gpu: Gpu) -> list[Prediction]:
    """The launches of a rung over ``images`` images, in order.

    Micro-batches of the same size are predicted once.  Raises UnknownInstruction.
    """
    constants, cached = bound.filter_bytes(), gpu["memory.constant_cache_bytes"]
    if bound.rung.constant_symbol and constants > cached:
        raise UnknownInstruction(
            f"{constants} bytes of constant memory: the model has no misses of the constant cache of {cached} bytes"
        )
    predictions: list[Prediction] = []
    by_count: dict[int, list[Prediction]] = {}
    for _, count in bound.micro_batches(images):
        launches = bound.launches(count)
        if count not in by_count:
            by_count[count] = [predict_launch(launch, kernels[launch.entry], bound, count, gpu) for launch in launches]
        for number, (launch, prediction) in enumerate(zip(launches, by_count[count], strict=True)):
            follows = "dependent" if launch.pdl and number else "next"
            overhead = gpu[f"launch.{follows if predictions else 'first'}_seconds"]
            predictions.append(replace(prediction, seconds=prediction.seconds + overhead, overhead=overhead))
    return predictions


@dataclass(frozen=True)
class Simulator:
    """Runs some of a launch's blocks on one multiprocessor."""

    kernel: Kernel
    work: Work
    gpu: Gpu
    slices_share: float = 1.0  # of L2, that additions reach

    @property
    def total(self) -> int:
        """Blocks of the launch."""
        return prod(self.work.grid)

    def run(self, work: Work, busy: int, read_share: float = 0, write_share: float = 0) -> Outcome:
        """Blocks of the work, while ``busy`` multiprocessors share the L2 cache and device memory.

        The shares are those of sectors read and written that come from, or go to, device memory.
        """
        parameters = self.gpu.parameters(busy, read_share, write_share, self.slices_share)
        return native.simulate(self.kernel.table, self.kernel.named_registers, work, parameters, self.kernel.literals)

    def alone(self, block: int) -> Outcome:
        """A block with its multiprocessor to itself, and the addresses that it accesses."""
        return self.run(replace(self.work, footprint=True, blocks=(block,)), min(self.total, self.gpu.multiprocessors))


@dataclass(frozen=True)
class Representative:
    """A block that stands for all, run alone; the slowest block where it decides the time; multiprocessors at work."""

    outcome: Outcome
    slowest: int | None
    busy: int


def predict_launch(launch: LaunchConfig, kernel: Kernel, bound: BoundRung, images: int, gpu: Gpu) -> Prediction:
    """One launch over ``images`` images, without its overhead; raises UnknownInstruction."""
    shared = kernel.needs.static_shared + launch.dynamic_shared
    resident = gpu.resident_blocks(prod(launch.block), kernel.needs.registers, shared)
    if not resident:
        raise UnknownInstruction(f"{launch.entry}: a multiprocessor cannot hold one block")
    arrays = addresses(bound)
    arguments = tuple(images if name == BATCH else arrays[name] for name in launch.args)
    l1_bytes = gpu.l1_bytes(resident, shared)
    work = Work(launch.grid, launch.block, shared, 1, l1_bytes, (0,), arguments, maps(bound, images))
    simulator = Simulator(kernel, work, gpu)
    block = representative(simulator, resident)
    dram = traffic.of_launch(launch.grid, block.outcome, simulator.alone, array_bytes(bound, images), gpu)
    if block.outcome.counters["reduction_sectors"]:
        running = min(simulator.total, resident * gpu.multiprocessors)
        lines = traffic.lines_added_to(launch.grid, block.outcome, simulator.alone, running)
        simulator = replace(simulator, slices_share=gpu.slices_share(lines))
    if kernel.has_copies and simulator.total > 1:
        costs = copy_costs(simulator, block.outcome, len(arrays))
        simulator = replace(simulator, work=replace(work, copy_costs=costs))
    outcome, simulated, cycles = steady_state(simulator, block, resident, dram)
    scale = (block.busy if simulator.total <= gpu.multiprocessors else simulator.total) / simulated
    busy = outcome.counters["pipe_tensor"] * scale / gpu.multiprocessors / cycles / SCHEDULERS
    clock = gpu.clock_under(busy) if kernel.has_products_of_warpgroups else gpu.clock_hz
    seconds = max(cycles / clock, (dram.read + dram.written) / gpu["device.dram_bytes_per_s"])
    blocks_per_multiprocessor = simulator.total / gpu.multiprocessors
    return Prediction(
        entry=launch.entry,
        seconds=seconds,
        overhead=0.0,
        dram_bytes=(dram.read, dram.written),
        utilisation=utilisation(outcome, scale, seconds, dram, gpu),
        resident=resident,
        occupancy=resident * ceil(prod(launch.block) / WARP) / gpu["occupancy.warps"],
        blocks_per_multiprocessor=blocks_per_multiprocessor,
        waves=blocks_per_multiprocessor / resident,
        simulated=simulated,
        needs=kernel.needs,
        dynamic_shared=launch.dynamic_shared,
        multiprocessors=gpu.multiprocessors,
        outcome=outcome,
    )


def copy_costs(simulator: Simulator, one: Outcome, arrays: int) -> tuple[float, ...]:
    """The cost of a sector of each array for the copy engine: L2 serves blocks that copy the same bytes together."""
    central = middle(simulator.work.grid)
    neighbours = {central + step if central + step < simulator.total else central - step for step in NEIGHBOURS}
    shares = [traffic.shared_with(one, simulator.alone(block)) for block in neighbours if 0 <= block != central]
    shared = {array: fmean(share.get(array, 0.0) for share in shares) for array in range(arrays)}
    return tuple(1 + shared[array] * (simulator.gpu["memory.tma_shared"] - 1) for array in range(arrays))


def representative(simulator: Simulator, resident: int) -> Representative:
    """A block in the middle of the grid, or the slowest of a small grid, whose blocks may have unequal work."""
    total, multiprocessors = simulator.total, simulator.gpu.multiprocessors
    central, busy = middle(simulator.work.grid), min(total, multiprocessors)
    outcomes = {central: simulator.alone(central)}
    slowest = None  # with few blocks, one that takes longer than the others decides
    if total <= FEW_WAVES * resident * multiprocessors:
        outcomes |= {block: simulator.alone(block) for block in few(total, multiprocessors)}
        longest = max(outcomes, key=lambda block: outcomes[block].finished[-1])
        if outcomes[longest].finished[-1] > SLOWER * outcomes[central].finished[-1]:
            slowest = longest
    if total > multiprocessors:
        return Representative(outcomes[central], slowest, busy)
    slowest = central if slowest is None else slowest  # few, long blocks may leave some of them without work
    least = WORKS * outcomes[slowest].counters["issued"]
    working = sum(outcome.counters["issued"] > least for outcome in outcomes.values())
    return Representative(outcomes[slowest], slowest, max(1, round(total * working / len(outcomes))))


def steady_state(
    simulator: Simulator, block: Representative, resident: int, dram: traffic.Traffic
) -> tuple[Outcome, int, float]:
    """Waves of blocks on one multiprocessor: the outcome, how many blocks were simulated, the launch's cycles."""
    total, gpu, counters = simulator.total, simulator.gpu, block.outcome.counters
    together = min(resident, max(1, ceil(total / gpu.multiprocessors)))
    reads = max(1.0, total * counters["l2_reads"])
    writes = max(1.0, total * (counters["store_sectors"] + counters["reduction_sectors"]))
    shares = min(1.0, dram.read / SECTOR / reads), min(1.0, dram.written / SECTOR / writes)

    def run(blocks: tuple[int, ...]) -> Outcome:
        return simulator.run(replace(simulator.work, resident=together, blocks=blocks), block.busy, *shares)

    blocks = sample(total, gpu.multiprocessors, together, counters["issued"], block.slowest)
    outcome = run(blocks)
    ends, count = all_ends(outcome, together, total, gpu)
    if count < len(blocks):  # earlier multiprocessors take the others: fewer run together at the end
        blocks = blocks[-count:]
        outcome = run(blocks)
        ends = outcome.finished.tolist()
    return outcome, len(blocks), float(ends[count - 1])


@cache
def _names(bound: BoundRung) -> tuple[str, ...]:
    rung = bound.rung
    arrays = [array.name for array in (*rung.working_arrays(bound.conv), *rung.prepared)]
    maps, bias = [tensor_map.name for tensor_map in rung.maps], [BIAS] if bound.conv.bias else []
    return (bound.roles.x, bound.roles.w, bound.roles.y, *arrays, *maps, *bias)


def addresses(bound: BoundRung) -> dict[str, int]:
    """Address of each array of a rung, far from the others."""
    return {name: (k + 1) << ARRAY_SHIFT for k, name in enumerate(_names(bound))}


def maps(bound: BoundRung, images: int) -> tuple[native.Map, ...]:
    """The rung's tensor maps for ``images`` images."""
    problem, address = bound.problem(images), addresses(bound)
    return tuple(
        native.Map(
            address[tensor_map.name],
            address[tensor_map.array],
            tensor_map.dims(problem),
            tensor_map.strides(problem),
            tensor_map.box(problem),
            bounding_box(tensor_map.window(problem)) if tensor_map.window else None,
        )
        for tensor_map in bound.rung.maps
    )


def array_bytes(bound: BoundRung, images: int) -> dict[int, int]:
    """Bytes of each array for ``images`` images, by its number in ``addresses``."""
    filters = {bound.roles.w: bound.filter_bytes(images), BIAS: bound.bias_bytes()}
    sizes = bound.piece_bytes(images) | bound.prepared_bytes() | filters
    return {k: sizes[name] for k, name in enumerate(_names(bound)) if name in sizes}


def few(total: int, multiprocessors: int) -> set[int]:
    """Blocks spread over a small grid; the first and the last of one with more blocks than multiprocessors.

    The golden ratio spreads them over the blocks of each tile too: the last that arrives there adds the others' sums.
    """
    if total > multiprocessors:
        return {0, total - 1}
    return {int(total * (number * GOLDEN_RATIO % 1)) for number in range(TRIED)} if total > TRIED else set(range(total))


def middle(grid: Dims) -> int:
    """The number of a block away from the grid's edges."""
    x, y, z = (size // 2 for size in grid)
    return x + grid[0] * (y + grid[1] * z)


def blocks_apart(multiprocessors: int) -> int:
    """How far apart in the grid the blocks of one multiprocessor are."""
    sizes = range(multiprocessors - OUT_OF_STEP, 1, -1)
    return next((size for size in sizes if all(size % k for k in range(2, isqrt(size) + 1))), 1)


def sample(total: int, multiprocessors: int, together: int, issued: float, slowest: int | None) -> tuple[int, ...]:
    """The blocks to simulate: as many as one multiprocessor may get, or some of its waves spread over the grid.

    Blocks at the edge of a plane do less than others, so the first waves would not represent all.  ``issued`` is the
    number of one block's instructions; ``slowest``, if not None, becomes the last block.
    """
    most = together * ceil(total / multiprocessors / together)
    waves = max(FEWEST_WAVES, min(MOST_WAVES, int(ENOUGH_ISSUED / max(1.0, issued * together))))
    count = waves * together
    apart = blocks_apart(multiprocessors)
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
    mean_blocks = total / gpu.multiprocessors
    ends = [float(end) for end in outcome.finished]
    simulated, most = len(ends), together * ceil(mean_blocks / together)
    steady = (ends[simulated - together] - ends[0]) / (simulated - together) if simulated > together else 0.0
    if most > MOST_WAVES * together:  # multiprocessors are out of step, and share the last wave
        return [*ends, ends[-1] + (mean_blocks - simulated) * steady], simulated + 1
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


def utilisation(outcome: Outcome, scale: float, seconds: float, dram: traffic.Traffic, gpu: Gpu) -> dict[str, float]:
    """The share of the launch's time that each unit works; ``scale`` is all blocks with work over those simulated."""
    counters = outcome.counters
    cycles = seconds * gpu.clock_hz
    on_one = scale / gpu.multiprocessors  # a multiprocessor's share of all blocks over those simulated
    sectors = counters["l2_reads"] + counters["store_sectors"] + counters["reduction_sectors"]

    def pipe(*names: str) -> float:
        return fsum(counters[f"pipe_{name}"] for name in names) * on_one / cycles / SCHEDULERS

    return {
        "issue": counters["issued"] * on_one / cycles / SCHEDULERS,
        "fma": pipe("fma") + pipe("heavy") / 2,
        "alu": pipe("alu"),
        "half": pipe("half"),
        "xu": pipe("xu"),
        "tensor": pipe("tensor"),
        "lsu": counters["lsu"] * on_one / cycles,
        "l2": sectors * scale / cycles / gpu["memory.l2_sectors_per_cycle"],
        "dram": (dram.read + dram.written) / seconds / gpu["device.dram_bytes_per_s"],
    }
