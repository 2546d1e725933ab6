"""The recorded terminal: its picture shows what was printed, and its commands are today's."""

import json
from pathlib import Path

import record_race

from alexconv.records.statistics import Ratio, faster, faster_between
from alexconv.reports.recording import lines, picture
from alexconv.reports.style import texts

ROOT = Path(__file__).resolve().parent.parent.parent
RACE = ROOT / "results" / "host" / "race.cast"


def test_the_picture_shows_every_line_after_its_pauses(tmp_path: Path) -> None:
    file = tmp_path / "r.cast"
    events = [[0.0, "o", "$ a <b>\r\n"], [2.0, "o", "  one two three\r\n"], [3.0, "o", "$ c\r\n"]]
    file.write_text("".join(json.dumps(line) + "\n" for line in ({"version": 2, "width": 10}, *events)))
    assert list(lines(file)) == [(1.5, "$ a <b>"), (3.5, "  one two"), (3.5, "  three"), (6.0, "$ c")]
    svg = picture(file)
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in texts(svg)] == [text for _, text in lines(file)]
    assert "animation-delay:6s" in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_the_recorded_race_is_in_todays_kernel() -> None:
    commands = record_race.commands()
    printed = [json.loads(line)[2].strip() for line in RACE.read_text().splitlines()[1:]]
    assert [f"$ {command}" for command in commands] == [line for line in printed if line.startswith("$ ")]
    assert any(line.split()[:2] == ["correct", "ok"] for line in printed)
    assert any("missing: cp.async.wait_group" in line for line in printed)


def test_ratios_have_one_notation() -> None:
    assert [faster(ratio) for ratio in (2.2904, 0.8463, 156.0, 0.0419, 1.0, 1.001, 9.999, 1234.5)] == [
        *("2.29× faster", "1.18× slower", "156× faster", "23.9× slower", "as fast", "as fast", "10.0× faster"),
        "1,230× faster",
    ]
    between = [(2.2874, 2.2951), (0.84, 0.85), (0.99, 1.02), (1.0, 1.5)]
    assert [faster_between(Ratio(low, low, high)) for low, high in between] == [
        "2.287 to 2.295× faster",
        "1.176 to 1.190× slower",
        "1.010× slower to 1.020× faster",
        "as fast to 1.500× faster",
    ]
