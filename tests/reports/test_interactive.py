"""The data of charts that readers step through, against the records' raw samples."""

from pathlib import Path
from statistics import median

import pytest
from report_records import published_report

from alexconv.records.compressed import files_in
from alexconv.records.store import read
from alexconv.reports.elements import Chart

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture(scope="module")
def charts() -> list[Chart]:
    sections = (section for page in published_report().pages for section in page.sections)
    return [chart for section in sections for chart in section.charts]


@pytest.fixture(scope="module")
def times() -> dict[tuple[str, int, int], set[float]]:
    """The medians on record by workload, layer and batch size."""
    found: dict[tuple[str, int, int], set[float]] = {}
    for record in read(files_in(RESULTS)).points:
        point = record["point"]
        if record["status"] == "ok" and record["samples"].get("kernel"):
            key = point["workload"], point["layer"], point["N"]
            found.setdefault(key, set()).add(float(f"{median(record['samples']['kernel']):.5g}"))
    return found


def test_every_time_of_a_chart_is_a_median_on_record(charts, times):
    tried = 0
    for chart in charts:
        workload = chart.title.partition(",")[0]
        for row in (*chart.data.get("points", ()), *chart.data.get("rows", ())):
            layer = row.get("layer") or int(chart.key.split("-")[-2])
            N = row.get("N") or int(chart.title.split("N=")[1].partition(":")[0])
            assert row["ms"] in times[workload, layer, N], (chart.key, row)
            tried += 1
    assert tried > 400


def test_a_roofline_has_cudnn_in_every_layer_and_a_reason_for_each_rung(charts):
    (chart,) = [chart for chart in charts if chart.key == "alexnet-steps"]
    points = chart.data["points"]
    assert {point["layer"] for point in points if point.get("peer")} == {1, 2, 3, 4, 5}
    assert all(point["text"] for point in points)
    counted = [point for point in points if point["counted"]]
    assert 50 < len(counted) < len(points)
