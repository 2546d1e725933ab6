"""The top of the report: where the figures come from, what they are relative to, and the main table."""

from collections.abc import Iterable

from alexconv.records.store import Record
from alexconv.records.summary import Row, rows
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import Measurements, name_of
from alexconv.reports.published import ALEXNET_GPU, ALEXNET_STUDY

KILO, GIBIBYTE = 1000, 2**30


def facts(measurements: Measurements) -> list[tuple[str, str]]:
    """Name and value of everything that the records say about machine and software."""
    device = measurements.device
    found = [("Device", device_line(device))]
    found += [("Driver", str(device["driver"]))] if device.get("driver") else []
    found += [("Toolkit", f"CUDA {device['toolkit']}")] if device.get("toolkit") else []
    found += [("Clocks", clocks(device))] if device.get("clock_khz") else []
    found += [("Compiler", str(device["compiler"]))] if device.get("compiler") else []
    for host in measurements.of_type("host"):
        found.append(("CPU", f"{host.get('cpu', '?')}, {host.get('cores', '?')} cores, {host.get('system', '')}"))
    runs = measurements.of_type("run")
    found += [("Commit", text) for text in once(commit(run) for run in runs)]
    found += [("Packages", text) for text in once(packages(run) for run in runs)]
    return found + [("Command", text) for text in once(str(run.get("command", "?")) for run in runs)]


def once(texts: Iterable[str]) -> list[str]:
    """Each text once, without the empty."""
    return [text for text in dict.fromkeys(texts) if text]


def device_line(device: Record) -> str:
    """Name and size of the device."""
    parts = [name_of(device) if device.get("backend") != "host" else "the host executor"]
    if device.get("multiprocessors"):
        parts.append(f"{device['multiprocessors']} multiprocessors")
    if device.get("memory_bytes"):
        parts.append(f"{device['memory_bytes'] / GIBIBYTE:.0f} GiB")
    return ", ".join(parts)


def clocks(device: Record) -> str:
    """Highest clocks in MHz."""
    memory = device.get("memory_clock_khz")
    text = f"{device['clock_khz'] / KILO:.0f} MHz"
    return f"{text}, memory {memory / KILO:.0f} MHz" if memory else text


def commit(run: Record) -> str:
    """Commit and whether the tree had changes."""
    name = run.get("commit")
    return "" if not name else f"{name} with local changes" if run.get("dirty") else str(name)


def packages(run: Record) -> str:
    """Versions of the packages that matter."""
    versions = {"alexconv": run.get("alexconv"), "python": run.get("python"), **(run.get("packages") or {})}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def bases(measurements: Measurements) -> list[tuple[str, str]]:
    """What every speedup in the report is relative to."""
    hosts = " or ".join(once(str(host.get("cpu", "")) for host in measurements.of_type("host"))) or "an unnamed CPU"
    cores = " or ".join(once(str(host.get("cores", "")) for host in measurements.of_type("host"))) or "all"
    scaled = sum("serial_scaled_from" in (point.record.get("cpu") or {}) for point in measurements.points)
    note = (
        f" In {scaled} of {len(measurements.points)} points it is scaled up from fewer images than N." if scaled else ""
    )
    return [
        ("Serial CPU", f"a plain seven-loop C++ convolution, -O2, one core of {hosts}.{note}"),
        ("BLAS", f"im2col and matrix product in float32 on all {cores} cores of {hosts}"),
        ("Published", f"each study's own serial CPU run; {ALEXNET_STUDY} ran its kernels on a {ALEXNET_GPU}"),
        ("Gain", "another rung, or a peer, on the same device and in the same run: named where it is used"),
    ]


def section(measurements: Measurements) -> Section:
    """The main table of every workload: sums over the layers, then layer by layer."""
    items: list[Table | Plot] = []
    for workload in measurements.workloads:
        found = [row for row in rows(point.record for point in measurements.points) if row.workload == workload]
        whole = [row for row in found if row.layer is None]
        if measurements.timed and whole:
            items.append(
                Table(
                    f"{workload}-overview",
                    f"{workload}: all measured layers together",
                    "Medians in ms per batch. Speedups: serial CPU, and BLAS on all cores, over the total.",
                    ("N", "rung", "transfer", "layers", *TIMES, "max error", "status"),
                    [
                        (row.N, row.rung, row.transfer, layers_of(row, found), *timed(row), row.error, row.status)
                        for row in whole
                    ],
                )
            )
        if measurements.timed:
            items.append(
                Table(
                    f"{workload}-layers",
                    f"{workload}: layer by layer",
                    "As above, every point.",
                    ("N", "layer", "rung", "transfer", *TIMES, "max error", "status"),
                    [
                        (row.N, row.layer, row.rung, row.transfer, *timed(row), row.error, row.status)
                        for row in found
                        if row.layer is not None
                    ],
                    long=True,
                )
            )
    text = "Kernel: all kernels of the rung on the device. Total: host arrays to host arrays, allocation apart."
    return Section("overview", "Results", text, items)


TIMES = ("kernel (ms)", "copies (ms)", "total (ms)", "speedup, serial (×)", "speedup, BLAS (×)")


def layers_of(whole: Row, found: list[Row]) -> str:
    """The layers that a sum is over."""
    same = (whole.N, whole.rung, whole.transfer)
    return ", ".join(str(row.layer) for row in found if row.layer and (row.N, row.rung, row.transfer) == same)


def timed(row: Row) -> tuple[Cell, ...]:
    """Times and speedups of a row."""
    return row.kernel, row.copies, row.total, row.speedup("total"), row.speedup("total", "blas")
