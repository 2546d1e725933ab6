"""The simulator of a multiprocessor: compiled once for this machine, called through ctypes.

The names that Python and C++ share are defined here, and prepended to the C++ sources as enumerations.
"""

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from alexconv.compiling.compiled import compiled
from alexconv.compiling.toolchain import compiler_version, find_cxx, first_error
from alexconv.errors import MachineFault
from alexconv.kernels.rung import BoundingBox, Dims
from alexconv.machine import cpu_features
from alexconv.paths import cache_dir
from alexconv.predict import opcodes
from alexconv.predict.disassembly import NO_REGISTER, NO_UNIFORM, Instruction, Operand, UnknownInstruction

# The simulator's parameters, in cycles unless noted; gpu.py computes each from the GPU's data file.
PARAMETERS = (
    "issue_order",  # 0 longest waiting, 1 oldest, 2 greedy then oldest, 3 greedy then highest slot
    "queue_depth",  # memory instructions that wait in a scheduler's queue
    "address",  # from issue to the data path of L1
    "tags",  # lines that L1 looks up in a cycle
    "copy_sectors",  # that L1 reads in a cycle for asynchronous copies
    "fill_sector",  # of L1's data path, for an incoming sector
    "latency_l1",
    "latency_shared",
    "latency_store",
    "latency_l2",  # beyond L1's
    "latency_copy",  # of an asynchronous copy, beyond a load's
    "latency_dram",  # beyond L2's
    "latency_constant",
    "latency_special",
    "latency_variable",  # of an instruction that sets a scoreboard without memory
    "latency_xu",
    "latency_hmma",
    "latency_barrier",
    "hmma_f16",  # m16n8k16
    "hmma_tf32",  # m16n8k8
    "code_near",  # cycles to fetch an evicted line of code from the next cache
    "code_far",  # and from L2, as the first time
    "code_lines",  # that the first instruction cache holds
    "code_lines_near",  # and the next one
    "latency_mbarrier",
    "latency_tma",  # of a copy, beyond L2's
    "latency_hgmma",  # from a product's end to its accumulators
    "hgmma_columns",  # of a warpgroup's product in a cycle: K = 16 of fp16, 8 of tf32
    "tma_sector",  # cost at L2 of a copy's sector, relative to a load's
    "operands_read",
    "branch_taken",
    "block_start",  # from a block's end to its successor's start
    "block_interval",  # from one block's start to the next one's
    "barrier_warp",  # for each warp that arrives at a barrier
    "port",  # of one scheduler's port, for a turn at L1 and shared memory
    "l2_sectors",  # that a multiprocessor gets in a cycle
    "l2_sectors_of_one",  # where it has L2 to itself
    "dram_sectors",
    "dram_read_share",  # of sectors read from L2
    "dram_write_share",  # of sectors written to L2
    "read_window",  # cycles in which an instruction reads its registers, from two banks
    "store_line",  # cycles at L2 for each line, each sector and each partly written sector of a store
    "store_sector",
    "partial_sector",
    "reduction_sector",
    "stores_in_flight",  # cycles of stores queued for L2 before the multiprocessor stalls
    "arguments_at",  # offset of a kernel's arguments in constant bank 0
    *(f"pipe_{name.lower()}" for name in opcodes.PIPES),
)

COUNTERS = (
    *("cycles", "issued", "lanes", "lsu", "loads", "load_sectors", "load_bytes", "l1_hits", "l2_reads"),
    *("stores", "store_sectors", "store_bytes", "partial_sectors", "reductions", "reduction_sectors"),
    *("shared_loads", "shared_load_wavefronts", "shared_stores", "shared_store_wavefronts"),
    *(f"pipe_{name.lower()}" for name in opcodes.PIPES),
)

# Why a warp waits, by Nsight Compute's names.
STALLS = (
    *("wait", "long_scoreboard", "short_scoreboard", "barrier", "math_pipe_throttle", "mio_throttle", "lg_throttle"),
    *("not_selected", "gmma", "no_instruction"),
)

SPECIAL_REGISTERS = (
    *("SR_TID.X", "SR_TID.Y", "SR_TID.Z", "SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z", "SR_LANEID", "SR_CgaCtaId"),
    *("SR_SWINHI", "SRZ", "SR_CLOCKLO", "SR_CLOCKHI"),
)

KINDS = ("NONE", "R", "UR", "P", "UP", "I", "C", "M", "S", "L", "B", "G", "X")
MAX_OPERANDS = 9
ARRAY_SHIFT = 40  # bits of an address within its array: array k begins at (k + 1) << ARRAY_SHIFT
RESERVED_SHARED = 1024  # first bytes of a block's shared memory, which the system reserves
INSTRUCTION_LIMIT = 60_000_000
_MAX_PIECES = 1 << 16

_FOLDER = Path(__file__).with_name("simulator")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-fvisibility=default", "-Wno-psabi")
_HEADER_FIELDS = 11
_OPERAND_FIELDS = 10
_ROW = _HEADER_FIELDS + _OPERAND_FIELDS * (1 + MAX_OPERANDS)

Table = npt.NDArray[np.int64]


class _TensorMap(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("base", ctypes.c_uint64),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.c_int64 * 5),
        ("strides", ctypes.c_int64 * 4),
        ("box", ctypes.c_int64 * 5),
        ("im2col", ctypes.c_int64),
        ("lower", ctypes.c_int64 * 2),
        ("upper", ctypes.c_int64 * 2),
        ("steps", ctypes.c_int64 * 2),
    )


class _Setup(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_void_p),
        ("length", ctypes.c_int64),
        ("literals", ctypes.c_char_p),
        ("literal_bytes", ctypes.c_int64),
        ("grid", ctypes.c_int64 * 3),
        ("block", ctypes.c_int64 * 3),
        ("registers", ctypes.c_int64),
        ("shared_bytes", ctypes.c_int64),
        ("resident", ctypes.c_int64),
        ("l1_bytes", ctypes.c_int64),
        ("blocks", ctypes.c_void_p),
        ("block_count", ctypes.c_int64),
        ("arguments", ctypes.c_void_p),
        ("argument_count", ctypes.c_int64),
        ("maps", ctypes.c_void_p),
        ("map_count", ctypes.c_int64),
        ("parameters", ctypes.c_void_p),
        ("instruction_limit", ctypes.c_int64),
        ("footprint", ctypes.c_int64),
        ("copy_costs", ctypes.c_void_p),
        ("array_count", ctypes.c_int64),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        ("counters", ctypes.c_double * len(COUNTERS)),
        ("finished", ctypes.c_void_p),
        ("issued", ctypes.c_void_p),
        ("waited", ctypes.c_void_p),
        ("pieces", ctypes.c_void_p),
        ("piece_limit", ctypes.c_int64),
        ("piece_count", ctypes.c_int64),
        ("written", ctypes.c_int64),
        ("ended", ctypes.c_int64),
        ("message", ctypes.c_char * 256),
    )


@dataclass(frozen=True)
class Map:
    """A tensor map at ``address``: of the array at ``base``, as in ``alexconv.kernels.rung.TensorMap``."""

    address: int
    base: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    around: BoundingBox | None


@dataclass(frozen=True)
class Work:
    """Blocks of a launch on one multiprocessor, ``resident`` of them at a time.

    ``arguments`` are 64-bit words; ``shared_bytes`` is a block's, without what the system reserves.  ``copy_costs`` are
    those of a sector of each array for the copy engine, relative to one that no other block copies.
    """

    grid: Dims
    block: Dims
    shared_bytes: int
    resident: int
    l1_bytes: int
    blocks: tuple[int, ...]
    arguments: tuple[int, ...]
    maps: tuple[Map, ...] = ()
    footprint: bool = False
    copy_costs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The simulator's result.

    ``finished`` is when each block ended; ``issued`` and ``waited`` are per instruction, ``[length]`` and
    ``[length][STALLS]``.  ``pieces`` are the bytes that the first block touches, ``[n][3]``: array, first byte, bytes;
    ``written`` are the arrays that are stored to.
    """

    counters: dict[str, float]
    finished: npt.NDArray[np.float64]
    issued: npt.NDArray[np.float64]
    waited: npt.NDArray[np.float64]
    pieces: npt.NDArray[np.int64]
    written: frozenset[int]


def table(code: Sequence[Instruction]) -> Table:
    """Instructions as the simulator reads them, ``[length][_ROW]``; raises UnknownInstruction."""
    return np.array([_row(instruction) for instruction in code], np.int64)


def _row(instruction: Instruction) -> list[int]:
    opcode = opcodes.opcode(instruction)
    if len(instruction.operands) > MAX_OPERANDS:
        raise UnknownInstruction(f"more operands than the model reads: {instruction.text}")
    compares = [number for modifier in instruction.modifiers if (number := opcodes.comparison(modifier)) is not None]
    return [
        opcodes.OPS.index(opcode.op),
        opcodes.PIPES.index(opcode.pipe),
        opcodes.modifier_bits(instruction),
        compares[0] if compares else 0,
        _bytes(instruction),
        instruction.stall,
        -1 if instruction.writes is None else instruction.writes,
        -1 if instruction.reads is None else instruction.reads,
        instruction.waits,
        int(instruction.yields),
        len(instruction.operands),
        *_packed(instruction.guard),
        *(number for operand in instruction.operands for number in _packed(operand)),
        *[0] * (_OPERAND_FIELDS * (MAX_OPERANDS - len(instruction.operands))),
    ]


def _bytes(instruction: Instruction) -> int:
    """Bytes of a lane's access or of CS2R's result; columns of a warpgroup's product."""
    words = instruction.modifiers
    if instruction.name == "HGMMA":
        return int(next(word.split("x")[1] for word in words if opcodes.is_tile(word)))
    if instruction.name == "CS2R":
        return 4 if "32" in words else 8
    sizes = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    return next((sizes[word] for word in words if word in sizes), 4)


def _packed(operand: Operand) -> list[int]:
    value = (operand.value + 2**63) % 2**64 - 2**63  # 64 bits as a signed number
    if operand.kind == "S":
        if operand.name not in SPECIAL_REGISTERS:
            raise UnknownInstruction(f"the model does not know the special register {operand.name}")
        value = SPECIAL_REGISTERS.index(operand.name)
    number, uniform = operand.number, operand.uniform
    return [
        KINDS.index(operand.kind),
        number,
        value,
        uniform,
        operand.scale,
        operand.bank,
        int(operand.negative),
        int(operand.inverted),
        int(operand.reused),
        int(operand.absolute),
    ]


def registers_of(code: Sequence[Instruction]) -> int:
    """One more than the highest register that is named; a wide access may reach three beyond it."""
    operands = (operand for instruction in code for operand in instruction.operands)
    numbers = (operand.number for operand in operands if operand.kind in ("R", "M", "C"))
    return 1 + max((number for number in numbers if number != NO_REGISTER), default=0)


def simulate(
    code: Table, registers: int, work: Work, parameters: Mapping[str, float], literals: bytes = b""
) -> Outcome:
    """Runs blocks of a kernel on the multiprocessor; raises UnknownInstruction for what it cannot follow.

    ``literals`` are the constants that the compiler placed in bank 2.
    """
    length = len(code)
    values = np.array([parameters[name] for name in PARAMETERS], np.float64)
    blocks = np.array(work.blocks, np.int64)
    arguments = np.array(work.arguments, np.uint64)
    costs = np.array(work.copy_costs, np.float64)
    finished, issued = np.zeros(len(blocks)), np.zeros(length)
    waited = np.zeros((length, len(STALLS)))
    pieces = np.zeros((_MAX_PIECES if work.footprint else 1, 3), np.int64)
    maps = (_TensorMap * max(1, len(work.maps)))(*map(_map, work.maps))
    setup = _Setup(
        code=code.ctypes.data,
        length=length,
        literals=literals,
        literal_bytes=len(literals),
        grid=work.grid,
        block=work.block,
        registers=registers,
        shared_bytes=work.shared_bytes + RESERVED_SHARED,
        resident=work.resident,
        l1_bytes=work.l1_bytes,
        blocks=blocks.ctypes.data,
        block_count=len(blocks),
        arguments=arguments.ctypes.data,
        argument_count=len(arguments),
        maps=ctypes.addressof(maps),
        map_count=len(work.maps),
        parameters=values.ctypes.data,
        instruction_limit=INSTRUCTION_LIMIT,
        footprint=int(work.footprint),
        copy_costs=costs.ctypes.data,
        array_count=len(costs),
    )
    result = _Result(
        finished=finished.ctypes.data,
        issued=issued.ctypes.data,
        waited=waited.ctypes.data,
        pieces=pieces.ctypes.data,
        piece_limit=len(pieces),
    )
    if _library().simulate(ctypes.byref(setup), ctypes.byref(result)):
        raise UnknownInstruction(result.message.decode(errors="replace"))
    if result.piece_count > len(pieces):
        raise UnknownInstruction(f"a block touches more than {len(pieces)} separate runs of bytes")
    return Outcome(
        dict(zip(COUNTERS, result.counters, strict=True)),
        finished[: result.ended],
        issued,
        waited,
        pieces[: result.piece_count],
        frozenset(k - 1 for k in range(64) if result.written >> k & 1),
    )


def _map(tensor_map: Map) -> _TensorMap:
    fields = _TensorMap(tensor_map.address, tensor_map.base, len(tensor_map.dims))
    fields.dims[: len(tensor_map.dims)] = tensor_map.dims
    fields.strides[: len(tensor_map.strides)] = tensor_map.strides
    fields.box[: len(tensor_map.box)] = tensor_map.box
    fields.im2col = tensor_map.around is not None
    if box := tensor_map.around:
        fields.lower[:], fields.upper[:], fields.steps[:] = box.lower, box.upper, box.steps
    return fields


@cache
def simulator_texts() -> tuple[str, ...]:
    """The simulator's C++ files."""
    return tuple(file.read_text() for file in sorted(_FOLDER.iterdir()))


@cache
def _library() -> ctypes.CDLL:
    """The compiled simulator; raises MissingTool and MachineFault: no kernel is at fault."""
    cxx = find_cxx()
    source = _enumerations() + "".join(f'#include "{_FOLDER / name}"\n' for name in ("simulator.cpp",))
    texts = [source, *simulator_texts()]
    key = sha256(repr((cxx, compiler_version(cxx), _FLAGS, texts, cpu_features())).encode()).hexdigest()[:32]

    def build(target: Path) -> None:
        command = [cxx, *_FLAGS, "-I", str(_FOLDER), "-x", "c++", "-", "-o", str(target)]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MachineFault(f"the simulator of predictions does not compile: {first_error(done.stderr)}")

    path = cache_dir("simulator") / f"simulator-{key}.so"
    compiled(path, build)
    return ctypes.CDLL(str(path))


def _enumerations() -> str:
    """The shared names as C++."""

    def enumeration(prefix: str, names: Sequence[str], last: str = "") -> str:
        words = [f"{prefix}{name.replace('.', '_').upper()}" for name in names]
        return f"enum {{ {', '.join([*words, last] if last else words)} }};\n"

    modifiers = "".join(
        f"constexpr long long MODIFIER_{name} = 1ll << {bit};\n" for bit, name in enumerate(opcodes.MODIFIERS)
    )
    parameters = [f"P_{name.upper()}" for name in PARAMETERS]
    return (
        enumeration("OP_", opcodes.OPS)
        + enumeration("PIPE_", opcodes.PIPES, "PIPES")
        + enumeration("COMPARE_", opcodes.COMPARES)
        + enumeration("C_", COUNTERS, "COUNTERS")
        + enumeration("S_", STALLS, "STALLS")
        + enumeration("", [name.replace("SRZ", "SR_ZERO") for name in SPECIAL_REGISTERS])
        + f"enum Parameter {{ {', '.join(parameters)}, PARAMETERS }};\n"
        + "constexpr int P_PIPE_FIRST = P_PIPE_NONE, C_PIPE_FIRST = C_PIPE_NONE;\n"
        + f"constexpr int ARRAY_SHIFT = {ARRAY_SHIFT};\n"
        + modifiers
    )


assert NO_UNIFORM == 63  # as in machine.h
