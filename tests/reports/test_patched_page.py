"""Whole networks beside torch, on records made up here."""

from alexconv.records.store import RecordFile
from alexconv.reports import patched


def file_of(path, *records):
    file = RecordFile(path)
    headers = {
        "device": file.header("device", {"name": "H200", "uuid": "GPU-12"}),
        "run": file.header("run", {"packages": {}, "commit": "a" * 40}),
    }
    for network, N, contender, ms in records:
        facts = {"network": network, "N": N, "precision": "fp16", "contender": contender}
        result = {"ms": ms, "error": ms * 1e-3} if ms else {"failure": "RuntimeError: no"}
        file.header(patched.TYPE, {**headers, **facts, **result})
    return path


def test_networks_are_compared_with_the_fastest_other_contender(tmp_path):
    file = file_of(
        tmp_path / "h200.jsonl",
        ("vgg16", 32, "alexconv-nhwc", 9.0),  # measured again below
        ("vgg16", 32, "alexconv-nhwc", 1.0),
        ("vgg16", 32, "alexconv-nchw", 3.0),
        ("vgg16", 32, "torch-nhwc", 4.0),
        ("vgg16", 32, "compile-nhwc", 2.0),
        ("alexnet", 32, "alexconv-nhwc", 2.0),
        ("alexnet", 32, "torch-nchw", 1.0),
        ("alexnet", 32, "torch-nhwc", None),
        ("resnet18", 1, "alexconv-nhwc", 2.0),
    )
    parts = patched.parts([file])
    (summary,) = parts["patched-summary"].splitlines()[2:3]
    assert summary == "| fp16 | 32 | 2 | as fast | 1.25× faster | 2.00× slower | 1 of 2 | 1 |"
    alexnet, vgg = parts["patched-networks"].splitlines()[2:4]
    assert alexnet == "| alexnet | fp16 | 32 | 2.000 | nhwc | 1.000 | torch-nchw | 2.00× slower | 2.0e-03 | 1.0e-03 |"
    assert vgg == "| vgg16 | fp16 | 32 | 1.000 | nhwc | 2.000 | compile-nhwc | 2.00× faster | 1.0e-03 | 2.0e-03 |"


def test_without_measurements_the_page_says_so(tmp_path):
    assert set(patched.parts([file_of(tmp_path / "h200.jsonl")]).values()) == {"Not measured."}
