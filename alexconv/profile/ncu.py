"""Nsight Compute, NVIDIA's kernel profiler: which counters are read, under which plain names, and how.

Its command line runs a program and writes a report; the report is read with Nsight Compute's Python module or, if that
does not load, as CSV from the command line.
"""

import csv
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alexconv.errors import LaunchError
from alexconv.kernels.geometry import WARP

INSTALLED = ("/usr/local/cuda/bin", *map(str, sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)))
PERMISSION = "ERR_NVGPUCTRPERM"

_PEAK = ".avg.pct_of_peak_sustained"
STALLS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "no_instruction", "not_selected", "short_scoreboard"),
    *("sleeping", "tex_throttle", "wait"),
)
METRICS: dict[str, str] = {
    "duration_ns": "gpu__time_duration.sum",
    "clock_hz": "smsp__cycles_elapsed.avg.per_second",
    "sm_elapsed_cycles": "sm__cycles_elapsed.max",
    "sm_active_cycles": "sm__cycles_active.avg",
    "waves": "launch__waves_per_multiprocessor",
    "registers": "launch__registers_per_thread",
    "static_shared_bytes": "launch__shared_mem_per_block_static",
    "dynamic_shared_bytes": "launch__shared_mem_per_block_dynamic",
    "theoretical_occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "achieved_occupancy": f"sm__warps_active{_PEAK}_active",
    "active_lanes": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "branch_efficiency": "smsp__sass_average_branch_targets_threads_uniform.pct",
    "global_load_efficiency": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "global_store_efficiency": "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
    "global_load_sectors_per_request": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "global_store_sectors_per_request": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "shared_load_requests": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_requests": "smsp__inst_executed_op_shared_st.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_load_bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "dram_throughput": f"dram__throughput{_PEAK}_elapsed",
    "l2_throughput": f"lts__throughput{_PEAK}_elapsed",
    "l2_hit_rate": "lts__t_sector_hit_rate.pct",
    "l1_throughput": f"l1tex__throughput{_PEAK}_active",
    "l1_hit_rate": "l1tex__t_sector_hit_rate.pct",
    "sm_throughput": f"sm__throughput{_PEAK}_elapsed",
    "fma_pipe": f"sm__pipe_fma_cycles_active{_PEAK}_active",
    "tensor_pipe": f"sm__pipe_tensor_cycles_active{_PEAK}_active",
    "issue_slots": f"sm__inst_issued{_PEAK}_active",
    **{f"stall_{reason}": f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in STALLS},
}
OF_WGMMA = {"stall_gmma": "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"}
HOPPER = 9  # major compute capability; Nsight Compute refuses a metric that a GPU does not have
ALL = METRICS | OF_WGMMA
_PLAIN = {name: plain for plain, name in ALL.items()}

Metrics = dict[str, float]


class NoCounters(Exception):
    """Nsight Compute is missing or not permitted to read the counters; the text says what to do about it."""


@dataclass(frozen=True)
class Kernel:
    """One profiled launch, in the order of launching."""

    entry: str
    metrics: Metrics


def find_ncu() -> Path:
    """Nsight Compute's command line: on the PATH, or where NVIDIA's installers put it.  Raises NoCounters."""
    if path := shutil.which("ncu", path=os.pathsep.join([os.environ.get("PATH", ""), *INSTALLED])):
        return Path(path)
    raise NoCounters("Nsight Compute's command line (ncu) is not on the PATH; install NVIDIA Nsight Compute")


def metrics_of(capability: tuple[int, int]) -> dict[str, str]:
    """The counters that a GPU has, by their plain names."""
    return ALL if capability[0] == HOPPER else METRICS


def profile(ncu: Path, command: Sequence[str], metrics: Mapping[str, str] = METRICS) -> list[Kernel]:
    """The kernels that a program launches between cuProfilerStart and cuProfilerStop, with their metrics.

    Raises NoCounters if the driver does not let this user read counters, LaunchError if the program or the profiler
    fails.
    """
    with tempfile.TemporaryDirectory(prefix="alexconv-ncu-") as folder:
        report = Path(folder) / "report.ncu-rep"
        options = ("--clock-control", "none", "--profile-from-start", "off", "--target-processes", "application-only")
        words = [*options, "--metrics", ",".join(metrics.values()), "--export", str(report), *command]
        done = subprocess.run([ncu, *words], capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        if PERMISSION in output:
            raise NoCounters(
                f"the driver lets only administrators read the GPU's counters ({PERMISSION}): run as root, in a"
                " container with --cap-add=SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
            )
        if done.returncode or not report.is_file():
            raise LaunchError(f"Nsight Compute failed: {_reason(output)}")
        return read_report(ncu, report)


def read_report(ncu: Path, report: Path) -> list[Kernel]:
    """The kernels of a report file; raises LaunchError if nothing can read it."""
    try:
        module = _report_module(ncu)
    except ImportError:
        words = ("--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function")
        done = subprocess.run([ncu, "--import", report, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LaunchError(f"Nsight Compute cannot read its report: {_reason(done.stdout + done.stderr)}") from None
        return parse_csv(done.stdout)
    return [_kernel(action) for action in _actions(module.load_report(str(report)))]


def parse_csv(text: str) -> list[Kernel]:
    """The kernels of ``ncu --csv --page raw``: a line of names, a line of units, a line per launch."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = csv.DictReader(lines)
    next(rows, None)  # units
    return [Kernel(row["Kernel Name"], complete(_numbers(row))) for row in rows]


def complete(metrics: Metrics) -> Metrics:
    """The metrics and those derived from them: warp efficiency, wavefronts per request."""
    derived = {}
    if "active_lanes" in metrics:
        derived["warp_execution_efficiency"] = 100 * metrics["active_lanes"] / WARP
    for operation in ("load", "store"):
        requests = metrics.get(f"shared_{operation}_requests")
        if requests and (wavefronts := metrics.get(f"shared_{operation}_wavefronts")) is not None:
            derived[f"shared_{operation}_wavefronts_per_request"] = wavefronts / requests
    return metrics | derived


def _numbers(row: Mapping[str, str | None]) -> Metrics:
    metrics = {}
    for name, text in row.items():
        if name in _PLAIN:
            try:
                metrics[_PLAIN[name]] = float((text or "").replace(",", ""))
            except ValueError:  # n/a
                continue
    return metrics


def _report_module(ncu: Path) -> Any:
    """The Python module of this installation; ImportError where it is absent or does not fit this Python."""
    folder = ncu.resolve().parent
    candidates = [parent / "extras" / "python" for parent in (folder, *folder.parents[:3])]
    python_folder = next((str(path) for path in candidates if path.is_dir()), None)
    if python_folder is None:
        raise ImportError("no extras/python beside ncu")
    sys.path.append(python_folder)
    try:
        return importlib.import_module("ncu_report")
    finally:
        sys.path.remove(python_folder)


def _actions(report: Any) -> Iterator[Any]:
    for i in range(report.num_ranges()):
        profiled = report.range_by_idx(i)
        for j in range(profiled.num_actions()):
            yield profiled.action_by_idx(j)


def _kernel(action: Any) -> Kernel:
    there = set(action.metric_names())
    values = {plain: action.metric_by_name(name).as_double() for plain, name in ALL.items() if name in there}
    return Kernel(action.name(), complete({plain: value for plain, value in values.items() if value == value}))


def _reason(output: str) -> str:
    """The most informative line: the profiler's own error, else the program's last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("==ERROR==", "error:"))]
    return next(iter(errors or lines[-1:]), "it said nothing")
