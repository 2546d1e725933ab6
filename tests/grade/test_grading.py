"""Assignments, screens, answers and scores; a few submissions graded whole."""

import csv
import errno
import io
import json
import re
import subprocess
import sys
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from time import sleep
from types import SimpleNamespace

import course_submissions as submissions
import numpy as np
import pytest
from compilers import needs_gcc

from alexconv import assignment as command
from alexconv import new
from alexconv.check import kinds
from alexconv.compiling import nvcc
from alexconv.errors import LaunchError, MissingTool, UsageError
from alexconv.files import locked
from alexconv.grade import __main__ as grade
from alexconv.grade import assignment, grading, sandbox, scores, timing, worker
from alexconv.grade.grading import EARLY, REASONS, Grade, parts
from alexconv.grade.sandbox import BUBBLEWRAP, Ended
from alexconv.paths import cache_dir

MADE = assignment.new("hw", "ece408-2019", None, 1.0, seed=7)


# ---- Assignments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("study", ["ece408-2018", "ece408-2019", "ece408-2023", "ece408-2024"])
def test_limits_are_the_studies_op_times(study, tmp_path):
    assert command.main([str(tmp_path / "hw"), "--study", study, "--seed", "1"]) == 0
    homework = assignment.read(tmp_path / "hw")
    slow, middle, fast = (limit.ms for limit in homework.times)
    assert slow > middle > fast
    expected = {"ece408-2018": (195.446, 113.519), "ece408-2019": (115.302, 65.626)}
    if study in expected:
        assert (slow, fast) == expected[study]
    assert [homework.share(ms) for ms in (slow * 1.01, slow, middle, fast, fast / 2)] == [0, 0.5, 0.75, 1, 1]


def test_a_handout_has_a_skeleton_that_compiles_and_nothing_hidden(tmp_path):
    assert command.main([str(tmp_path / "hw"), "--seed", "3"]) == 0
    handout, homework = tmp_path / "hw" / "handout", assignment.read(tmp_path / "hw")
    assert sorted(path.name for path in handout.iterdir()) == ["Makefile", "README.md", "conv.cu", "shapes.json"]
    text = "".join(path.read_text() for path in handout.iterdir())
    assert "TODO" in text
    (timed,) = re.findall(r"^time:\n((?:\t.*\n?)*)", (handout / "Makefile").read_text(), re.M)
    assert "--backend cuda" in timed, "the CPU would take hours"
    assert "pip install alexconv" not in text, "it is on no package index"
    assert str(homework.seed) not in text.split()
    assert "$" not in (handout / "README.md").read_text()
    public = {tuple(sizes.values()) for sizes in json.loads((handout / "shapes.json").read_text())}
    assert not public & {tuple(shape.sizes().values()) for shape in homework.shapes}
    assert (tmp_path / "hw" / "grader" / "grader.json").stat().st_mode & 0o077 == 0
    assert command.main([str(tmp_path / "hw")]) == 2  # it already exists


@pytest.mark.parametrize("module", [command, new])
def test_a_full_disk_leaves_no_part_of_a_new_folder(module, tmp_path, monkeypatch, capsys):
    write_text = Path.write_text

    def full(path, *words):
        if path.name == "README.md":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_text(path, *words)

    monkeypatch.setattr(Path, "write_text", full)
    assert module.main([str(tmp_path / "made")]) == 2
    assert capsys.readouterr().err == f"error: cannot create {tmp_path}/made: No space left on device\n"
    assert not list(tmp_path.iterdir())


def test_hidden_shapes_differ_from_assignment_to_assignment():
    assignments = [assignment.new("hw", "ece408-2019", None, 1.0, None) for _ in range(3)]
    assert len({homework.shapes for homework in assignments}) == 3
    assert len({homework.seed for homework in assignments}) == 3


BAD = {
    "no JSON": (lambda text: text[:50], "JSONDecodeError"),
    "another version": (lambda text: text.replace('"schema": 1', '"schema": 9'), "another version"),
    "an unknown key": (lambda text: text.replace('"seed"', '"sead"'), "sead"),
    "a shape without a size": (lambda text: text.replace('"C"', '"D"', 1), "a shape needs the integers"),
    "an impossible shape": (lambda text: text.replace('"U": 1', '"U": 0', 1), "at least 1"),
    "a word for a number": (lambda text: text.replace('"correct": 45.0', '"correct": "45"'), "numbers from 0"),
    "a word for the seed": (lambda text: re.sub(r'"seed": \d+', '"seed": "a"', text), "seed must"),
    "N of no images": (lambda text: re.sub(r'"N": 10000', '"N": 0', text), "N and hazard_shapes must be .* from 1"),
    "no hazard shapes": (lambda text: text.replace('"hazard_shapes": 2', '"hazard_shapes": 0'), "from 1"),
    "half a hazard shape": (lambda text: text.replace('"hazard_shapes": 2', '"hazard_shapes": 1.5'), "whole numbers"),
    "a word for the screen": (lambda text: text.replace('"screen": true', '"screen": "no"'), "true or false"),
    "a share above 1": (lambda text: text.replace('"share": 0.75', '"share": 75'), "at most 1"),
    "infinite points": (lambda text: text.replace('"correct": 45.0', '"correct": Infinity'), "numbers from 0"),
    "a limit of nothing": (lambda text: text.replace('"cpu_seconds": 60', '"cpu_seconds": 0'), "limits must be"),
    "brackets without end": (lambda text: "[" * 100_000, "RecursionError"),
    "an unknown workload": (lambda text: text.replace("lenet-70-k5", "lenet"), "no workload lenet"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_wrong_with_a_grader_s_file_is_one_line(bad, tmp_path):
    assignment.write(MADE, tmp_path / "hw")
    path = tmp_path / "hw" / "grader" / "grader.json"
    change, expected = BAD[bad]
    path.write_text(change(path.read_text()))
    with pytest.raises(UsageError, match=expected) as raised:
        assignment.read(tmp_path / "hw")
    assert "\n" not in str(raised.value)


# ---- Before anything runs --------------------------------------------------------------------------------------------


def screened(text):
    """The screen's answer: the text that would be compiled and problems, or one problem."""
    answer = io.BytesIO()
    worker.screens({"file": "conv.cu", "text": text}, answer)
    return json.loads(answer.getvalue())


def test_what_is_found_before_a_launch_fails_is_told(monkeypatch):
    def find(rung, shapes):
        yield "a race"
        raise LaunchError("a deadlock")

    monkeypatch.setattr(worker, "rung_from", lambda job: None)
    monkeypatch.setitem(worker.KINDS, "races", kinds.Kind("", find))
    answer = io.BytesIO()
    worker.checks({"kind": "races", "shapes": [], "most": 5}, answer)
    assert json.loads(answer.getvalue()) == {"problems": ["a race", "a deadlock"]}


SCREENED = {
    '#include "/etc/passwd"': "includes",
    "%:include <fstream>": "includes",
    '#inc\\\nlude "x"': "includes",
    "#pragma GCC optimize 1": "#pragma GCC optimize 1",
    'asm("nop");': "asm",
    'as\\\nm("nop");': "asm",
    '#define ASSEMBLE(a) a##m__("nop")\nASSEMBLE(__as);': "__asm__",
    "__attribute__((constructor)) void f();": "__attribute__",
    "__attribute((constructor)) void f();": "__attribute",
    "[[gnu::constructor]] void f();": "[[",
    "<: <:gnu::constructor:> :> void f();": "<",
    'const char* a = R"x(" /* )x"; // */': "R",
    "void* f() { return __builtin_return_address(0); }": "__builtin_return_address",
    "void __tsan_read1(void*) {}": "__tsan_read1",
    "int f() { return host_cuda::lane(); }": "host_cuda",
    'extern "C" int puts(const char*);': "extern",
    "extern int f();": "extern",
    "thread_local int f;": "thread_local",
    "#ifdef __CUDA_ARCH__\n#endif": "depends on __CUDA_ARCH__",
    "#if defined(HOST_CUDA)\n#endif": "depends on HOST_CUDA",
    "#define BOTH(a, b) a##b\n#if BOTH(__CUDA_, ARCH__)\n#endif": "depends on __CUDA_ARCH__",
    'void f() { if (!popen("ls", "r")) return; }': "popen",
    'int f() { return system("ls"); }': "system",
    'int f() { return std::sys\\ \ntem("ls"); }': "system",
    "auto f = &getenv;": "getenv",
}
REFERRED = {  # at another line, or at none
    "#  include __FILE__": "includes itself",
    "#include <iostream>\nvoid* f() { return std::cin.rdbuf(); }": "rdbuf",
    "struct A { A(int a) : a(rand()) {} int a; };\nstatic A a(1);": "initialised by a constant",
    "struct A { ~A() {} };\nstatic A a;": "initialised by a constant",
    "static int a = rand();": "initialised by a constant",
    "int f() { struct A { ~A() {} }; static A a; return 1; }": "__cxa_atexit",
}


@needs_gcc
@pytest.mark.parametrize("code", [*SCREENED, *REFERRED])
def test_what_a_submission_may_not_use_is_refused_with_its_line(code):
    start = 'int one;\n// fork(); asm\nconst char* s = "system"; /* fork() */\n'
    answer = screened(f"#include <cstdlib>\n{start}{code}\n{submissions.RIGHT}")
    first = answer["problems"][0]
    assert {**SCREENED, **REFERRED}[code] in first
    if code in SCREENED:
        line = 5 + code[: code.index("#if") if "#if" in code and "#define" in code else 0].count("\n")
        assert re.match(r"conv\.cu:(\d+): ", first), first
        assert line <= int(first.split(":")[1]) <= line + code.count("\n")


@needs_gcc
def test_a_long_text_is_screened_by_the_compiler_alone():
    """Strings and blanks by the ten thousand: a lexer that looks back would need minutes for each of these."""
    assert "no function" in screened(" " * 120_000 + '""' * 70_000)["problem"]
    text = submissions.RIGHT + "const char* text = " + " " * 120_000 + '""' * 30_000 + ";\n"
    assert screened(text)["problems"] == []


RIGHT_USES = """
#include <cmath>
#include <iostream>
#include <algorithm>
#define TIMES(a, b) ((a) * (b))
#define WIDTH 4
#define UNROLL WIDTH
static const float scale = sqrtf(4.0f);
static int calls = 0;
template <class T> __device__ __forceinline__ T least(T a, T b) { return std::min(a, b); }
__device__ inline float sums(const float* __restrict__ values)
{
    float sum = 0.0f;
#pragma unroll UNROLL
    for (int i = 0; i < WIDTH; ++i) sum = __fmaf_rn(values[i], fmaxf(expf(sum), 1'0.0f), __ldg(values));
    return least(TIMES(sum, 2.0f), scale);
}
__global__ void other(float* y, float const* index, int time, int read)
{
    __shared__ float tile[WIDTH];
    if (threadIdx.x < WIDTH) tile[threadIdx.x] = sums(index);
    __syncthreads();
    float v = __shfl_down_sync(0xffffffff, tile[0], 1);
    atomicAdd(y, v + time + read);
}
static void check(cudaError_t error)
{
    ++calls;
    if (error != cudaSuccess) { std::cerr << "CUDA: " << cudaGetErrorString(error) << std::endl; exit(1); }
}
"""


@needs_gcc
def test_what_a_convolution_uses_passes_the_screen_and_keeps_its_lines():
    text = RIGHT_USES + submissions.RIGHT
    answer = screened(text)
    assert answer["problems"] == []
    lines, after = text.splitlines(), answer["text"].splitlines()
    assert '_Pragma("unroll 4")' in answer["text"]
    for word in ("#include <cmath>", "__global__ void other", "void conv_forward(", "acc += "):
        (place,) = [number for number, line in enumerate(lines) if word in line][:1]
        assert word in after[place]
    assert not any(line.startswith("#") and not line.startswith("#include <") for line in after)
    assert screened(answer["text"])["text"] == answer["text"]
    skeleton = assignment.Template((Path(assignment.__file__).parent / "templates" / "conv.cu").read_text())
    assert screened(skeleton.substitute(name="hw"))["problems"] == []


def test_a_problem_names_its_file_once():
    assert grading.placed("a.cu", "a.cu: a.cu: a.cu:3:1: error: x") == "a.cu:3:1: error: x"
    assert grading.placed("a.cu", "a.cu: a.cu: no function") == "a.cu: no function"
    assert grading.placed("a.cu", "no answer") == "a.cu: no answer"


def test_submissions_are_files_and_folders_and_no_links(tmp_path):
    expected = submissions.write_oddities(tmp_path, tmp_path / "secret")
    (tmp_path / "anna.cu").write_text("text")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "mine.cu").write_text("text")
    submitted = {submission.name: submission for submission in grading.submissions(tmp_path)}
    assert submitted.keys() == {*expected, "anna", "bert"}
    assert submitted["bert"].read().text == "text"
    for name, kind in expected.items():
        with pytest.raises(UsageError, match=kind.says):
            submitted[name].read()
    (tmp_path / "bert.cu").write_text("other text")
    texts = {
        submission.name: submission.read().text
        for submission in grading.submissions(tmp_path)
        if submission.name.startswith("bert")
    }
    assert texts == {"bert": "text", "bert.cu": "other text"}
    with pytest.raises(UsageError, match="no folder"):
        grading.submissions(tmp_path / "nothing")


def test_a_folder_without_the_file_is_told_apart_from_one_with_several(tmp_path):
    for name, files, says in (("carl", (), ""), ("dora", ("a.cu", "b.cu", ".c.cu"), ", but 2 other .cu files")):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text("")
        (submission,) = (entry for entry in grading.submissions(tmp_path) if entry.name == name)
        with pytest.raises(UsageError, match=rf"^there is no conv\.cu{says}$"):
            submission.read()


def test_hidden_files_and_folders_are_no_submissions(tmp_path):
    for name in (".git", "__MACOSX", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "conv.cu").write_text("text")
    with pytest.raises(UsageError, match="has no submissions"):
        grading.submissions(tmp_path)
    (tmp_path / "bert" / "__MACOSX").mkdir(parents=True)
    for name in ("._anna.cu", "anna.cu", ".DS_Store", "bert/._mine.cu", "bert/mine.cu"):
        (tmp_path / name).write_text(name)
    read = [(submission.name, submission.read().text) for submission in grading.submissions(tmp_path)]
    assert read == [("anna", "anna.cu"), ("bert", "bert/mine.cu")]
    assert grading.left_out(tmp_path) == []


# ---- Answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            b'{"problem": null}\n1234{"problem": "LaunchError"}\n{"problem": null}\n5678',
            [b"1234", REASONS["LaunchError"], b"5678"],
        ),
        (b'{"problem": "H=17"}\n{"problem": 17}\n{"problem": null}\n1234', [EARLY, EARLY, b"1234"]),
        (b'{"problem": null}\n1234', [b"1234", "stopped", "stopped"]),
        (b'{"problem": null}\n12', ["stopped"] * 3),
        (b"", ["stopped"] * 3),
        (b"x" * 10000, ["stopped"] * 3),
        (b'[1]\n{"problem": null}\n1234', ["stopped"] * 3),
    ],
)
def test_truncated_or_forged_outputs_are_not_accepted(answer, expected):
    assert list(parts(Ended(answer, 0, "stopped"), [4, 4, 4])) == expected


NASTY = [
    b"",
    b"[" * 100_000,
    b'{"said": ' + b"[" * 100_000,
    b'{"said": [1, 2]}',
    b'{"said": [[1], [2]], "problem": {"a": []}}',
    b'{"said": [["launch x 1"], ["done"]]}',
    b'{"problem": null, "problems": 1, "said": []}',
    b"null",
    b"\xff\xfe{}",
    b'{"problem": ' + b"9" * 10_000 + b"}",
]


@pytest.mark.parametrize("answer", NASTY, ids=range(len(NASTY)))
def test_whatever_a_sandbox_answers_a_submission_gets_a_grade(answer, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox.Sandbox, "run", lambda *words, **options: Ended(answer, 0))
    monkeypatch.setattr(grading, "missing_environment", lambda build: {})
    (tmp_path / "anna.cu").write_text(submissions.RIGHT)
    grader = grading.Grader(MADE, BUBBLEWRAP, Path(), ())
    (result,) = map(grader.grade, grading.submissions(tmp_path))
    assert (result.outcome, result.total) == (grading.FAILED, 0)
    assert len(result.feedback["file"]) == 1
    assert "the grader failed" not in result.feedback["file"][0]
    monkeypatch.setattr(grading.Grader, "screened", lambda self, source: (source.text, []))
    (result,) = map(grader.grade, grading.submissions(tmp_path))
    assert (result.outcome, result.total, len(result.feedback["file"])) == (grading.FAILED, 0, 1)
    monkeypatch.setattr(grading.Grader, "launch_table", lambda self, source: [])  # the later steps
    (result,) = map(grader.grade, grading.submissions(tmp_path))
    assert (result.outcome, result.total) == (grading.GRADED, 0)


def test_a_failure_of_the_grader_affects_one_submission(tmp_path, monkeypatch):
    monkeypatch.setattr(grading.Grader, "screened", lambda self, source: 1 / 0)
    (tmp_path / "anna.cu").write_text(submissions.RIGHT)
    (result,) = map(grading.Grader(MADE, "", Path(), ()).grade, grading.submissions(tmp_path))
    assert result.feedback["file"] == ["the grader failed: ZeroDivisionError: division by zero"]


@pytest.mark.usefixtures("cache")
def test_what_is_out_of_reach_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "glob", lambda self, pattern: pytest.fail("Permission denied"))
    worker.use_prepared(tmp_path / "nothing")
    monkeypatch.setattr(worker.os, "access", lambda path, mode: False)
    worker.use_prepared(tmp_path)


@pytest.mark.usefixtures("cache")
def test_one_process_at_a_time_prepares_what_sandboxes_read(monkeypatch):
    messages, compiled = [], []

    def run(words, **options):
        compiled.append(words[-1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(grading, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(grading, "missing_environment", lambda build: {})
    monkeypatch.setattr(grading, "print_to_stderr", messages.append)
    with ThreadPoolExecutor(1) as pool:
        with locked(cache_dir("sandbox"), print):
            prepared = pool.submit(grading.prepare)
            while not messages and not prepared.done():
                sleep(0.01)
            assert (len(messages), compiled) == (1, [])
        assert prepared.result() == cache_dir("sandbox")
    assert sorted(compiled) == sorted(grading.BUILDS)


SECRET = "hidden17x23"


def whatever(reply, text):
    """An answer of a worker with words that a submission has learnt, wherever it may put words."""
    job, sizes = json.loads(text), {letter: getattr(grading.PROBE, letter) for letter in assignment.LETTERS}
    if job["kind"] == "tell" and job["asked"][0][0] == sizes:  # public
        launch = ["launch k 1 1 1 1 1 1 0", "done"]
        return Ended(json.dumps({"said": [launch] * len(job["asked"])}).encode(), 0)
    if job["kind"] == "tell":
        return reply
    if job["kind"] == "outputs":
        return Ended(f'{{"problem": "{SECRET}"}}\n'.encode() * len(job["runs"]), 17)
    hidden = job["shapes"] != [grading.sizes_of(conv) for conv in grading.PUBLIC]
    return Ended(json.dumps({"problems": [f"conv.cu:17: {SECRET}"] if hidden else []}).encode(), 0)


@pytest.mark.parametrize(
    "answer",
    [
        Ended(json.dumps({"problem": f"unsupported {SECRET}"}).encode(), 0),
        Ended(b"", 17),
        Ended(json.dumps({"said": [[f"launch {SECRET} 1 1 1 1 1 1 0", "done"]]}).encode(), 0),
        None,
    ],
    ids=["a problem", "a status", "a launch", "each"],
)
def test_feedback_on_hidden_shapes_is_fixed_sentences(answer, tmp_path, monkeypatch):
    def run(self, words, text, *others):
        job = json.loads(text)
        right = Ended(
            json.dumps({"said": [["launch k 1 1 1 1 1 1 0", "done"]] * len(job.get("asked", ()))}).encode(), 0
        )
        return whatever(answer or right, text)

    monkeypatch.setattr(sandbox.Sandbox, "run", run)
    monkeypatch.setattr(grading, "missing_environment", lambda build: {})
    (tmp_path / "anna.cu").write_text(submissions.RIGHT)
    grader = grading.Grader(replace(MADE, screen=False), BUBBLEWRAP, Path(), ())
    (result,) = map(grader.grade, grading.submissions(tmp_path))
    feedback = {re.sub(r"^hidden shape \d: ", "", line) for lines in result.feedback.values() for line in lines}
    assert re.sub(r" \(order \d\)", "", "".join(feedback)).find("17") < 0
    assert SECRET not in "".join(feedback)
    if answer:
        assert feedback == {grading.UNRECORDED}
    else:
        fixed = {EARLY, grading.HIDDEN_ONLY, f"not checked: {grading.ADDRESSES_FIRST}"}
        assert {re.sub(r" \(order \d\)", "", line) for line in feedback if not line.startswith("and ")} == fixed


@pytest.mark.parametrize("found", [[], ["conv.cu:31: a store meets a load"]])
def test_checks_without_points_say_why(found, monkeypatch):
    monkeypatch.setattr(grading.Grader, "_problems", lambda *words: found)
    result = Grade("anna", points={"correct": 0.0})
    grading.Grader(MADE, "", Path(), ())._check(result, "races", grading.Source(""), [])
    assert (result.points["races"], result.feedback["races"]) == (0, found or [grading.NOTHING_RIGHT])
    result = Grade("anna", points={"correct": 11.25})
    grading.Grader(MADE, "", Path(), ())._check(result, "races", grading.Source(""), [])
    assert (result.points["races"], result.feedback.get("races", [])) == (0 if found else 10, found)


@pytest.mark.parametrize("wrong", grading.CHECKS)
def test_races_are_not_checked_where_addresses_fail(wrong, monkeypatch):
    def outputs(self, grade, source, launches):
        grade.points = {"correct": 45.0, "exact": 15.0}

    monkeypatch.setattr(grading.Grader, "launch_table", lambda self, source: [])
    monkeypatch.setattr(grading.Grader, "_outputs", outputs)
    monkeypatch.setattr(grading.Grader, "_problems", lambda self, check, *words: ["a line"] if check == wrong else [])
    result = Grade("anna")
    grading.Grader(replace(MADE, screen=False), "", Path(), ())._grade(result, grading.Source(""))
    hazards = {check: (result.points[check], result.feedback.get(check, [])) for check in grading.CHECKS}
    expected = {check: (MADE.points[check], []) for check in grading.CHECKS} | {wrong: (0.0, ["a line"])}
    if wrong == grading.ADDRESSES:
        expected |= dict.fromkeys(("races", "async"), (0.0, ["not checked: addresses must pass first"]))
    assert hazards == expected


def test_a_hidden_shape_may_be_there_twice(monkeypatch):
    homework, rights = replace(MADE, shapes=(*MADE.shapes[:2], MADE.shapes[0])), iter([True, True, False] + [True] * 12)
    monkeypatch.setattr(grading.Grader, "_run", lambda *words: Ended(b"", 0))
    monkeypatch.setattr(grading, "parts", lambda ended, sizes: [b"" if next(rights) else EARLY for _ in sizes])
    monkeypatch.setattr(grading.Grader, "_compared", lambda *words: None)
    result = Grade("anna")
    assert grading.Grader(homework, "", Path(), ())._outputs(result, grading.Source(""), []) is None
    assert result.points == {"correct": pytest.approx(30), "exact": 15}
    assert result.feedback == {"correct": [f"hidden shape 3: {EARLY}"]}


def test_outputs_are_called_wrong_without_their_values():
    conv = grading.PROBE
    for data, fixed in (
        (grading.UNIFORM, "differ by more than the tolerance"),
        (grading.INTEGERS, "wrong on integers"),
    ):
        x, w = grading.inputs(conv, 1, data, 1)
        problem = grading.fault(conv, x, w, np.full(conv.y_shape(1), 171717.0, np.float32), data)
        assert problem.endswith(fixed)
        assert "17" not in problem


def test_feedback_is_short():
    result = Grade("x")
    result.say("races", [f"line {number} {'x' * 100_000}" for number in range(50)])
    assert len(result.feedback["races"]) == grading.MOST_LINES + 1
    assert max(map(len, result.feedback["races"])) == grading.LINE_LENGTH
    assert grading.line_of("a\nb\x1b[31m\u202e" + "c" * 1000) == ("a b?[31m?" + "c" * 1000)[: grading.LINE_LENGTH]


ODD_NAMES = [
    "x y!z",
    "x!y z",
    "x_y_z",
    "a" * 100 + "b",
    "a" * 100 + "c",
    "0" + "\u8a66" * 80,
    "bob",
    "bob.cu",
    "Bob",
    ".",
    "..",
    ".hidden",
    "",
    "\udcff\udcfe",
    "\udcff\udcfd",
    "-rf",
    "../up",
    "new\nline",
]


def test_every_name_has_a_feedback_file_of_its_own(tmp_path):
    names = [*ODD_NAMES, *(scores.file_name(name) for name in ODD_NAMES)]  # as who knows how files are named
    grades = [Grade(name) for name in dict.fromkeys(names)]
    scores.open_folder(tmp_path)
    for each in grades:
        scores.write_feedback(each, MADE, tmp_path, False)
    files = {scores.file_name(grade.submission) for grade in grades}
    assert len(files) == len(grades)
    assert {path.name for path in (tmp_path / scores.FEEDBACK).iterdir()} == {f"{file}.txt" for file in files}
    assert max(len(f"{file}.txt.12345678.tmp".encode()) for file in files) <= 255


@pytest.mark.parametrize("place", ["loop/scores", "x" * 300, "file/scores", "readonly/scores"])
def test_scores_that_cannot_be_written_are_one_line_before_anything_is_graded(place, tmp_path, monkeypatch, capsys):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("")
    assignment.write(MADE, tmp_path / "hw")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "anna.cu").write_text("")
    monkeypatch.setattr(sandbox, "missing", lambda kind: None)
    monkeypatch.setattr(grade, "prepare", lambda: pytest.fail("too late"))
    if place.startswith("readonly"):

        def read_only(*_, **__):
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(scores, "TemporaryFile", read_only)
    words = [str(tmp_path / "hw"), str(tmp_path / "given"), "-o", str(tmp_path / place), "--backend", "host"]
    assert grade.main(words) == 2
    messages = capsys.readouterr().err
    assert "cannot write the scores into" in messages
    assert messages.count("\n") == 1


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


def test_submission_names_are_escaped_in_scores(tmp_path):
    name = '=1+1<script>alert("x")</script>'
    bad = Grade(name, grading.FAILED, {"correct": 1.0}, {"file": ["@SUM(A1)<img src=x>"]})
    good = Grade("../up", points={"correct": 45.0}, op_time=1.5)
    scores.open_folder(tmp_path)
    for each in (bad, good):
        scores.write_feedback(each, MADE, tmp_path, True)
    scores.write([bad, good], MADE, tmp_path, True, "note & note")
    rows = list(csv.DictReader(io.StringIO((tmp_path / scores.CSV).read_text())))
    assert [row["submission"] for row in rows] == [f"'{name}", "../up"]
    assert rows[1]["op time (ms)"] == "1.5000"
    assert rows[0]["total"] == "1"
    page = Tags((tmp_path / scores.PAGE).read_text())
    assert "Submissions: 2; does not run: 1; graded: 1." in page.text
    assert [page.text.count(words) for words in ("op time", "op time (ms)")] == [2, 1], "points, and ms"
    untimed = Tags(scores.page([good], MADE, scores.counted(MADE, False), ""))
    assert "op time" not in untimed.text
    assert not page.tags & {"script", "img"}
    assert name in page.text
    assert "@SUM(A1)<img src=x>" in page.text
    files = sorted(path.name for path in (tmp_path / scores.FEEDBACK).iterdir())
    assert len(files) == 2
    assert all(re.fullmatch(r"[\w-][\w.-]*", file) for file in files)
    assert "1 of 100 points" in (tmp_path / scores.FEEDBACK / f"{scores.file_name(name)}.txt").read_text()


# ---- Whole submissions -----------------------------------------------------------------------------------------------

KINDS = submissions.kinds
EXAMPLES = ("forges-an-answer", "harmless", "wrong-no-barrier", "fork-bomb")
NEIGHBOURS = ("spins-in-children", "right-tile-8", "prints-shapes-at-exit")


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A few submissions, graded on two shapes; one combines all attacks that must have no effect.

    The fork bomb runs until its time is up, so it is graded with a short limit.
    """
    if problem := sandbox.missing(BUBBLEWRAP):
        pytest.skip(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submissions, "kinds", few)
        shortly = replace(submissions.LIMITS, cpu_seconds=5)
        first = submissions.graded(4, tmp_path_factory.mktemp("course"), EXAMPLES[:3])  # the fourth has an odd name
        last = submissions.graded(1, tmp_path_factory.mktemp("bomb"), EXAMPLES[3:], shortly)
    return {part: first[part] + last[part] for part in ("unexpected", "rows")}


def few(secret, others, port):
    """The examples: a forged answer, the harmless attacks in one, a race, and a fork bomb."""
    every = {kind.name: kind for kind in KINDS(secret, others, port)}
    code = " ".join(f"{{ {code} }}" for code in submissions.harmless(secret, others, port).values())
    every["harmless"] = replace(every["connects"], name="harmless", text=submissions.on_load(code))
    return [every[name] for name in EXAMPLES]


@needs_gcc
def test_grades_are_as_expected_and_nothing_is_harmed(graded):
    assert graded["unexpected"] == []
    totals = {row["kind"]: row.get("total") for row in graded["rows"]}
    assert totals["harmless"] == "85"
    assert totals["fork-bomb"] == "0"
    assert len(totals) == 8


@needs_gcc
def test_feedback_names_the_student_s_line(graded):
    (row,) = [row for row in graded["rows"] if row["kind"] == "wrong-no-barrier"]
    assert float(row["total"]) == 0
    line = 1 + submissions.RIGHT[: submissions.RIGHT.index("acc += x4d")].count("\n")
    assert f"conv.cu:{line - 1}" in row["feedback"]


def test_op_times_need_a_gpu(monkeypatch):
    monkeypatch.setattr(timing, "choose_executor", lambda backend: type("Host", (), {"measures": False})())
    assert timing.gpu("auto") is None
    assert timing.image_counts(10)[-1] == 10
    assert set(range(1, 4)) <= set(timing.image_counts(10000))


@needs_gcc
def test_a_right_submission_beside_one_that_takes_all_it_can_keeps_its_points(tmp_path):
    if problem := sandbox.missing(BUBBLEWRAP):
        pytest.skip(problem)
    limits = replace(submissions.LIMITS, cpu_seconds=12)
    outcome = submissions.graded(len(NEIGHBOURS), tmp_path, NEIGHBOURS, limits, jobs=2)
    assert outcome["unexpected"] == []
    points = {row["kind"]: row.get("points") for row in outcome["rows"]}
    assert points["right-tile-8"] == "correct 45, exact 15, addresses 10, races 10, async 5"


def test_only_drops_no_other_submission_s_scores(tmp_path, monkeypatch, capsys):
    assignment.write(MADE, tmp_path / "hw")
    (tmp_path / "given").mkdir()
    for name in ("anna", "-bert"):
        (tmp_path / "given" / f"{name}.cu").write_text("")
    monkeypatch.setattr(sandbox, "missing", lambda kind: None)
    monkeypatch.setattr(grade, "prepare", Path)
    monkeypatch.setattr(grading.Grader, "grade", lambda self, submission: Grade(submission.name))
    words = [str(tmp_path / "hw"), str(tmp_path / "given"), "-o", str(tmp_path / "scores"), "--backend", "host"]
    assert grade.main([*words, "--only=-bert"]) == 0
    assert grade.main([*words, "--only=-bert"]) == 0  # again: it drops nothing
    assert grade.main(words) == 0
    table = (tmp_path / "scores" / scores.CSV).read_text()
    capsys.readouterr()
    assert grade.main([*words, "--only", "anna"]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/scores/scores.csv has other submissions' scores, which --only would drop: "
        "choose another -o\n"
    )
    assert (tmp_path / "scores" / scores.CSV).read_text() == table


@pytest.mark.parametrize("graded_before", [0, 1, 2])
def test_the_last_scores_stay_until_there_are_new_ones(graded_before, tmp_path, monkeypatch, capsys):
    assignment.write(MADE, tmp_path / "hw")
    (tmp_path / "given").mkdir()
    out, points = tmp_path / "scores", {"anna": 1.0, "-bert": 2.0, "carl": 3.0}
    for name in points:
        (tmp_path / "given" / f"{name}.cu").write_text("")
    order = sorted(points)

    def graded(self, submission):
        if order.index(submission.name) == stop:
            raise ending
        return Grade(submission.name, points={"correct": points[submission.name]})

    def totals():
        rows = csv.DictReader(io.StringIO((out / scores.CSV).read_text()))
        return {row["submission"]: row["total"] for row in rows}

    monkeypatch.setattr(sandbox, "missing", lambda kind: None)
    monkeypatch.setattr(grade, "prepare", Path)
    monkeypatch.setattr(grading.Grader, "grade", graded)
    words = [str(tmp_path / "hw"), str(tmp_path / "given"), "-o", str(out), "--backend", "host", "--jobs", "1"]
    stop, ending = graded_before, KeyboardInterrupt()
    assert grade.main(words) == 130
    assert list(totals() if graded_before else ()) == [scores.inert(name) for name in order[:graded_before]]
    assert "as before" not in capsys.readouterr().err, "there were none"
    stop = None
    assert grade.main(words) == 0
    first, page = totals(), (out / scores.PAGE).read_text()
    assert len(first) == len(points)
    points["anna"] = 45.0
    for ending in (KeyboardInterrupt(), MissingTool("no sandbox")):
        stop = graded_before
        assert grade.main(words) == (130 if isinstance(ending, KeyboardInterrupt) else 1)
        assert totals() == first
        assert (out / scores.PAGE).read_text() == page
        assert f"{out}/scores.csv and scores.html are as before this run\n" in capsys.readouterr().err
    stop = None
    monkeypatch.setattr(grade, "prepare", lambda: pytest.fail("stop"))
    (tmp_path / "given" / "carl.cu").unlink()
    with pytest.raises(pytest.fail.Exception):
        grade.main(words)
    assert totals() == first
    monkeypatch.setattr(grade, "prepare", Path)
    order.remove("carl")
    assert grade.main(words) == 0
    assert totals() == {"'-bert": "2", "anna": "45"}


def test_files_that_are_no_submissions_are_named(tmp_path, monkeypatch, capsys):
    assignment.write(MADE, tmp_path / "hw")
    (tmp_path / "given" / "carl").mkdir(parents=True)
    for name in ("anna.cu", "bert.cpp", "Dora.CU", ".DS_Store"):
        (tmp_path / "given" / name).write_text("")
    (tmp_path / "given" / "emil").symlink_to(tmp_path / "given" / "carl")
    monkeypatch.setattr(sandbox, "missing", lambda kind: None)
    monkeypatch.setattr(grade, "prepare", Path)
    monkeypatch.setattr(grading.Grader, "grade", lambda self, submission: Grade(submission.name))
    words = [str(tmp_path / "hw"), str(tmp_path / "given"), "-o", str(tmp_path / "scores"), "--backend", "host"]
    assert grade.main(words) == 0
    told = capsys.readouterr().err
    assert told == "not graded, neither NAME.cu nor a folder: 'Dora.CU', 'bert.cpp', 'emil'\n"
    for number in range(9):
        (tmp_path / "given" / f"{number}.zip").write_text("")
    assert grade.main(words) == 0
    assert "'4.zip' and 7 more\n" in capsys.readouterr().err


@pytest.mark.parametrize("place", [".", "scores", "new/scores"])
def test_scores_among_the_submissions_are_refused(place, tmp_path, capsys):
    assignment.write(MADE, tmp_path / "hw")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "anna.cu").write_text("")
    out = tmp_path / "given" / place
    assert grade.main([str(tmp_path / "hw"), str(tmp_path / "given"), "-o", str(out)]) == 2
    assert capsys.readouterr().err == f"error: {out} would be among the submissions: choose another -o\n"
    assert [path.name for path in (tmp_path / "given").iterdir()] == ["anna.cu"]


def test_missing_submissions_and_sandboxes_are_refused(tmp_path, monkeypatch, capsys):
    assignment.write(MADE, tmp_path / "hw")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "anna.cu").write_text("")
    words = [str(tmp_path / "hw"), str(tmp_path / "given"), "-o", str(tmp_path / "scores"), "--backend", "host"]
    assert grade.main([*words, "--only", "bert"]) == 2
    assert "no submission bert" in capsys.readouterr().err
    monkeypatch.setattr(sandbox, "missing", lambda kind: f"no {kind}: do this")
    assert grade.main(words) == 1
    assert (
        capsys.readouterr().err.strip()
        == "error: no bubblewrap: do this, or use --own-container in a container for grading"
    )
    assert grade.main([*words, "--own-container"]) == 1
    assert capsys.readouterr().err.strip() == "error: no container: do this"
    assert not (tmp_path / "scores").exists()


def test_the_recorded_submissions_were_graded_in_the_sandbox_as_expected():
    record = json.loads(submissions.OUT.read_text())
    assert (submissions.CHECKOUT / record["command"].split()[1]).is_file()
    assert record["unexpected"] == []
    assert record["sandbox"] == BUBBLEWRAP


@needs_gcc
def test_who_times_a_submission_verifies_it_first():
    if problem := sandbox.missing(BUBBLEWRAP):
        pytest.skip(problem)
    homework = replace(MADE, N=2, screen=False, limits=submissions.LIMITS)
    grader = grading.Grader(homework, BUBBLEWRAP, grading.prepare(), ())
    with pytest.raises(grading.Failed, match="layer 1: wrong"):
        timing.Gpu("host", None).time(grader, grading.Source(submissions.RIGHT.replace("acc = 0.0f;", "acc = 1.0f;")))


@needs_gcc
def test_machine_code_for_op_times_is_compiled_in_the_sandbox(monkeypatch):
    try:
        nvcc.find_nvcc()
    except MissingTool:
        pytest.skip("no nvcc on this machine")
    jobs = []
    monkeypatch.setattr(timing, "in_a_process", lambda job: jobs.append(job) or {"ms": 2.5})
    homework = replace(MADE, N=3, limits=submissions.LIMITS)
    if problem := sandbox.missing(BUBBLEWRAP):
        pytest.skip(problem)
    grader = grading.Grader(homework, BUBBLEWRAP, grading.prepare(), ())
    source = grading.Source(submissions.RIGHT)
    assert timing.Gpu("cuda", "90a").time(grader, source) == 2.5
    assert [b64decode(cubin)[:4] for cubin in jobs[0]["cubins"]] == [b"\x7fELF"] * 2
    with pytest.raises(grading.Failed, match=r"conv\.cu: .*compute_1a"):
        timing.Gpu("cuda", "1a").time(grader, source)


PRINTS = """
import ctypes, sys
from alexconv.grade import timing

def timed(job):
    libc = ctypes.CDLL(None)  # as a kernel's printf: into a buffer that is written when it is full, and at the end
    libc.printf(b"%4096s", b'{"ms": 0.001, "told": ')
    libc.printf(b"}")
    return {"ms": 5.0}

timing.timed = timed
sys.exit(timing.run_one())
"""


def test_an_op_time_is_not_what_a_kernel_prints():
    done = subprocess.run([sys.executable, "-c", PRINTS], input=b"{}", capture_output=True, check=True)
    assert json.loads(done.stdout) == {"ms": 5.0}


def test_a_process_that_times_has_a_time_limit(monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 0.01)
    assert "no op time after 0.01 s" in timing.in_a_process({})["problem"]
