"""Verdicts between two record files, from their samples."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from report_records import GPU, record, samples, write

from alexconv.compare import main
from alexconv.records.comparisons import FASTER, SAME, SLOWER, UNCLEAR, judge
from alexconv.records.statistics import ratio_of

STEADY = samples(10.0)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (STEADY, SAME),
        (samples(10.1), SAME),
        (samples(9.0), FASTER),
        (samples(11.0), SLOWER),
        ([5.0, 20.0] * 6, UNCLEAR),  # the median is 12.5, and could be anything
        (samples(10.28), UNCLEAR),  # significant, but near the margin
        (samples(20.0)[:3], UNCLEAR),  # too few for an interval
    ],
)
def test_verdicts(after: list[float], verdict: str) -> None:
    assert judge(STEADY, after)[0] == verdict


def test_verdicts_are_opposite_when_the_files_are_swapped() -> None:
    assert judge(samples(9.0), STEADY)[0] == SLOWER
    _, ratio, low, high = judge(STEADY, samples(9.0))
    _, inverse, inverse_low, inverse_high = judge(samples(9.0), STEADY)
    assert ratio == pytest.approx(1 / inverse)
    assert (low, high) == pytest.approx((1 / inverse_high, 1 / inverse_low))


def test_a_smaller_margin_sees_smaller_changes() -> None:
    assert judge(STEADY, samples(10.2), margin=0.015)[0] == SLOWER
    assert judge(STEADY, samples(10.2), margin=0.05)[0] == SAME


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two files with three common points, one of them slower in the second, and a further point each."""
    names = ("direct", "direct-register", "channels")
    common = [record("alexnet", 1, 32, name) for name in names]
    changed = [record("alexnet", 1, 32, name) for name in names]
    slow = changed[1]["samples"]
    slow["kernel"] = [2 * value for value in slow["kernel"]]
    changed[2]["throttled"] = True
    before = write(tmp_path / "a.jsonl", [*common, record("alexnet", 2, 32, "direct")])
    wrong = record("alexnet", 2, 32, "direct") | {"status": "wrong"}
    return before, write(tmp_path / "b.jsonl", [*changed, record("alexnet", 3, 32, "direct"), wrong])


def test_a_line_per_common_point_and_a_summary(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file) for file in files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == [SAME, SLOWER, UNCLEAR]
    assert "2.00× slower" in lines[1]
    assert "direct-register" in lines[1]
    assert "0 FASTER, 1 SLOWER, 1 SAME, 1 UNCLEAR" in lines[3]
    assert lines[4] == "3 common points with times; 1 only in A, 1 only in B"


def test_points_of_two_models_are_not_compared_where_both_files_have_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point, other = record("alexnet", 1, 32, "direct"), record("alexnet", 2, 32, "direct")
    first, second = (GPU | {"name": name} for name in ("First", "Second"))
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for file, device, points in ((a, first, [point]), (a, second, [other]), (b, first, [other]), (b, second, [point])):
        write(file, points, device)
    write(b, [record("alexnet", 3, 32, "direct")], first)
    write(a, [record("alexnet", 3, 32, "direct")], first)
    assert main([str(a), str(b)]) == 0
    assert "1 common points with times; 2 only in A, 2 only in B" in capsys.readouterr().out


def test_of_a_point_on_several_devices_in_one_file_each_model_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, point = tmp_path / "a.jsonl", record("alexnet", 1, 32, "direct")
    for name in ("First", "Second"):
        write(file, [point], GPU | {"name": name})
    write(file, [point | {"samples": {}}], {"backend": "host"})
    assert main([str(file), str(file)]) == 0
    assert "2 common points with times; 0 only in A, 0 only in B" in capsys.readouterr().out


def test_a_model_that_one_file_lacks_is_not_compared_with_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, both, others, point = *(tmp_path / f"{n}.jsonl" for n in range(3)), record("alexnet", 1, 32, "direct")
    for file, name in ((one, "First"), (both, "Second"), (both, "First"), (others, "Second"), (others, "Third")):
        write(file, [point], GPU | {"name": name})
    for files, counts in (((one, both), "0 only in A, 1 only in B"), ((one, others), "0 only in A, 1 only in B")):
        assert main([*map(str, files)]) == 0
        assert f"1 common points with times; {counts}" in capsys.readouterr().out


def test_bits_of_outputs_are_compared_where_both_have_digests_of_the_same_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def digested(rung: str, inputs: str, outputs: str) -> dict[str, object]:
        digests = {"inputs": inputs, "outputs": outputs}
        return record("alexnet", 1, 32, rung) | {"audit": {"samples": 9, "differing": 0, "digests": digests}}

    names = ("direct", "direct-register", "channels", "igemm")
    before = [digested(name, "1f", "2e") for name in names]
    after = [
        digested(names[0], "1f", "2e"),
        digested(names[1], "1f", "3d"),
        digested(names[2], "4c", "3d"),  # another seed
        record("alexnet", 1, 32, names[3]) | {"audit": {"digests": ["1f", "2e"]}},
    ]
    files = [str(write(tmp_path / f"{name}.jsonl", of)) for name, of in (("a", before), ("b", after))]
    assert main(files) == 0
    *_, summary, other = capsys.readouterr().out.splitlines()
    assert summary == "bits of outputs: the same in 1 of 2 points"
    assert other.startswith("  differ: ")
    assert "direct-register" in other


def test_no_bits_are_compared_without_digests(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file) for file in files]) == 0
    assert "bits of outputs: no common point has digests" in capsys.readouterr().out


def test_fail_on_slower(files: tuple[Path, Path]) -> None:
    before, after = map(str, files)
    assert main([before, after, "--fail-on-slower"]) == 1
    assert main([after, before, "--fail-on-slower"]) == 0
    assert main([before, after, "--figure", "total", "--fail-on-slower"]) == 0


def test_fail_on_slower_fails_where_nothing_is_compared(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = record("alexnet", 1, 32, "direct") | {"status": "wrong"}
    after = write(tmp_path / "wrong.jsonl", [wrong])
    assert main([str(files[0]), str(after)]) == 0
    assert main([str(files[0]), str(after), "--fail-on-slower"]) == 2
    assert "no point has kernel times in both files" in capsys.readouterr().err


@pytest.mark.parametrize("margin", ["nan", "inf", "0", "-1", "x"])
def test_a_margin_is_a_number_above_0(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], margin: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*map(str, files), "--margin", margin])
    assert "--margin: a number above 0" in capsys.readouterr().err


def test_headers_may_lack_a_name(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for file in files:
        file.write_text(file.read_text().replace('"backend":"cuda","name":"NVIDIA Test 9000",', ""))
    assert main([str(file) for file in files]) == 0
    assert "an unnamed device over an unnamed device" in capsys.readouterr().out


def test_a_reader_that_stops_early_is_no_error(files: tuple[Path, Path]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody_reads:
        command = [sys.executable, "-u", "-m", "alexconv.compare", *map(str, files)]
        done = subprocess.run(command, stdout=nobody_reads, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_missing_file_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "no.jsonl"), str(tmp_path / "no.jsonl")]) == 2
    assert "cannot read the record file" in capsys.readouterr().err


def test_a_file_without_points_is_a_usage_error(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("no record\n")
    assert main([str(files[0]), str(notes)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [f"{notes}: left out: 1 unreadable lines: 1", f"error: the record file {notes} holds no points"]


def test_the_interval_of_a_ratio_holds_the_true_one_as_often_as_it_says() -> None:
    draw, held, tries = np.random.default_rng(5), 0, 300
    for _ in range(tries):
        ours, theirs = ([draw.exponential(scale, 20).tolist() for scale in scales] for scales in ((2, 1), (3, 3)))
        ratio = ratio_of(ours, theirs)
        assert ratio.low <= ratio.value <= ratio.high
        held += ratio.low <= 0.5 <= ratio.high
    assert 0.92 <= held / tries <= 1.0


def test_with_few_samples_the_interval_spans_them_all() -> None:
    ratio = ratio_of([[1.0, 2.0, 9.0]], [[1.0] * 10])
    assert (ratio.low, ratio.high) == (1.0, 9.0)
    assert ratio.inverse().high == 1.0
    with pytest.raises(ValueError, match="no samples"):
        ratio_of([[]], [[1.0]])
