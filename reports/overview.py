"""The first sections of the report: origin of the figures, bases of speedups, and the main table."""

from collections import Counter
from collections.abc import Iterable, Sequence

from alexconv.records.faults import possible
from alexconv.records.labels import device_name
from alexconv.records.store import Record
from alexconv.records.summary import Row, rows
from alexconv.reports.elements import Cell, Faster, Section, Table, shown
from alexconv.reports.measurements import SHORT, Measured, Measurements, Run
from alexconv.reports.published import ALEXNET_GPU, ALEXNET_STUDY

KILO, GIBIBYTE = 1000, 2**30


def facts(measurements: Measurements) -> list[tuple[str, str]]:
    """Name and value of everything in the records about machine and software."""
    device = measurements.device
    used = [point.run.card for point in measurements.every]
    cards = [
        card for card in dict.fromkeys([*used, *sorted(measurements.cards.values())]) if card != device_name(device)
    ]
    entries = [("Device", device_line(device))]
    entries += [("Cards", f"{len(cards)}: {', '.join(cards)}")] if len(cards) > 1 else []
    entries += [("Driver", str(device["driver"]))] if device.get("driver") else []
    entries += [("Toolkit", f"CUDA {device['toolkit']}")] if device.get("toolkit") else []
    entries += [("Clocks", clocks(device))] if device.get("clock_khz") else []
    entries += [("Compiler", str(device["compiler"]))] if device.get("compiler") else []
    for host in measurements.of_type("host"):
        entries.append(("CPU", f"{host.get('cpu', '?')}, {host.get('cores', '?')} cores, {host.get('system', '')}"))
    runs = own_runs(measurements)
    entries += [("Commit", text) for text in once(commit(run) for run in runs)]
    entries += [("Packages", text) for text in once(packages(run) for run in runs)]
    return entries + [("Command", text) for text in once(str(run.get("command", "?")) for run in runs)]


def own_runs(measurements: Measurements) -> list[Record]:
    """The runs of the device's own records: pages of layers may show timelines of another device."""
    others = [record for record in measurements.of_type("timeline") if record.get("device") not in measurements.cards]
    elsewhere = {record.get("run") for record in others} - {point.record.get("run") for point in measurements.every}
    return [run for run in measurements.of_type("run") if run.get("key") not in elsewhere]


def once(texts: Iterable[str]) -> list[str]:
    """Each text once, without the empty."""
    return [text for text in dict.fromkeys(texts) if text]


def device_line(device: Record) -> str:
    """Name and size of the device."""
    parts = [device_name({"name": f"the {device.get('backend')} executor"} | device)]
    if device.get("multiprocessors"):
        parts.append(f"{device['multiprocessors']} multiprocessors")
    if device.get("memory_bytes"):
        parts.append(f"{rounded(device['memory_bytes'], GIBIBYTE)} GiB")
    return ", ".join(parts)


def clocks(device: Record) -> str:
    """Highest clocks in MHz."""
    memory = device.get("memory_clock_khz")
    text = f"{rounded(device['clock_khz'], KILO)} MHz"
    return f"{text}, memory {rounded(memory, KILO)} MHz" if memory else text


def rounded(value: object, unit: float) -> str:
    """A header's number in a unit; a question mark if it is no number, as in a damaged file."""
    return f"{value / unit:.0f}" if isinstance(value, int | float) and possible(value) else "?"


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
    used = [run for run in map(measurements.baseline, measurements.workloads) if run]
    hosts = " or ".join(once(str(run.host.get("cpu", "")) for run in used)) or "an unnamed CPU"
    cores = " or ".join(once(str(run.host.get("cores", "")) for run in used)) or "all"
    scaled = sum("serial_scaled_from" in (point.record.get("cpu") or {}) for point in measurements.points)
    note = (
        f" In {scaled} of {len(measurements.points)} points it is scaled up from fewer images than N." if scaled else ""
    )
    if len(measurements.runs) > 1:
        note += " Each table takes it from one run, named in its caption."
    return [
        ("Serial CPU", f"a plain seven-loop C++ convolution, -O2, one core of {hosts}.{note}"),
        ("BLAS", f"im2col and matrix product in float32 on all {cores} cores of {hosts}"),
        ("Published", f"each study's own serial CPU run; {ALEXNET_STUDY} ran its kernels on a {ALEXNET_GPU}"),
        (
            "Gain",
            "another rung, or a peer: named where it is used, of the same run unless the caption says otherwise",
        ),
    ]


def section(measurements: Measurements, workload: str) -> Section:
    """The main table of a workload: sums over the layers, then layer by layer."""
    run_rows = rows_of_runs(measurements, workload)
    base = measurements.baseline(workload)
    basis = f" CPU times: those of {base.text}." if base else ""
    sums = sums_table(workload, run_rows, basis)
    rows = [
        (row.N, row.layer, row.rung, row.transfer, *timed(row), *ends(run, row))
        for run, row in run_rows
        if row.layer is not None
    ]
    columns = ("N", "layer", "rung", "transfer", *TIMES, "max error", "status", "run")
    title, filters = f"{workload}: layer by layer", ("N", "layer", "transfer")
    layers = Table(
        f"{workload}-layers", title, f"As above, every point.{basis}", columns, rows, long=True, filters=filters
    )
    text = (
        "Kernel: all kernels of the rung on the device. Total: host arrays to host arrays, without allocation. Each "
        "time is the median of its samples; a sum, of both copies or of all layers, is the sum of these medians. Where "
        "several runs hold the same rung, its row comes from the run with most of the row."
    )
    return Section("overview", "Results", text, [*([sums] if sums.rows else []), layers])


def sums_table(workload: str, run_rows: Sequence[tuple[Run, Row]], basis: str) -> Table:
    """The sums over the layers of each run."""
    layers: dict[tuple[Run, int, str, str], list[str]] = {}
    for run, row in run_rows:
        if row.layer is not None:
            layers.setdefault(same_rung(run, row), []).append(str(row.layer))
    rows = [
        (row.N, row.rung, row.transfer, ", ".join(layers[same_rung(run, row)]), *timed(row), *ends(run, row))
        for run, row in run_rows
        if row.layer is None
    ]
    caption = (
        "Medians in ms per batch, each row of one run. Speeds: the total against serial CPU, and BLAS on all cores."
        f"{basis}"
    )
    columns = ("N", "rung", "transfer", "layers", *TIMES, "max error", "status", "run")
    title = f"{workload}: all measured layers together"
    return Table(f"{workload}-overview", title, caption, columns, rows, filters=("N", "transfer"))


def rows_of_runs(measurements: Measurements, workload: str) -> list[tuple[Run, Row]]:
    """Rows of a workload with their runs, CPU times all of one host; sums are over points of one run."""
    by_run: dict[Run, list[Record]] = {}
    for point in measurements.points:
        if point.workload == workload:
            cpu = {
                f"{base}_ms": measurements.serial(workload, point.layer, point.N, base) for base in ("serial", "blas")
            }
            error = {} if point.error is None else point.record["error"]
            by_run.setdefault(point.run, []).append(point.record | {"cpu": cpu, "error": error})
    run_rows = [(run, row) for run, records in by_run.items() for row in rows(records, measurements.ladder)]
    names = list(measurements.ladder.named)

    def position(pair: tuple[Run, Row]) -> tuple[int, int, str, str, str]:
        run, row = pair
        name = row.rung.partition(" ")[0]
        return row.N, names.index(name) if name in names else len(names), row.rung, row.transfer, run.name

    return sorted(run_rows, key=position)


def runs_table(measurements: Measurements) -> Table:
    """What each record file's runs were measured on."""
    serial: dict[Run, Measured] = {}
    for point in measurements.every:
        if point.run not in serial and point.cpu_ms("serial"):
            serial[point.run] = point
    counts = Counter(point.run for point in measurements.every)
    used = Counter(point.run for point in measurements.points)
    table_rows: list[tuple[Cell, ...]] = []
    for run, count in counts.items():
        device, host = run.device, run.host
        software = (
            device.get("driver"),
            device.get("toolkit"),
            host.get("cpu"),
            host.get("system"),
            run.commit[:SHORT],
        )
        table_rows.append((run.name, run.card, *software, count, used[run], serial_per_image(serial.get(run))))
    columns = (
        *("run", "card", "driver", "CUDA", "host CPU", "system", "commit", "points", "points shown"),
        "serial CPU, its first layer (ms per image)",
    )
    caption = (
        "A run: one record file, card, host and commit. The last column is the same program on each run's host. "
        "Where several runs hold a point, tables show one; ablations and sweeps show each run separately."
    )
    return Table("runs", "Runs", caption, columns, table_rows)


def serial_per_image(point: Measured | None) -> str | None:
    """Serial CPU time of a point's layer, named."""
    ms = point.cpu_ms("serial") if point else None
    return f"{point.workload} layer {point.layer}: {shown(ms / point.N)}" if point and ms else None


TIMES = ("kernel (ms)", "copies (ms)", "total (ms)", "than serial CPU", "than BLAS")


def same_rung(run: Run, row: Row) -> tuple[Run, int, str, str]:
    """What the rows of a rung's layers have in common with the row of their sum."""
    return run, row.N, row.rung, row.transfer


def ends(run: Run, row: Row) -> tuple[Cell, ...]:
    """The last cells of a row."""
    return row.error, row.status, run.name


def timed(row: Row) -> tuple[Cell, ...]:
    """Times and speedups of a row."""
    speeds = (row.speedup("total", base) for base in ("serial", "blas"))
    return row.kernel, row.copies, row.total, *(Faster(speed) if speed else None for speed in speeds)
