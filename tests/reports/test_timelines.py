"""Where the time of a layer goes: parts that add up, computed from the counters and the clock of each run."""

import json
import re
from pathlib import Path
from statistics import median

import matplotlib
import numpy as np
import pytest
from report_records import GPU, record, write

from alexconv.kernels.ladder import RUNGS
from alexconv.planning.peers import peer_name
from alexconv.records.compressed import contents
from alexconv.records.store import RecordFile, read
from alexconv.reports import layer_pages, timelines
from alexconv.reports.measurements import measurements
from alexconv.reports.style import RC, settle, svg_text, texts
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).parents[2]
H200 = GPU | {
    "name": "NVIDIA H200",
    "compute_capability": [9, 0],
    "multiprocessors": 132,
    "max_sm_clock_mhz": 2000,
    "memory_clock_khz": 3_200_000,
    "memory_bus_bits": 6000,
}
CONV = WORKLOADS["alexnet"].layer(3)
FLIP, FFT, GEMM, INVERSE = (
    "_Z11flip_filterIffEvPT0_PKT_iiii",
    "_Z15fft2d_r2c_16x16IfEvP6float2PKT_iiiiiiii",
    "sm80_xmma_gemm_cf32cf32_f32f32_cf32_tn_n_tilesize64x64x8_stage3_warpsize2x2x1_ffma_aligna8_alignc8_execute_kernel",
    "_Z15fft2d_c2r_16x16IfLb0EEvPT_P6float2iiiiiiiiiiffi21cudnnActivationStructS1_S1_",
)
COUNTED = {
    "clock_hz": 1.8e9,
    "sm_elapsed_cycles": 1000.0,
    "sm_active_cycles": 900.0,
    "tensor_pipe": 85.0,
    "fma_pipe": 92.0,
}


def kernel(entry: str, start: float, us: float, **metrics: float) -> dict:
    return {"entry": entry, "start_us": start, "us": us, "metrics": COUNTED | metrics}


OURS = [kernel("prepare_input", 0, 20), kernel("multiply", 19, 161), kernel("compute_full_range", 182, 3)]
THEIRS = [kernel(FLIP, 0, 5), kernel(FFT, 5, 50), kernel(FFT, 30, 55), kernel(GEMM, 85, 300), kernel(INVERSE, 386, 60)]


def timeline(name: str, kernels: list[dict], ms: float) -> dict:
    precision = RUNGS[name].precision if name in RUNGS else "fp32"
    point = record("alexnet", 3, 128, name, precision=precision)["point"]
    return {"point": point, "images": 128, "samples": {"kernel": [ms]}, "clock_mhz": 1980.0, "kernels": kernels}


def written(path: Path, *lines: dict, device: dict = H200) -> Path:
    """A record file with a point, so that there is a page, and timelines on a device."""
    write(path, [record("alexnet", 3, 128, "wgmma-split", precision="fp32")], H200)
    file = RecordFile(path)
    key = file.header("device", device)
    run = file.header("run", {"command": "alexconv profile --peers torch --out some-profile.jsonl"})
    for line in lines:
        file.header("timeline", line | {"device": key, "run": run})
    return path


BOTH = timeline("wgmma-split", OURS, 0.18), timeline(peer_name("nchw", "fp32"), THEIRS, 0.44)


def section(path: Path):
    (shown,) = timelines.sections(measurements(read([path])), "alexnet", 3)
    return shown


def rows(path: Path, key: str) -> list[dict]:
    (table,) = [item for item in section(path).items if item.key == f"layer-alexnet-3-{key}"]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_the_parts_are_computed_from_clock_and_counters_and_add_up(tmp_path: Path) -> None:
    ours, theirs = rows(written(tmp_path / "few.jsonl", *BOTH), "parts-table")
    multiply, pace = 160.0, 1800 / 2000  # it begins when the kernel before it ends
    products = 3 * CONV.macs(128)
    assert ours["roofline"] == pytest.approx(products / (2048 * 132 * 2000))
    assert ours["clock"] == pytest.approx(multiply * (1 - pace))
    assert ours["no block: fill, last wave"] == pytest.approx(multiply * pace * 0.1)
    assert ours["units idle"] == pytest.approx(multiply * pace * 0.9 * 0.15)
    assert (ours["other kernels"], ours["gaps"]) == (pytest.approx(23.0), pytest.approx(2.0))
    assert (ours["time"], ours["traced"]) == (180.0, 185.0)
    assert theirs["roofline"] == pytest.approx(576 * CONV.C * CONV.M * 128 / (128 * 132 * 2000))
    assert theirs["units idle"] == pytest.approx(300 * pace * 0.9 * 0.08), "FMA units multiply for it"
    for row in (ours, theirs):
        assert sum(row[name] for name in timelines.PARTS) == pytest.approx(row["traced"])


def test_minimum_traffic_is_the_roof_where_it_takes_longer(tmp_path: Path) -> None:
    narrow = H200 | {"memory_bus_bits": 750}
    (ours, _) = rows(written(tmp_path / "few.jsonl", *BOTH, device=narrow), "parts-table")
    moved = 4 * (128 * (CONV.C * CONV.H * CONV.W + CONV.M * CONV.E * CONV.F) + CONV.M * CONV.K)
    assert ours["roofline"] == pytest.approx(1e6 * moved / (2 * 3.2e9 * 750 / 8))


def test_a_gpu_of_another_generation_is_not_measured_by_hopper_s_rates(tmp_path: Path) -> None:
    a100 = H200 | {"name": "NVIDIA A100", "compute_capability": [8, 0]}
    shown = section(written(tmp_path / "few.jsonl", *BOTH, device=a100))
    assert [item.key for item in shown.items] == [f"layer-alexnet-3-{name}" for name in ("kernels", "kernel-counters")]
    assert shown.text == "On one NVIDIA A100, N=128."


def test_kernels_of_both_have_roles_on_one_axis(tmp_path: Path) -> None:
    shown = section(written(tmp_path / "few.jsonl", *BOTH))
    axis = shown.items[0]
    assert axis.title.endswith("in fp32 multiplying takes 86 % of wgmma-split's time and 67 % of cuDNN NCHW's time")
    assert "From `some-profile.jsonl` (" in axis.caption
    with matplotlib.rc_context(RC):
        figure = axis.draw()
        settle(figure)
        drawn = texts(svg_text(figure, "axis"))
    assert {"wgmma-split", "cuDNN NCHW", "multiply", "complex GEMM, FMA units", "transform", "µs"} <= set(drawn)
    lanes = [bar[-1] for _, rows in axis.draw.args[0] for _, row in rows for bar in row]
    assert lanes == [0, 1, 0, 0, 0, 1, 0, 0], "the second and the sixth begin before the end of the one before"
    steps = [(row["whose"], row["kernel"], row["µs"]) for row in rows(tmp_path / "few.jsonl", "kernel-counters")]
    assert steps[:2] == [("wgmma-split", "convert inputs", 20.0), ("wgmma-split", "multiply", 161.0)]
    assert [step for whose, step, _ in steps if whose == "cuDNN NCHW"] == [
        *("flip filters", "FFT, tiles of 16×16", "FFT, tiles of 16×16", "complex GEMM, FMA units"),
        "inverse FFT, tiles of 16×16",
    ]
    assert "roofline" in shown.text and "NVIDIA H200" in shown.text


def test_without_counters_there_is_a_time_axis_and_no_account(tmp_path: Path) -> None:
    bare = [
        line | {"kernels": [{name: k[name] for name in ("entry", "start_us", "us")} for k in line["kernels"]]}
        for line in BOTH
    ]
    keys = [item.key for item in section(written(tmp_path / "few.jsonl", *bare)).items]
    assert keys == ["layer-alexnet-3-kernels", "layer-alexnet-3-kernel-counters"]


def test_a_time_below_the_roofline_has_no_account(tmp_path: Path) -> None:
    quick = [kernel("multiply", 0, 50)]
    path = written(tmp_path / "few.jsonl", timeline("wgmma-split", quick, 0.05), BOTH[1])
    assert [row["whose"] for row in rows(path, "parts-table")] == ["cuDNN NCHW"]


def test_runs_of_another_gpu_are_shown_alone_and_named(tmp_path: Path) -> None:
    path = written(tmp_path / "few.jsonl", *BOTH, device=H200 | {"name": "NVIDIA H100"})
    assert section(path).text.startswith("On one NVIDIA H100,")
    both = written(tmp_path / "both.jsonl", *BOTH)
    key = RecordFile(both).header("device", H200 | {"name": "NVIDIA H100"})
    RecordFile(both).header("timeline", timeline("wgmma-split", OURS, 0.1) | {"device": key})
    shown = section(both)
    assert shown.text.startswith("On one NVIDIA H200,")
    assert rows(both, "parts-table")[0]["time"] == 180.0


def test_a_kernel_of_no_known_name_is_said_to_be_unknown(tmp_path: Path) -> None:
    path = written(tmp_path / "few.jsonl", BOTH[0], timeline(BOTH[1]["point"]["rung"], [kernel("mystery", 0, 9)], 0.01))
    (theirs,) = [row for row in rows(path, "kernel-counters") if row["whose"] == "cuDNN NCHW"]
    assert theirs["kernel"] == timelines.OTHER
    assert [row["whose"] for row in rows(path, "parts-table")] == ["wgmma-split"]


def test_only_layers_with_timelines_have_the_section(tmp_path: Path) -> None:
    data = measurements(read([written(tmp_path / "few.jsonl", *BOTH)]))
    keys = [[section.key for section in layer_pages.page(data, None, "alexnet", layer).sections] for layer in (3, 4)]
    assert ["time" in of_layer for of_layer in keys] == [True, False]


# The published pages


def test_the_parts_on_the_pages_follow_from_the_record() -> None:
    lines = [json.loads(line) for line in contents(ROOT / "results" / "h200-profile-cudnn.jsonl").splitlines()]
    (device,) = (line for line in lines if line["type"] == "device")
    rate = 2e3 * device["memory_clock_khz"] * device["memory_bus_bits"] / 8  # bytes/s
    runs = {
        (line["point"]["layer"], line["point"]["rung"]): line for line in lines if line["type"] == "timeline"
    }  # the last of each
    claims = 0
    for layer in range(1, 6):
        text = (ROOT / "docs" / "report" / f"layer-alexnet-{layer}.md").read_text()
        _, _, table = text.partition("### Parts of the time")
        for row in re.findall(
            r"^\| [ft][pf]\d+ \| \[(wgmma-[\w-]+)\] \| (.+) \|$", table.partition("### ")[0], re.MULTILINE
        ):
            rung, cells = RUNGS[row[0]], [float(cell.replace(",", "")) for cell in row[1].split(" | ")]
            kernels, conv = runs[layer, rung.name]["kernels"], WORKLOADS["alexnet"].layer(layer)
            products = rung.products * conv.macs(128) / (2048 * 132 * 1980)
            moved = 128 * (conv.C * conv.H * conv.W + conv.M * conv.E * conv.F) + conv.M * conv.K
            traffic = moved * np.dtype(rung.dtype).itemsize / rate * 1e6
            slowed = []
            for place, kernel in enumerate(kernels):
                if kernel["entry"] == "multiply":
                    own = end_of(kernel) - max([kernel["start_us"], *map(end_of, kernels[:place])])
                    slowed.append(own * (1 - kernel["metrics"]["clock_hz"] / 1.98e9))
            assert cells[0] == pytest.approx(1e3 * median(runs[layer, rung.name]["samples"]["kernel"]), rel=1e-3)
            assert cells[2] == pytest.approx(max(products, traffic), rel=1e-3)
            assert cells[3] == pytest.approx(sum(slowed), rel=1e-3)
            claims += 1
    assert claims == 14  # on layer 5 in fp16 the counters exceed the trace


def end_of(kernel: dict) -> float:
    return float(kernel["start_us"] + kernel["us"])
