"""What cuDNN's kernels do, by their names: all names on record are known, and the arithmetic fits the workspace."""

import json
from pathlib import Path

import pytest
from report_records import published_report

from alexconv.records.compressed import contents, files_in
from alexconv.reports.elements import Table
from alexconv.reports.peer_kernels import (
    UNKNOWN,
    algorithm_of,
    fft_tile,
    fft_tiles,
    kernel_of,
    plan_of,
    products,
    steps,
)
from alexconv.shapes import WORKLOADS

RESULTS = Path(__file__).parents[2] / "results"
MEBIBYTE = 2**20
FLOAT, COMPLEX = 4, 8  # bytes


def recorded() -> list[dict]:
    """The points of all record files that hold a peer's kernels."""
    files = files_in(RESULTS, "**/*.jsonl")
    lines = [line for file in files for line in contents(file).splitlines() if b'"kernels"' in line]
    return [point for point in map(json.loads, lines) if (point.get("peer") or {}).get("kernels")]


def is_forward(point: dict) -> bool:
    return bool(point["point"].get("direction", "forward") == "forward")


@pytest.fixture(scope="module")
def points() -> list[dict]:
    return recorded()


def test_every_name_on_record_is_known(points: list[dict]) -> None:
    names = {name for point in points for name in point["peer"]["kernels"]}
    assert len(names) > 100
    assert {name for name in names if kernel_of(name).step == UNKNOWN} == set()


def test_an_unknown_name_is_not_guessed() -> None:
    assert kernel_of("sm120_some_new_engine").step == UNKNOWN
    assert algorithm_of(["_Z33convolve_common_engine_float_NHWC", "nchwToNhwcKernel"]) == UNKNOWN
    assert products(["sm120_some_new_engine"], WORKLOADS["alexnet"].layer(3)) is None


@pytest.mark.parametrize(
    ("layer", "peer", "algorithm", "tile"),
    [
        (1, "torch-nchw-fp32", "implicit GEMM, precomputed indices", None),
        (1, "torch-nhwc-fp32", UNKNOWN, None),
        (2, "torch-nchw-fp32", "FFT", 32),
        (3, "torch-nchw-fp32", "FFT", 16),
        (3, "torch-nhwc-fp32", "FFT", 16),
        (3, "torch-nhwc-tf32", "implicit GEMM", None),
        (3, "torch-gemm-fp32", "GEMM", None),
    ],
)
def test_algorithms(points: list[dict], layer: int, peer: str, algorithm: str, tile: int | None) -> None:
    axes = {"workload": "alexnet", "layer": layer, "N": 128, "rung": peer}
    points = [point for point in points if is_forward(point)]
    ran = [point["peer"]["kernels"] for point in points if axes.items() <= point["point"].items()]
    assert ran
    assert {(algorithm_of(names), fft_tile(names)) for names in ran} == {(algorithm, tile)}


def test_the_steps_of_an_fft_are_in_order() -> None:
    names = ["flip_filter", "fft2d_r2c_16x16", "fft2d_r2c_16x16", "xmma_gemm_cf32cf32_f32f32_ffma_", "fft2d_c2r_16x16"]
    transforms = "2 × FFT, tiles of 16×16", "complex GEMM, FMA units", "inverse FFT, tiles of 16×16"
    assert steps(names) == "; ".join(("flip filters", *transforms))


def test_products_of_an_fft_next_to_the_definition() -> None:
    three, two = WORKLOADS["alexnet"].layer(3), WORKLOADS["alexnet"].layer(2)
    assert (products(["fft2d_r2c_16x16"], three), products(["simt_sgemm"], three)) == (16 * 9 * 4, 13 * 13 * 9)
    assert (products(["fft2d_r2c_32x32"], two), products(["simt_sgemm"], two)) == (32 * 17 * 4, 27 * 27 * 25)
    assert fft_tiles(16, two) == 3 * 3  # 12 rows of outputs each


@pytest.mark.parametrize("layer", [2, 3, 4, 5])
def test_the_workspace_on_record_is_that_of_the_transforms(points: list[dict], layer: int) -> None:
    """Both operands' coefficients, twice, and the flipped filters: one tile covers a plane, as ``products`` counts."""
    axes = {"workload": "alexnet", "layer": layer, "N": 128, "rung": "torch-nchw-fp32"}
    for point in (point for point in points if axes.items() <= point["point"].items() and is_forward(point)):
        conv, tile = WORKLOADS["alexnet"].layer(layer), fft_tile(point["peer"]["kernels"])
        assert tile
        planes = conv.C * (128 + conv.M) * fft_tiles(tile, conv)
        flipped = conv.C * conv.M * conv.R * conv.S * FLOAT
        expected = 2 * planes * tile * (tile // 2 + 1) * COMPLEX + flipped
        assert 0 <= point["peer"]["workspace_bytes"] - expected < 2 * MEBIBYTE  # torch's allocator rounds up


def test_a_layer_s_page_tells_what_cudnn_does() -> None:
    page = next(page for page in published_report().pages if page.key == "layer-alexnet-3")
    section = next(section for section in page.sections if section.key == "cudnn")
    assert "FFT of 16×16 tiles, 306 MB of workspace" in section.text
    assert "576 real products on FMA units, 2.64 times fewer than the definition's 1,521" in section.text
    names = next(section for section in page.sections if section.key == "names").items[0]
    (table,) = [item for item in section.items if isinstance(item, Table)]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    ffts = [row for row in rows if row["algorithm"] == "FFT"]
    assert {(row["class"], row["error bound in terms of"]) for row in ffts} == {("fp32", "the whole plane")}
    assert all(name in {row[1] for row in names.rows} for name in ("_Z11flip_filterIffEvPT0_PKT_iiii",))


def test_a_point_without_kernels_has_no_plan() -> None:
    assert plan_of(None) is None
