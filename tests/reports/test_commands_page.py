"""The main job on docs/commands.md: the time of a run that measured everything and of no other, and its picture."""

import re
import sys
from html import unescape
from pathlib import Path

import pytest

from alexconv.errors import UsageError
from alexconv.records.store import Records
from alexconv.reports.commands import main_job

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
from terminal_picture import picture_of_records

sys.path.pop(0)

ROOT = Path(__file__).resolve().parent.parent.parent
HEADERS = {
    "d": {"type": "device", "name": "NVIDIA H200", "uuid": "GPU-12-34"},
    "h": {"type": "host", "cores": 16},
    "r": {"type": "run", "commit": "a" * 40},
}
POINT = {"device": "d", "host": "h", "run": "r", "status": "ok"}


def end(seconds, kept):
    return {"type": "end", "run": "r", "seconds": seconds, "kept": kept}


def test_a_resumed_run_that_measured_nothing_is_not_the_main_jobs_time():
    told = main_job(Records({**HEADERS, "e": end(114.91, 0), "again": end(1.51, 1)}, [POINT]), "job.jsonl")
    assert "**114.9 s**" in told
    assert "1 points (1 ok)" in told


@pytest.mark.parametrize("more", [{}, {"again": end(20.0, 1)}], ids=["not finished", "finished by another run"])
def test_a_file_without_a_whole_run_is_refused(more):
    with pytest.raises(UsageError, match=r"job\.jsonl has no finished run that measured all of its points"):
        main_job(Records({**HEADERS, **more}, [POINT]), "job.jsonl")


def words(svg):
    return [unescape(text).split() for text in re.findall(r"<text [^>]*>(.*?)</text>", svg)]


def test_the_picture_is_of_the_record_file():
    fresh = words(picture_of_records(ROOT / "results" / "h200-main-job.jsonl"))
    assert any(line[:1] == ["wgmma-split"] for line in fresh)
    kept = (ROOT / "docs" / "terminal" / "run-gpu.svg").read_text()
    assert words(kept) == fresh
    assert "url(" not in kept.replace("url(#", ""), "no font from the network"
