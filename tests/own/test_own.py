"""Kernels from outside the package: folders, a course's files, other packages; each of their faults is one line."""

import json
import pickle
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from time import sleep

import pytest
from compilers import needs_gcc
from processes import running
from report_records import record, write

from alexconv import new, run
from alexconv.accuracy import __main__ as accuracy
from alexconv.check import __main__ as check
from alexconv.errors import UsageError
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER, RUNGS
from alexconv.own import folders, wrapping
from alexconv.own.wrapping import wrapped
from alexconv.paths import CACHE_VARIABLE
from alexconv.predict import __main__ as predict
from alexconv.profile import __main__ as profile
from alexconv.records.store import read
from alexconv.reports.measurements import measurements
from alexconv.reports.site import compose
from alexconv.reports.style import look
from alexconv.tune import __main__ as tune

COURSE = Path(__file__).parent.parent / "sources" / "course.cu"
COURSE_TEXT = COURSE.read_text()
COMMANDS = [run, profile, predict, tune, accuracy, check, new]


@pytest.fixture
def folder(tmp_path):
    """A new folder like direct-register."""
    path = tmp_path / "my_conv"
    assert new.main([str(path)]) == 0
    return path


def ran(tmp_path, *options):
    """The exit status and the latest records of a run on the host."""
    out = tmp_path / "records.jsonl"
    words = ["--backend", "host", "--workload", "lenet-70-k5", "--layers", "2", "--N", "2", "--out", str(out), *options]
    return run.main(words), read([out]).latest()


def checked(*words, capsys, seconds=10000):
    """The exit status and the problems of a check, by kind."""
    status = check.main([*words, "--seconds", str(seconds), "--json"])
    verdicts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not [verdict for verdict in verdicts if verdict["rung"].startswith("SIG")], "a signal is no rung"
    return status, {verdict["kind"]: verdict["problems"] for verdict in verdicts}


def test_a_new_folder_runs_beside_the_ladder(folder, tmp_path):
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "ladder.py", "my_conv.cu"]
    status, records = ran(tmp_path, "--ladder", str(folder), "--rungs", "my-conv,direct-register")
    assert status == 0
    assert [record["point"]["rung"] for record in records] == ["my-conv", "direct-register"]
    assert {record["status"] for record in records} == {"ok"}


def test_remarks_on_the_commands_of_a_new_folder_are_comments(folder):
    _, commands, _ = (folder / "README.md").read_text().split("```")
    assert re.findall(r"^alexconv (\w+)", commands, re.MULTILINE) == ["check", "run", "profile", "tune", "compare"]
    assert not re.search(r" {2,}[^# ]", commands)


@pytest.mark.parametrize("like", sorted({rung.family: rung.name for rung in ALL_DIRECTIONS}.values()))
def test_a_folder_may_be_like_any_rung(like, tmp_path):
    assert new.main([str(tmp_path / "mine"), "--like", like]) == 0
    (rung,) = folders.rungs_of(tmp_path / "mine")
    assert (rung.name, rung.parent) == ("mine", like)
    assert rung.path == tmp_path / "mine" / "mine.cu"
    assert [launch.args for launch in rung.launches] == [launch.args for launch in ALL_DIRECTIONS.named[like].launches]
    assert (rung.time, rung.cpu_order) == (None, 0), "nothing is known of a kernel that is still to be changed"


@pytest.mark.parametrize("name", ["class", "float", "for", "main", "printf", "static-cast"])
def test_a_folder_cannot_be_named_like_a_word_of_cpp(name, tmp_path, capsys):
    assert new.main([str(tmp_path / name)]) == 2
    assert "is a word of C++ and cannot be a kernel's name" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_a_new_file_has_names_replaced_in_code_alone(tmp_path):
    assert new.main([str(tmp_path / "mine"), "--like", "direct"]) == 0
    text = (tmp_path / "mine" / "mine.cu").read_text()
    assert "// Technique: direct convolution;" in text
    assert f"// Run: alexconv run --ladder {(tmp_path / 'mine').as_posix()} --rungs mine --layers 2" in text
    assert "ASSERT_BLOCK(MINE, " in text and " mine(const float* x" in text
    code = "\n".join(line.partition("//")[0] for line in text.splitlines())
    assert not re.search(r"\bdirect\b|\bDIRECT\b", code)


@needs_gcc
def test_a_new_folder_passes_the_checks(folder, capsys):
    status, problems = checked(str(folder), "--kinds", "correct,races,async", capsys=capsys)
    assert (status, problems) == (0, {"correct": [], "races": [], "async": []})


# A change of the kernel, its replacement, the check that finds it, and what its line says.
BUGS = {
    "does not compile": ("float sum = 0;", "float sum = 0", "correct", "my_conv.cu:"),
    "wrong": ("sum += x[", "sum += c == 1 ? 0 : x[", "correct", "error"),
    "outside of the array": ("y[e * F + f] = sum;", "y[e * F + f + (size_t)N_OUTSIDE] = sum;", "correct", "bad access"),
    "just outside of the array": ("y[e * F + f] = sum;", "y[e * F + f + 1] = sum;", "addresses", "my_conv.cu:"),
    "prints and forks": (
        "float sum = 0;",
        'float sum = 0; printf("%01000d", 1); if (e + f + m + n == 0) fork();',
        "correct",
        None,
    ),
    "ends it by a fault": (
        "float sum = 0;",
        "*(volatile int*)64 = 0; float sum = 0;",
        "races",
        "bad access? --kinds addresses names it",
    ),
    "ends the process": ("float sum = 0;", "float sum = 0; _exit(0);", "races", "ends the check's process"),
    "fails": ("float sum = 0;", "float sum = 0; __trap();", "undefined", "__trap()"),
    "does not end": (
        "float sum = 0;",
        "float sum = 0; for (volatile int i = 0; i < 1; i = 0);",
        "correct",
        "no answer",
    ),
}


def test_a_cache_that_cannot_be_written_is_no_verdict(folder, monkeypatch, capsys):
    monkeypatch.setenv(CACHE_VARIABLE, "/proc/1/nothing")
    assert check.main([str(folder)]) == UsageError.exit_status
    assert capsys.readouterr().err.startswith("error: cannot create the cache folder")


@needs_gcc
@pytest.mark.parametrize("bug", BUGS)
def test_a_bad_kernel_is_one_line_and_harms_nothing(bug, folder, capsys):
    old, changed, kind, expected = BUGS[bug]
    file = folder / "my_conv.cu"
    text = file.read_text()
    assert old in text
    head = (
        "#include <unistd.h>\n#define N_OUTSIDE (1 << 28)\n"
        if bug in ("prints and forks", "outside of the array", "ends the process")
        else ""
    )
    file.write_text(head + text.replace(old, changed))
    limit = {"seconds": 5} if bug == "does not end" else {}
    status, problems = checked(str(folder), "--kinds", kind, capsys=capsys, **limit)
    if expected is None:
        assert status in (0, 1)  # whatever it computes, the command ends and leaves nothing behind
    else:
        assert status == 1
        assert expected in problems[kind][0]
        assert "\n" not in problems[kind][0]
    while running(str(folder)):
        sleep(0.05)  # until all killed processes are gone


def test_a_kernel_that_takes_none_of_the_shapes_is_not_right(folder, capsys):
    entry = folder / "ladder.py"
    text = entry.read_text()
    assert "refuses=outside_plane_block()" in text
    entry.write_text(text.replace("refuses=outside_plane_block()", 'refuses=lambda p: "needs 2 channels"'))
    status, problems = checked(str(folder), "--kinds", "correct,races", capsys=capsys)
    expected = ["nothing is checked, as it takes none of the shapes: needs 2 channels"]
    assert (status, problems) == (1, {"correct": expected, "races": expected})


def test_a_fault_of_an_entry_file_names_its_line(folder):
    entry = folder / "ladder.py"
    text = entry.read_text()
    entry.write_text("import no_such_module\n" + text)
    with pytest.raises(UsageError, match=r"ladder\.py:1: ModuleNotFoundError"):
        folders.rungs_of(folder)
    entry.write_text(text.replace("RUNGS = (", "RUNGS = (("))
    with pytest.raises(UsageError, match=r"ladder\.py:\d+: SyntaxError"):
        folders.rungs_of(folder)
    entry.write_text(text.replace("my_conv.cu", "other.cu"))
    with pytest.raises(UsageError, match="no file"):
        LADDER.with_rungs(folders.rungs_of(folder), folder)
    entry.write_text(text.replace('alias="my-conv"', 'alias="mcpy"'))
    with pytest.raises(UsageError, match=r"already has .* alias mcpy"):
        LADDER.with_rungs(folders.rungs_of(folder), folder)
    with pytest.raises(UsageError, match="alexconv new"):
        folders.rungs_of(folder / "nothing")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import sys\nsys.exit()\n", r"ladder\.py:2: SystemExit"),
        ("", r"ladder\.py: RUNGS must be a sequence of at least one Rung"),
        ("RUNGS = 5\n", r"ladder\.py: RUNGS must be a sequence of at least one Rung"),
    ],
)
def test_an_entry_file_without_rungs_is_one_line(text, expected, folder, capsys):
    (folder / "ladder.py").write_text(text)
    assert check.main([str(folder)]) == 2
    assert re.search(expected, capsys.readouterr().err)


GRIDS = {
    "(p.N, p.M, 1)": "AttributeError: .*'M'",
    "(p.N, 1)": "a grid is three whole numbers",
    "(p.N / 2, 1, 1)": "not",
}


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("command", [run, profile, predict], ids=lambda module: module.__name__)
def test_a_fault_of_an_entry_s_function_names_its_line(command, grid, folder, tmp_path, capsys):
    entry = folder / "ladder.py"
    lines = entry.read_text().replace("plane_grid, plane_block)", f"lambda p: {grid}, plane_block)").splitlines()
    entry.write_text("\n".join(lines))
    (number,) = (number for number, line in enumerate(lines, 1) if "lambda" in line)
    capsys.readouterr()
    words = ["--ladder", str(folder), "--rungs", "my-conv", "--layers", "3", "--N", "2"]
    words += [] if command is predict else ["--backend", "host"]
    words += ["--dry-run", "--out", str(tmp_path / "r.jsonl")] if command is run else []
    assert command.main(words) == 2
    assert re.fullmatch(rf"error: .*ladder\.py:{number}: .*{GRIDS[grid]}.*\n", capsys.readouterr().err)


def test_packages_bring_rungs(folder, monkeypatch):
    (rung,) = folders.rungs_of(folder)
    point = EntryPoint("theirs", "their_package:RUNGS", folders.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: [rung])
    monkeypatch.setattr(folders, "of_packages", lambda: (point,))
    installed_ladder = folders.installed_ladder.__wrapped__  # the other is cached for the process
    assert installed_ladder() == (*ALL_DIRECTIONS, rung)
    assert "my-conv" not in RUNGS
    monkeypatch.setattr(EntryPoint, "load", lambda self: 1 / 0)
    with pytest.raises(UsageError, match="theirs"):
        installed_ladder()


def test_a_ladder_with_own_rungs_is_another_value(folder):
    own, usual = (
        folders.ladder_of(run.parser().parse_args(words))
        for words in (["--kernel", str(COURSE), "--ladder", str(folder)], [])
    )
    assert [rung.name for rung in own[len(ALL_DIRECTIONS) :]] == ["course", "my-conv"]
    assert usual == ALL_DIRECTIONS == own[: len(ALL_DIRECTIONS)]
    assert {"course", "my-conv"}.isdisjoint(RUNGS)


def test_a_report_draws_own_rungs_in_other_processes_too(folder, tmp_path):
    ladder = LADDER.with_rungs(folders.rungs_of(folder), folder)
    records = [record("alexnet", layer, 128, name) for name in list(RUNGS)[:6] for layer in range(1, 6)]
    own = [{**copy, "point": {**copy["point"], "rung": "my-conv"}} for copy in records[:5]]
    data = measurements(read([write(tmp_path / "r.jsonl", [*records, *own])]), ladder=ladder)
    drawn = {plot.key: pickle.loads(pickle.dumps(plot)).draw() for plot in compose(data).plots()}
    labels = [tick.get_text() for axes in drawn["alexnet-ladder"].axes for tick in axes.get_xticklabels()]
    assert labels[labels.index("my-conv") - 1] == list(RUNGS)[5]
    assert look("my-conv", ladder).family == RUNGS["direct-register"].family


# ---- A course's file -------------------------------------------------------------------------------------------------


def test_a_course_file_runs_unchanged_beside_the_ladder(tmp_path):
    status, records = ran(tmp_path, "--kernel", str(COURSE), "--rungs", "course,direct-register")
    assert status == 0
    assert [(record["point"]["rung"], record["status"]) for record in records] == [
        ("course", "ok"),
        ("direct-register", "ok"),
    ]


def test_a_course_file_may_begin_with_a_byte_order_mark(tmp_path):
    file = tmp_path / "mine.cu"
    file.write_text(COURSE_TEXT, encoding="utf-8-sig")
    status, records = ran(tmp_path, "--kernel", str(file), "--rungs", "mine")
    assert (status, [record["status"] for record in records]) == (0, ["ok"])


@needs_gcc
def test_a_missing_barrier_of_a_course_file_is_named_with_its_line(tmp_path, capsys):
    file = tmp_path / "mine.cu"
    text = COURSE_TEXT
    file.write_text(text.replace("    __syncthreads();\n", "    \n"))
    line = 1 + text[: text.index("acc += x4d")].count("\n")
    status, problems = checked(str(file), "--kinds", "async", capsys=capsys)
    assert status == 1
    assert f"a load at mine.cu:{line}" in problems["async"][0]
    assert problems["async"][0].startswith("mine.cu:")
    assert "a barrier" in problems["async"][0]


LAUNCH = """conv_forward_kernel<<<gridDim, blockDim, C * X_tile * X_tile * sizeof(float)>>>(
        y, x, w, B, M, C, H, W, K, S);"""


def test_a_kernel_for_square_planes_alone_is_found(tmp_path, capsys):
    file = tmp_path / "square.cu"
    file.write_text(COURSE_TEXT.replace("x[((b * C + c) * H + h) * W + v]", "x[((b * C + c) * H + h) * H + v]"))
    assert file.read_text() != COURSE_TEXT
    _, problems = checked(str(file), "--kinds", "correct,addresses", capsys=capsys)
    for lines in problems.values():
        assert [re.search(r"H=(\d+) W=(\d+)", line).groups() for line in lines] == [("14", "9")]


LINE = COURSE_TEXT[: COURSE_TEXT.index("dim3 gridDim")].count("\n") + 1
COURSE_FAULTS = {
    "no function": ("void conv_forward(", "void forward(", "no function conv_forward"),
    "no launch": (LAUNCH, ";", "launches no kernel"),
    "does not compile": (
        "dim3 gridDim(",
        "dim4 gridDim(",
        f"mine.cu:{LINE}",
    ),
    "does not return": ("dim3 gridDim(", "for (volatile int i = 0; i < 1; i = 0);\n dim3 gridDim(", "has not returned"),
    "crashes": ("dim3 gridDim(", "y[0] = 1;\n dim3 gridDim(", "ends with status -11"),
    "depends on the batch": ("y, x, w, B, M,", "y, x, w, 2 * B, M,", "argument 4 of conv_forward_kernel"),
    "calls what it may not": (
        "dim3 gridDim(",
        "cudaMemcpy(y, x, 4, cudaMemcpyDeviceToDevice);\n dim3 gridDim(",
        "cudaMemcpy",
    ),
}


CONSTANT = (
    COURSE_TEXT.replace("__global__", "__constant__ float filters[24 * 12 * 7 * 7];\n__global__", 1)
    .replace("#define w4d(i3, i2, i1, i0) w[", "#define w4d(i3, i2, i1, i0) filters[")
    .replace(
        "    conv_forward_kernel<<<",
        "    cudaMemcpyToSymbol(filters, w, M * C * K * K * sizeof(float));\n    conv_forward_kernel<<<",
    )
)


@pytest.mark.parametrize("layer", ["1", "2"])
def test_a_course_file_may_have_a_constant_array_larger_than_the_filters(layer, tmp_path):
    file = tmp_path / "mine.cu"
    file.write_text(CONSTANT)
    words = "--kernel", str(file), "--rungs", "mine", "--workload", "lenet-72-k7", "--layers", layer
    status, records = ran(tmp_path, *words)
    assert (status, [record["status"] for record in records]) == (0, ["ok"])


COPY = "cudaMemcpyToSymbol(filters, w, M * C * K * K * sizeof(float));"
CONSTANT_FAULTS = {
    "a part": ("* sizeof(float));\n", ");\n", "filters, here 540 bytes to its start, not 135 to byte 0"),
    "elsewhere": ("sizeof(float));\n", "sizeof(float), 4);\n", "not 540 to byte 4"),
    "too small": ("[24 * 12 * 7 * 7]", "[100]", "filters has 400 bytes, and the filters 540"),
    "two arrays": (COPY, f"{COPY} cudaMemcpyToSymbol(more, w, M * C * K * K * sizeof(float));", "to filters and more"),
}


@pytest.mark.parametrize("fault", CONSTANT_FAULTS)
def test_a_constant_array_without_all_filters_is_one_line(fault, tmp_path):
    old, changed, expected = CONSTANT_FAULTS[fault]
    assert old in CONSTANT
    file = tmp_path / "mine.cu"
    file.write_text("__constant__ float more[10000];\n" + CONSTANT.replace(old, changed))
    with pytest.raises(UsageError, match=expected):
        wrapped(file, "ece408")


@pytest.mark.parametrize("fault", COURSE_FAULTS)
def test_what_a_course_file_lacks_is_one_line(fault, tmp_path, monkeypatch):
    monkeypatch.setattr("alexconv.own.wrapping.SECONDS", 3 if fault == "does not return" else 10000)
    old, changed, expected = COURSE_FAULTS[fault]
    file = tmp_path / "mine.cu"
    text = COURSE_TEXT
    assert old in text
    file.write_text(text.replace(old, changed))
    with pytest.raises(Exception, match=expected) as raised:
        wrapped(file, "ece408")
    assert raised.type.__module__ == "alexconv.errors"
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda module: module.__name__)
def test_a_command_takes_the_users_own_rungs(command):
    text = command.parser().format_help()
    assert "--ladder" in text
    assert "--kernel" in text


@needs_gcc
def test_launches_for_more_numbers_of_images_than_files_may_be_open(monkeypatch):
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
    monkeypatch.setattr(wrapping, "TELLING", few + wrapping.TELLING)
    calls = [(wrapping.PROBE, images) for images in range(1, 41)]
    assert len(wrapping.tell(wrapping.launch_code(COURSE_TEXT, COURSE), calls, COURSE)) == len(calls)
