"""The GPUs that the model knows: one data file each, in ``gpus/``, with a source for every number."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, exp, log
from pathlib import Path
from typing import Any

import numpy as np

from alexconv.errors import UsageError
from alexconv.kernels.problem import Device
from alexconv.predict.opcodes import PIPES

FOLDER = Path(__file__).with_name("gpus")
WARP = 32  # threads
SECTOR = 32  # bytes


@dataclass(frozen=True)
class Gpu:
    """A GPU: ``values`` by section and name, as in its file, without their sources."""

    key: str
    name: str
    capability: tuple[int, int]
    tested: bool
    values: Mapping[str, Mapping[str, Any]]

    def __getitem__(self, place: str) -> Any:
        """A number by ``section.name``."""
        section, _, name = place.partition(".")
        return self.values[section][name]

    @property
    def clock_hz(self) -> float:
        """Clock of the multiprocessors in Hz."""
        return float(self["device.clock_hz"])

    def clock_under(self, busy: float) -> float:
        """The clock in Hz while tensor cores multiply by warpgroups for a share of the time: they draw much power."""
        return self.clock_hz + min(1.0, busy) * (float(self["device.clock_of_products_hz"]) - self.clock_hz)

    @property
    def multiprocessors(self) -> int:
        """Number of multiprocessors."""
        return int(self["device.multiprocessors"])

    @property
    def memory_bytes(self) -> int:
        """Bytes of device memory."""
        return int(self["device.memory_bytes"])

    @property
    def peaks(self) -> Mapping[str, float]:
        """Operations per second by the data sheet: fp32, and tensor cores' fp16 and tf32, dense, fp32 accumulators."""
        return {name: rate for name, rate in self.values["peaks"].items() if rate}

    @property
    def device(self) -> Device:
        """The GPU's limits as the ladder describes them."""
        limits = self.values["occupancy"]
        return Device(
            name=self.name,
            capability=self.capability,
            multiprocessors=self.multiprocessors,
            shared_per_block=limits["shared_bytes"] - limits["reserved_shared_bytes"],
            shared_per_multiprocessor=limits["shared_bytes"],
            l2_bytes=self["device.l2_bytes"],
        )

    def resident_blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Blocks that a multiprocessor holds (CUDA's occupancy calculator)."""
        limits = self.values["occupancy"]
        warps = ceil(threads / WARP)
        of_a_warp = ceil(max(registers, 1) * WARP / limits["register_unit"]) * limits["register_unit"]
        by_registers = limits["registers"] // 4 // of_a_warp * 4 // warps
        by_shared = limits["shared_bytes"] // max(1, shared_bytes + limits["reserved_shared_bytes"])
        return int(max(0, min(limits["blocks"], limits["warps"] // warps, by_registers, by_shared)))

    def l1_bytes(self, resident: int, shared_bytes: int) -> int:
        """Bytes of L1 left by ``resident`` blocks of ``shared_bytes`` each: both are carved out of one memory."""
        limits = self.values["occupancy"]
        needed = resident * (shared_bytes + limits["reserved_shared_bytes"]) / 1024
        sizes = limits["shared_sizes_kib"]
        taken = next((size for size in sizes if size >= needed), sizes[-1])
        return int(limits["l1_and_shared_bytes"] - taken * 1024)

    def slices_share(self, lines: float) -> float:
        """The share of L2's rate of additions that is left where all of them go to some lines, unevenly spread."""
        known = self["memory.reductions_in_lines"]
        counts, shares = ([log(value) for value in column] for column in zip(*known, strict=True))
        return float(min(1.0, exp(np.interp(log(max(1.0, lines)), counts, shares))))

    def parameters(
        self, busy: int, dram_read_share: float, dram_write_share: float, slices_share: float
    ) -> dict[str, float]:
        """The simulator's parameters when ``busy`` multiprocessors share L2 and device memory."""
        memory, latency = self.values["memory"], self.values["latency_cycles"]
        rates = self.values["cycles_per_warp_instruction"]
        share = min(memory["l2_sectors_per_cycle_of_one"], memory["l2_sectors_per_cycle"] / busy)
        crowd = busy / self.multiprocessors  # the file's costs at L2 are those of one multiprocessor when all are busy
        dram = self["device.dram_bytes_per_s"] / self.clock_hz / SECTOR / busy
        return {
            "issue_order": self["scheduler.issue_order"],
            "queue_depth": memory["queue_depth"],
            "tags": memory["tags_per_cycle"],
            **{
                f"latency_{name}": latency[name]
                for name in (
                    *("l1", "shared", "store", "l2", "dram", "constant", "special", "variable", "xu", "hmma", "copy"),
                    *("mbarrier", "tma", "hgmma"),
                    "barrier",
                )
            },
            **{name: latency[name] for name in ("operands_read", "branch_taken", "block_start", "address")},
            **{name: rates[name] for name in ("hmma_f16", "hmma_tf32")},
            "l2_sectors": share,
            "l2_sectors_of_one": memory["l2_sectors_per_cycle_of_one"],
            "dram_sectors": min(dram, memory["l2_sectors_per_cycle_of_one"]),
            "dram_read_share": dram_read_share,
            "dram_write_share": dram_write_share,
            **{name: memory[f"{name}_cycles"] * crowd for name in ("store_line", "store_sector", "partial_sector")},
            "reduction_sector": memory["reduction_sector_cycles"] * crowd / slices_share,
            "code_near": latency["code_near"],
            "code_far": latency["code_far"],
            "code_lines": memory["code_lines"],
            "code_lines_near": memory["code_lines_near"],
            "read_window": self["scheduler.register_read_cycles"],
            "block_interval": latency["block_interval_of_gpu"] * busy,
            "barrier_warp": latency["barrier_warp"],
            "hgmma_columns": rates["hgmma_columns_per_cycle"],
            "tma_sector": memory["tma_sector"],
            "fill_sector": memory["fill_sector_cycles"],
            "copy_sectors": memory["copy_sectors_per_cycle"],
            "port": memory["port_cycles"],
            "arguments_at": self["code.arguments_at"],
            "stores_in_flight": memory["stores_in_flight_cycles"],
            **{f"pipe_{name.lower()}": rates[name.lower()] for name in PIPES},
        }


def names() -> list[str]:
    """The GPUs that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Gpu:
    """A GPU by the name of its file; raises UsageError.

    What a file does not have is that of the GPU that it is ``like``.
    """
    path = FOLDER / f"{name}.toml"
    if name not in names():
        raise UsageError(f"unknown GPU '{name}': choose from {', '.join(names())}")
    data = tomllib.loads(path.read_text())
    like = load(data["like"]).values if "like" in data else {}
    sections = {key: section for key, section in data.items() if isinstance(section, dict)}
    values = {
        key: {**like.get(key, {}), **{parameter: entry["value"] for parameter, entry in sections.get(key, {}).items()}}
        for key in (*like, *(section for section in sections if section not in like))
    }
    return Gpu(name, data["name"], tuple(data["capability"]), data["tested"], values)


@cache
def by_device() -> dict[str, Gpu]:
    """The GPUs by their devices' names."""
    return {gpu.name: gpu for gpu in map(load, names())}


def of_device(name: str) -> Gpu:
    """The GPU with a device's name; raises UsageError if no file describes it."""
    if name in by_device():
        return by_device()[name]
    raise UsageError(f"no model of {name}: times can be predicted for {', '.join(by_device())}")


def peaks_of(name: str) -> Mapping[str, float]:
    """The data sheet's rates of the GPU with a device's name; none if no file describes it."""
    return by_device()[name].peaks if name in by_device() else {}
