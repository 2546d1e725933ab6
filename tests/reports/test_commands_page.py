"""The main job on docs/commands.md: the time of a run that measured everything and of no other, and its picture."""

import pytest
from report_records import record, write

from alexconv.errors import UsageError
from alexconv.records.store import Records
from alexconv.reports.commands import main_job, picture
from alexconv.reports.style import texts

HEADERS = {
    "d": {"type": "device", "name": "NVIDIA H200", "uuid": "GPU-12-34"},
    "h": {"type": "host", "cores": 16},
    "r": {"type": "run", "commit": "a" * 40},
}
POINT = {"device": "d", "host": "h", "run": "r", "status": "ok"}


def end(seconds, older):
    return {"type": "end", "run": "r", "seconds": seconds, "kept": older}


def test_a_resumed_run_that_measured_nothing_is_not_the_main_jobs_time():
    text = main_job(Records({**HEADERS, "e": end(114.91, 0), "again": end(1.51, 1)}, [POINT]), "job.jsonl")
    assert "**114.9 s**" in text
    assert "1 points (1 ok)" in text


@pytest.mark.parametrize("more", [{}, {"again": end(20.0, 1)}], ids=["not finished", "finished by another run"])
def test_a_file_without_a_whole_run_is_refused(more):
    with pytest.raises(UsageError, match=r"job\.jsonl has no finished run that measured all of its points"):
        main_job(Records({**HEADERS, **more}, [POINT]), "job.jsonl")


def test_the_picture_is_of_the_record_file(tmp_path):
    svg = picture(write(tmp_path / "r.jsonl", [record("alexnet", layer, 1, "direct") for layer in (1, 2)]))
    first, *rest = texts(svg)
    assert first.replace("\xa0", " ").startswith("$ python -m alexconv.run --layers 1-5")
    assert any("direct" in text for text in rest)
    assert "url(" not in svg.replace("url(#", ""), "no font from the network"
