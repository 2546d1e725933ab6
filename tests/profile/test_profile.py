"""Profiles: what the host trace finds, how Nsight Compute's figures are read, and what the command records."""

import json
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from compilers import needs_gcc

from alexconv.cli.point_options import points_of
from alexconv.compiling.toolchain import CXX_VARIABLE
from alexconv.errors import LaunchError, MissingTool, UsageError
from alexconv.executors.cuda.buffers import CopiedBuffers
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.host.memory import HostBuffer
from alexconv.executors.host.runtime import HostRuntime
from alexconv.executors.host_memory import HostMemory
from alexconv.kernels.bound import LaunchConfig
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import H200, Problem
from alexconv.measuring.peers import peer_points
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.layouts import from_study
from alexconv.planning.peers import TORCH_PEERS
from alexconv.planning.points import ConstantSource, parse_constants
from alexconv.profile import __main__ as profile
from alexconv.profile import gpu, host, ncu, timeline
from alexconv.profile.profiles import Profile
from alexconv.profile.trace import spread_blocks, trace_launch
from alexconv.records.profiles import comparison
from alexconv.records.store import identity, read
from alexconv.shapes import WORKLOADS

KERNELS = Path(__file__).parent.parent / "sources"
SOURCE = KERNELS / "tracing.cu"
RACES = (
    *("from_next", "from_previous", "overwritten", "warp_sum", "shuffled"),
    *("same_elements", "global_neighbours", "last_block_stores"),
)
OF_BLOCKS = ("same_elements", "last_block_stores")
ENTRIES = (
    *("strided", "shared_strided", "half_of_the_lanes", "two_ways", "wide", "narrow", "pairs", "counted", "structs"),
    *RACES,
)
RAW_CSV = Path(__file__).parent.parent / "data" / "ncu_raw.csv"


def traced(entry, *numbers, arrays=2, fixed=0, order=0, threads=32, blocks=1, shared=0):
    """The trace of a kernel that takes ``arrays`` arrays of 64 KiB, then ``numbers``."""
    executor = HostRuntime(build="trace", order=order)
    module = executor.compile(SOURCE, {"FIXED": fixed}, ENTRIES)
    buffers = [executor.allocate(1 << 16) for _ in range(arrays)]
    for buffer in buffers:
        buffer.bytes[:] = 0
    launch = LaunchConfig(entry, (), (blocks, 1, 1), (threads, 1, 1), shared)
    return trace_launch(module, launch, [*buffers, *numbers], buffers, range(blocks))


def line_of(mark):
    """The number of the source line that a comment marks."""
    marks = [line.partition("  // ")[2].split(", ") for line in SOURCE.read_text().splitlines()]
    (number,) = [number for number, text in enumerate(marks, 1) if mark in text]
    return number


# ---- Requests --------------------------------------------------------------------------------------------------------


@needs_gcc
@pytest.mark.parametrize(
    ("stride", "offset", "sectors"), [(1, 0, 4), (2, 0, 8), (8, 0, 32), (32, 0, 32), (1, 1, 5), (0, 3, 1)]
)
def test_sectors_of_a_warps_loads(stride, offset, sectors):
    trace = traced("strided", stride, offset)
    assert trace.total("global", "load").per_request == sectors
    assert trace.total("global", "store").per_request == 4
    useful = 4 if stride == 0 else 128
    assert trace.total("global", "load").efficiency == pytest.approx(100 * useful / (32 * sectors))
    assert trace.active_lanes == 32


@needs_gcc
@pytest.mark.parametrize(("stride", "wavefronts"), [(1, 1), (33, 1), (2, 2), (4, 4), (32, 32), (0, 1)])
def test_wavefronts_of_shared_memory(stride, wavefronts):
    trace = traced("shared_strided", stride, arrays=1, shared=4 * 32 * 33)
    assert trace.total("shared", "load").per_request == wavefronts
    assert trace.total("shared", "store").per_request == wavefronts


@needs_gcc
def test_every_warp_asks_for_itself():
    loads = traced("strided", 1, 0, threads=72, blocks=3).total("global", "load")
    assert (loads.requests, loads.lanes, loads.transactions) == (9, 3 * 72, 3 * (4 + 4 + 1))


@needs_gcc
def test_half_of_the_lanes():
    trace = traced("half_of_the_lanes", threads=64)
    assert trace.total("global", "load").lanes_per_request == 16
    assert trace.total("global", "store").per_request == 2
    assert 16 < trace.active_lanes < 32


@needs_gcc
def test_lanes_meet_again_after_a_branch():
    count = 6
    lines = {line.place.line: line for line in traced("two_ways", count).lines}
    for mark, lanes in (("odd", 16), ("even", 16), ("all", 32)):
        line = lines[line_of(mark)]
        assert (line.requests, line.lanes_per_request) == (count, lanes)


@needs_gcc
@pytest.mark.parametrize(("entry", "nbytes", "sectors"), [("wide", 16, 16), ("narrow", 2, 2), ("pairs", 4, 4)])
def test_accesses_are_as_wide_as_in_the_source(entry, nbytes, sectors):
    trace = traced(entry)
    for line in trace.lines:
        assert (line.place.file, line.bytes, line.per_request) == (SOURCE.name, nbytes, sectors)
    assert {line.operation for line in trace.lines} == {"load", "store"}


@needs_gcc
def test_an_access_may_be_as_wide_as_a_struct():
    loads = traced("structs").total("global", "load")
    assert (loads.per_request, loads.useful, loads.efficiency) == (32 * 256 / 32, 32 * 256, 100)


@needs_gcc
def test_atomics_are_counted_separately_and_never_race():
    trace = traced("counted", arrays=1, blocks=2)
    assert (trace.total("global", "atomic").requests, trace.total("global", "atomic").per_request) == (2, 1)
    assert trace.total("global", "load") is trace.total("global", "store") is None
    assert not trace.races


# ---- Races -----------------------------------------------------------------------------------------------------------


@needs_gcc
@pytest.mark.parametrize("order", [0, 1, 2])  # forward, reverse, at random
@pytest.mark.parametrize("entry", RACES)
def test_races_are_found_whatever_the_order(entry, order):
    shape = {"threads": 32 if entry in ("warp_sum", "shuffled", "same_elements") else 64, "arrays": 1, "order": order}
    blocks = 2 if entry in OF_BLOCKS else 1
    trace = traced(entry, blocks=blocks, **shape)
    sites = {line_of(f"{entry} writes"), line_of(f"{entry} reads")}
    assert sites in [{race.first_place.line, race.second_place.line} for race in trace.races]
    assert all(race.first_place.file == SOURCE.name for race in trace.races)
    assert not traced(entry, blocks=blocks, fixed=1, **shape).races


@needs_gcc
def test_a_race_names_both_sites_and_threads():
    (race,) = traced("from_next", arrays=1, threads=64).races
    write, load = (f"tracing.cu:{line_of(mark)}" for mark in ("from_next writes", "from_next reads"))
    assert str(race) == f"shared store at {write} and load at {load}: block 0, threads 0 and 63"


def small_layer_for(rung):
    """The first of some layers that the rung takes: a workload and the layer's number."""
    places = (
        ("lenet-70-k5", 2),
        ("lenet-72-k7", 1),
        ("convnet-benchmarks", 37),
        ("convnet-benchmarks", 31),
        ("first-last", 2),
        ("depthwise", 10),
        ("first-last", 6),
        ("resnext-regnet", 4),
    )
    for workload, layer in places:
        conv = WORKLOADS[workload].layer(layer)
        if not rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))):
            return workload, layer
    raise AssertionError(f"{rung.name} takes none of these layers")


RUNGS_OF_LAYERS = {
    place: [rung.name for rung in LADDER if small_layer_for(rung) == place]
    for place in sorted({small_layer_for(rung) for rung in LADDER})
}


@needs_gcc
@pytest.mark.parametrize(("place", "names"), RUNGS_OF_LAYERS.items(), ids=lambda value: "-".join(map(str, value[:2])))
def test_every_rung_is_free_of_races(tmp_path, place, names):
    out, (workload, layer) = tmp_path / "profile.jsonl", place
    command = ["--backend", "host", "--workload", workload, "--layers", str(layer), "--blocks", "2", "--out", str(out)]
    assert profile.main([*command, "--rungs", ",".join(names)]) == 0
    headers = [header for header in read([out]).headers.values() if header["type"] == "profile"]
    assert {record["point"]["rung"] for record in headers} == set(names)
    assert all(record["metrics"]["races"] == 0 and record["races"] == [] for record in headers)
    assert all(record["source"] == "host" and 1 <= record["metrics"]["blocks"] <= 2 for record in headers)


@needs_gcc
def test_a_trace_begins_with_zeros_for_inputs_and_nan_for_all_else(tmp_path, monkeypatch):
    begins = []

    def allocate(self, nbytes, name="array"):
        buffer = HostBuffer(nbytes)
        buffer.bytes[:] = 0x55
        return buffer

    def traced_launch(module, launch, arguments, buffers, blocks):
        begins.append([set(buffer.bytes) for buffer in buffers])
        return trace_launch(module, launch, arguments, buffers, blocks)

    monkeypatch.setattr(HostRuntime, "allocate", allocate)
    monkeypatch.setattr(host, "trace_launch", traced_launch)
    command = ["--backend", "host", "--workload", "lenet-70-k5", "--layers", "2", "--rungs", "unroll-matmul"]
    assert profile.main([*command, "--blocks", "1", "--out", str(tmp_path / "profile.jsonl")]) == 0
    assert begins[0] == [{0}, {0xFF}, {0xFF}, {0}]  # x, y, the unrolled input, w


@needs_gcc
@pytest.mark.parametrize("lines", [False, True])
def test_lines_are_shown_when_asked_for(tmp_path, capsys, lines):
    command = ["--backend", "host", "--workload", "lenet-70-k5", "--layers", "2", "--blocks", "2"]
    command += ["--rungs", "tiled-half2", "--out", str(tmp_path / "profile.jsonl")]
    assert profile.main([*command, *(["--lines"] if lines else [])]) == 0
    assert ("tiled_half2.cu:" in capsys.readouterr().out) == lines


@needs_gcc
@pytest.mark.parametrize("name", ["plain.cu", "two words.cu", "0xb.cu"])
def test_a_race_is_named_with_the_line_of_a_file_without_headers(tmp_path, name):
    file, out = tmp_path / name, tmp_path / "profile.jsonl"
    file.write_text(
        "__global__ void twice(float *y, int B)\n{\n    for (int n = 0; n < B; n++)\n"
        "        y[n * 32 + threadIdx.x / 2] = 1;\n}\n"
        "void conv_forward(float *y, const float *x, const float *w, int B, int M, int C, int H, int W, int K, int S)\n"
        "{\n    twice<<<1, 32>>>(y, B);\n}\n"
    )
    command = ["--backend", "host", "--workload", "lenet-70-k5", "--layers", "2", "--N", "1", "--kernel", str(file)]
    assert profile.main([*command, "--rungs", file.stem.replace(" ", "-"), "--out", str(out)]) == 1
    (record,) = (header for header in read([out]).headers.values() if header["type"] == "profile")
    assert [race.partition(": ")[0] for race in record["races"]] == [f"global store at {name}:4 and store at {name}:4"]
    assert [line["place"] for line in record["lines"]] == [{"file": name, "line": 4}]


def test_blocks_are_spread_from_first_to_last():
    assert spread_blocks((10, 10, 1), 3) == [0, 50, 99] or spread_blocks((10, 10, 1), 3) == [0, 49, 99]
    assert spread_blocks((2, 1, 1), 5) == [0, 1]
    assert spread_blocks((7, 1, 1), 1) == [0]
    assert spread_blocks((7, 2, 1), 10**12) == list(range(14))


def test_clang_cannot_trace(tmp_path, monkeypatch):
    fake = tmp_path / "clang++"
    fake.write_text("#!/bin/sh\necho clang version 99\n")
    fake.chmod(0o755)
    monkeypatch.setenv(CXX_VARIABLE, str(fake))
    with pytest.raises(MissingTool, match=r"needs g\+\+, not clang.*set CXX"):
        HostRuntime(build="trace")


# ---- Nsight Compute --------------------------------------------------------------------------------------------------


def test_csv_of_a_report_becomes_plain_metrics():
    first, second = ncu.parse_csv(RAW_CSV.read_text())
    assert (first.entry, second.entry) == ("unroll", "multiply")
    assert first.metrics["duration_ns"] == 1_234_560
    assert first.metrics["global_load_sectors_per_request"] == 5.39
    assert "shared_load_wavefronts_per_request" not in first.metrics  # no shared memory: n/a and zero requests
    assert second.metrics["shared_load_wavefronts_per_request"] == 1.25
    assert second.metrics["warp_execution_efficiency"] == pytest.approx(100 * 31.2 / 32)
    assert second.metrics["stall_long_scoreboard"] == 2.5
    assert set(second.metrics) >= {*ncu.METRICS} - {"tensor_pipe"}


def fake_ncu(tmp_path, monkeypatch, script):
    """An `ncu` on the PATH that does what the shell script says."""
    path = tmp_path / "ncu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return path


def test_ncu_runs_the_program_and_its_text_is_read_where_the_module_is_absent(tmp_path, monkeypatch):
    script = f"""if [ "$1" = --import ]; then echo '==PROF== reading'; cat {RAW_CSV}; exit; fi
while [ "$1" != --export ]; do shift; done
report=$2; shift 2
"$@" > "$report" """
    written = tmp_path / "ran"
    kernels = ncu.profile(fake_ncu(tmp_path, monkeypatch, script), ["touch", str(written)])
    assert written.exists()
    assert [kernel.entry for kernel in kernels] == ["unroll", "multiply"]


@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'", ncu.NoCounters, "run as root"),
        ("echo '==ERROR== Failed to find metric'; exit 1", LaunchError, "Failed to find metric"),
        ("echo 'error: no such GPU' >&2; exit 9", LaunchError, "no such GPU"),
    ],
)
def test_a_failure_under_ncu_is_one_line(tmp_path, monkeypatch, script, error, text):
    with pytest.raises(error, match=text) as caught:
        ncu.profile(fake_ncu(tmp_path, monkeypatch, script), ["true"])
    assert "\n" not in str(caught.value)


def test_a_missing_ncu_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "INSTALLED", ())
    with pytest.raises(ncu.NoCounters, match="install NVIDIA Nsight Compute"):
        ncu.find_ncu()


def counted(tmp_path, monkeypatch, entries):
    """The profiles of a rung, with a stand-in for Nsight Compute's child that lists these launches."""
    options = profile.parser().parse_args(["--rungs", "unroll-matmul", "--layers", "2"])
    (point,) = points = points_of(options, LADDER, 128)
    kernels = [{"point": identity(point.axes()), "entry": entry, "images": 128} for entry in entries]
    launched = tmp_path / "launched"
    launched.write_text(json.dumps({"kernels": kernels, "problems": ["direct: out of memory"]}))
    script = f"""if [ "$1" = --import ]; then cat {RAW_CSV}; exit; fi
while [ "$1" != --export ]; do shift; done
: > "$2"
while [ "$1" != --child ]; do shift; done
cat {launched} > "$2" """
    fake_ncu(tmp_path, monkeypatch, script)
    return gpu.counted(points, [])


def test_kernels_get_their_share_of_their_rungs_time(tmp_path, monkeypatch, capsys):
    unroll, multiply = counted(tmp_path, monkeypatch, ["unroll", "multiply"])
    assert (unroll.entry, unroll.source, unroll.images, unroll.point.rung) == ("unroll", "ncu", 128, "unroll-matmul")
    assert unroll.metrics["share"] == pytest.approx(100 * 1_234_560 / 3_234_560)
    assert unroll.metrics["share"] + multiply.metrics["share"] == pytest.approx(100)
    assert "direct: out of memory" in capsys.readouterr().err


def test_counters_are_never_given_to_another_kernel(tmp_path, monkeypatch):
    with pytest.raises(LaunchError, match="saw 2 kernels, but 1 were launched"):
        counted(tmp_path, monkeypatch, ["unroll"])


class Compiled:
    """A program as loaded by the CUDA executor, and the executor itself."""

    name = "cuda"
    opens: ClassVar = {"pageable": None}
    device = replace(H200, shared_per_block=1 << 20)

    def unsuited(self, rung):
        return None

    def memory_budget(self):
        return 1 << 40

    def load(self, bound):
        return self

    def launches(self, images):
        known = {"registers": 40, "static_shared": 2048, "dynamic_shared": 0, "local": 0, "occupancy": 0.75}
        return [{"entry": "tiled", "grid": (1, 1, 1), "block": (256, 1, 1), **known}]


def test_without_counters_the_compiler_and_the_driver_are_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "INSTALLED", ())
    options = profile.parser().parse_args(["--rungs", "tiled", "--layers", "2", "--N", "128"])
    points = points_of(options, LADDER, 128)
    runner = Runner(Compiled(), points, Settings())
    (measured,) = gpu.cuda_profiles(runner, points, [])
    assert "install NVIDIA Nsight Compute" in capsys.readouterr().err
    assert (measured.source, measured.images) == ("driver", 128)
    assert measured.metrics["registers"] == 40
    assert measured.metrics["theoretical_occupancy"] == 75


@pytest.mark.parametrize("source", ["driver", "host"])
def test_a_profile_counts_the_images_of_one_micro_batch(monkeypatch, source):
    command = ["--rungs", "wgmma-window-scaled", "--layers", "1", "--N", "128", "--set", "MICRO_BATCH=64"]
    options = profile.parser().parse_args(command)
    points = points_of(options, LADDER, 128, ConstantSource(parse_constants(options.set)))
    runner = Runner(Compiled(), points, Settings())
    monkeypatch.setattr(host, "trace_point", lambda *arguments: [("window", None)])
    monkeypatch.setattr(host, "trace_metrics", lambda trace: {})
    makers = {"driver": gpu.known_without_counters(runner, points), "host": host.host_profiles(runner, points, 1)}
    (description,) = makers[source]
    assert (description.source, description.images) == (source, 64)


class Started(CopiedBuffers):
    """A point on Launching, which records its input and its calls."""

    def __init__(self, executor, program, x):
        self.executor, self.program, self.x = executor, program, x
        self.pointers, self.stream = {}, executor.gpu.stream

    def outputs(self, *, stale=False):
        self.executor.done.append("outputs")
        return self.x

    def close(self):
        self.executor.done.append("close")


FLUSHED = 1 << 28  # bytes of the flush buffer


class Launching(CudaExecutor):
    """The CUDA executor without a GPU, which records its calls."""

    device = H200

    def __init__(self):
        self.done, self.opened = [], []
        names = ("start_profiler", "stop_profiler")
        driver = SimpleNamespace(**{name: partial(self.done.append, name) for name in names})
        self.gpu = SimpleNamespace(
            stream=SimpleNamespace(synchronize=lambda: self.done.append("synchronize")),
            driver=driver,
            capability=(9, 0),
            errors=lambda what: nullcontext(),
            host_memory=HostMemory(np.empty),
            recorded=lambda enqueue: nullcontext(partial(enqueue, None)),
            flush_buffer=(0, FLUSHED),
        )

    def memory_budget(self):
        return 1 << 40

    def load(self, bound):
        return SimpleNamespace(enqueue=lambda images, pointers, stream: self.done.append(f"enqueue {images}"))

    def open(self, program, plan, x, w, transfer, bias=None):
        self.opened.append((x, w))
        return Started(self, program, x)


@pytest.mark.parametrize("rung", ["tiled", "mma-half"])
def test_nsight_compute_sees_kernels_run_on_the_layers_images_in_the_rungs_layout(rung):
    options = profile.parser().parse_args(["--rungs", rung, "--layers", "5", "--N", "2"])
    points = points_of(options, LADDER, 128)
    executor = Launching()
    runner = Runner(executor, points, Settings())
    launched = gpu.launch_once(gpu.Opener(runner), points)
    assert launched["problems"] == []
    assert {(kernel["point"], kernel["images"]) for kernel in launched["kernels"]} == {(identity(points[0].axes()), 2)}
    profiled = ["start_profiler", "enqueue 2", "synchronize", "stop_profiler"]
    assert executor.done == ["outputs", *profiled, "close"]
    layer, entry = runner.layer(points[0]), RUNGS[rung]
    ((x, w),) = executor.opened
    np.testing.assert_array_equal(x, from_study(layer.x.astype(entry.dtype), entry.layout))
    np.testing.assert_array_equal(w, layer.w.astype(entry.dtype))
    assert x.flags.c_contiguous


# ---- Time axis -------------------------------------------------------------------------------------------------------


def event(cat, ts, dur, **args):
    """An event of torch's profiler."""
    return {"ph": "X", "cat": cat, "name": "name", "ts": ts, "dur": dur, "args": args}


def trace_of(hot, between=1.0):
    """Cold runs of one length and hot ones of these lengths, each a kernel, a clearing of 64 bytes and a kernel."""
    events, now = [], 1000.0
    for length in hot:
        events.append(event("gpu_memset", now, 5.0, bytes=FLUSHED))
        for us in (50.0, length):
            facts = {"grid": [us, 1, 1], "block": [128, 1, 1], "registers per thread": 40, "shared memory": 1024}
            events.append(event("kernel", now + 10, us, **facts))
            events.append(event("gpu_memset", now + 10 + us, 0.5, bytes=64))
            events.append(event("kernel", now + 10 + us + between, 2 * us, **facts))
            now += 1000
    return events


def test_the_hot_run_of_median_length_is_kept():
    kernels = timeline.hot_run(trace_of([9.0, 7.0, 30.0]), 3, FLUSHED, ["flip", "multiply"])
    assert [(kernel["entry"], kernel["start_us"], kernel["us"]) for kernel in kernels] == [
        *(("flip", 0.0, 9.0), ("memset", 9.0, 0.5), ("multiply", 10.0, 18.0)),
    ]
    facts = {"grid": [9.0, 1, 1], "block": [128, 1, 1], "registers": 40, "shared_bytes": 1024}
    assert facts.items() <= kernels[0].items()


@pytest.mark.parametrize("entries", [["one"], ["one", "two", "three"]])
def test_runs_that_cannot_be_told_apart_are_an_error(entries):
    with pytest.raises(LaunchError, match=f"18 operations in 6 runs of {len(entries)} kernels"):
        timeline.hot_run(trace_of([9.0, 7.0, 30.0]), 3, FLUSHED, entries)


def test_an_event_that_is_missing_is_noticed():
    with pytest.raises(LaunchError, match="17 operations"):
        timeline.hot_run(trace_of([9.0, 7.0, 30.0])[:-1], 3, FLUSHED, ["flip", "multiply"])


class Peers:
    """The runner of peers without a GPU: a convolution of two kernels."""

    def versions(self):
        return {"cudnn": "9.19.0"}

    @contextmanager
    def opened(self, point):
        done = []
        yield SimpleNamespace(
            kernels=["_Z4flipPf", "gemm"], workspace_bytes=64, enqueue=partial(done.append, 1), replay=done.clear
        )


def test_kernels_of_rungs_and_peers_have_times_and_counters():
    options = profile.parser().parse_args(["--rungs", "unroll-matmul", "--layers", "5", "--N", "2"])
    points = points_of(options, LADDER, 128)
    peers = peer_points(points, [peer for peer in TORCH_PEERS if peer.name == "torch-nchw-fp32"])
    executor = Launching()
    executor.time = lambda pieces, seconds: {"kernel": [0.5]}
    executor.under_load = lambda pieces, samples: {"clock_mhz": 1755.0}
    tracer = SimpleNamespace(traced=lambda run, runs: trace_of([9.0] * runs))
    opener = gpu.Opener(Runner(executor, [*points, *peers], Settings()), Peers())
    counted = [
        Profile(peers[0], entry, "ncu", 2, {"waves": waves}) for entry, waves in (("_Z4flipPf", 1.0), ("gemm", 2.0))
    ]
    lines = [line.counted(counted) for line in timeline.timelines(opener, tracer, [*points, *peers])]
    assert [line.has_counters for line in lines] == [False, True]
    rung, peer = (line.record() for line in lines)
    assert [kernel["entry"] for kernel in rung["kernels"]] == ["unroll", "memset", "multiply"]
    assert all("metrics" not in kernel for kernel in rung["kernels"])
    assert [kernel.get("metrics") for kernel in peer["kernels"]] == [{"waves": 1.0}, None, {"waves": 2.0}]
    assert (peer["point"]["rung"], peer["images"], peer["clock_mhz"]) == ("torch-nchw-fp32", 2, 1755.0)
    assert peer["samples"] == {"kernel": [0.5]}
    assert peer["peer"] == {"cudnn": "9.19.0", "workspace_bytes": 64}
    others = [replace(profile, entry="winograd") for profile in counted]
    (other,) = timeline.timelines(opener, tracer, peers)
    assert other.counted(others) == other
    launched = gpu.launch_once(opener, peers)["kernels"]
    assert [kernel["entry"] for kernel in launched] == ["_Z4flipPf", "gemm"]


def test_kernels_of_every_micro_batch_have_the_counters_of_the_first():
    operations = [{"entry": entry} for entry in ("convert", "memset", "multiply", "convert", "memset", "multiply")]
    point = object()
    line = timeline.Timeline(point, 128, {}, ["convert", "multiply"] * 2, operations)
    own = [Profile(point, entry, "ncu", 64, {"waves": waves}) for entry, waves in (("convert", 1.0), ("multiply", 2.0))]
    waves = [operation.get("metrics", {}).get("waves") for operation in line.counted(own).operations]
    assert waves == [1.0, None, 2.0] * 2
    assert line.counted(own[:1]) == line


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.filterwarnings("default")  # torch's own warnings are no errors
def test_a_gpu_records_the_kernels_of_a_rung_and_of_cudnn(tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "profile.jsonl"
    command = ["--rungs", "igemm-async", "--layers", "3", "--N", "2", "--peers", "torch-nchw-fp32", "--out", str(out)]
    assert profile.main(command) == 0
    lines = [header for header in read([out]).headers.values() if header["type"] == "timeline"]
    assert [line["point"]["rung"] for line in lines] == ["igemm-async", "torch-nchw-fp32"]
    assert [kernel["entry"] for kernel in lines[0]["kernels"]] == [
        launch.entry for launch in RUNGS["igemm-async"].launches
    ]
    assert all(kernel["us"] > 0 for line in lines for kernel in line["kernels"])


@pytest.mark.parametrize(
    ("entry", "function", "same"),
    [("multiply", "multiply", True), ("multiply", "multi", False), ("_Z11flip_filterIffEvPT0_", "flip_filter", True)],
)
def test_a_mangled_name_holds_its_functions(entry, function, same):
    assert gpu.same_function(entry, function) == same


# ---- Two files side by side ------------------------------------------------------------------------------------------


def records(path, source, metrics, N):
    axes = {"workload": "alexnet", "layer": 2, "N": N, "rung": "tiled", "transfer": "pageable", "precision": "fp32"}
    point = axes | {"constants": {"TILE": 16}}
    line = {"schema": 1, "type": "profile", "key": source, "point": point, "entry": "tiled", "source": source}
    path.write_text(json.dumps({**line, "metrics": metrics}) + "\n")
    return path


def test_comparison_of_host_and_gpu(tmp_path):
    name = "global_load_sectors_per_request"
    counted = records(tmp_path / "gpu.jsonl", "ncu", {name: 4.0, "shared_load_wavefronts_per_request": 1.5}, 128)
    traced = records(tmp_path / "host.jsonl", "host", {name: 3.0}, 1)
    lines = list(comparison(counted, traced))
    loads = lines[lines.index("**Global load sectors per request**") :]
    heading, rule, row = loads[2:5]
    assert row == "| alexnet, 2 | tiled: tiled | 3 | 4 | 0.75 |"
    assert "| alexnet, 2 | tiled: tiled | - | 1.50 | - |" in lines
    assert heading.count("|") == rule.count("|") == row.count("|")
    with pytest.raises(UsageError, match="no profiles from ncu"):
        list(comparison(traced, counted))


def test_nothing_profiled_is_a_failure(tmp_path, capsys):
    command = [
        "--backend",
        "host",
        "--rungs",
        "tiled-constant",
        "--layers",
        "2",
        "--out",
        str(tmp_path / "profile.jsonl"),
    ]
    assert profile.main(command) == 1
    assert "0 kernels" in capsys.readouterr().out
