"""The ladder's table agrees with the kernel files, and every launch that it gives is within CUDA's limits."""

import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from math import ceil

import pytest
from ladders import PERSISTENT

from alexconv.compiling.sources import source_files
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.common.planes import outputs_per_thread
from alexconv.kernels.ladder import ALIASES, ALL_DIRECTIONS, LADDER, RUNGS, TRANSFER_ALIASES
from alexconv.kernels.problem import H200, Problem
from alexconv.kernels.rung import BATCH, FOLDER, IMAGES_PER_PIECE, MAX_BLOCK, MICRO_BATCH, Rung, defines
from alexconv.kernels.stages.ladder import STAGE_RUNGS
from alexconv.planning.transfers import TRANSFERS
from alexconv.precisions import PRECISIONS
from alexconv.shapes import DIRECTIONS, WGRAD, WORKLOADS, Conv

ALL_LAYERS = {
    f"{workload.name}-{number}": layer
    for workload in WORKLOADS.values()
    for number, layer in enumerate(workload.layers, start=1)
}
BEYOND_STUDIES = (
    "vgg16",
    "resnet50",
    "convnet-benchmarks",
    "convnet-layers",
    "depthwise",
    "first-last",
    "conv2d-v2",
    "large-filters",
)
LAYERS = {name: layer for name, layer in ALL_LAYERS.items() if not name.startswith(BEYOND_STUDIES)}
ODD = {
    "one pixel": Conv(C=1, H=1, W=1, M=1, R=1, S=1),
    "more taps than threads": Conv(C=3, H=12, W=12, M=2, R=11, S=11),
    "filter as large as the plane": Conv(C=7, H=9, W=9, M=5, R=9, S=9),
    "wide, stride 3": Conv(C=5, H=13, W=70, M=3, R=4, S=2, U=3),
    "tall, stride 2": Conv(C=5, H=70, W=13, M=3, R=2, S=4, U=2),
    "one row": Conv(C=2, H=1, W=3000, M=2, R=1, S=7),
    "a full block": Conv(C=3, H=34, W=34, M=2, R=3, S=3),
    "large plane": Conv(C=3, H=512, W=640, M=4, R=5, S=5),
    "many channels, large filters": Conv(C=1024, H=20, W=20, M=8, R=15, S=15),
}
STUDY = (
    *("mcpy", "um", "rla2m", "rswbdla2m", "rswmtla2m", "swso", "half"),
    *("mk", "mk-sw-mt", "mk-sw-mt-si-c", "mk-sw-mt-si-c-vec", "mk-sw-mt-si-c-half", "exp-mk-sw-mt-si-c-vec"),
)

STUDY_RUNGS = [rung for rung in LADDER if rung.alias in STUDY]

each_rung = pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
each_file = pytest.mark.parametrize("rung", ALL_DIRECTIONS, ids=lambda rung: rung.name)


def test_every_kernel_file_is_one_rung_and_every_rung_a_file():
    files = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.cu"))
    assert (
        sorted([*(rung.file for rung in ALL_DIRECTIONS), *{rung.file for rung in (*STAGE_RUNGS, PERSISTENT)}]) == files
    )
    assert all(rung.path.parent.name == rung.family for rung in (*ALL_DIRECTIONS, *STAGE_RUNGS, PERSISTENT))


@pytest.mark.parametrize("table", [RUNGS, ALIASES, TRANSFER_ALIASES])
def test_the_ladder_is_read_only(table):
    with pytest.raises(TypeError):
        del table[next(iter(table))]


def test_a_rung_can_be_hashed_as_points_are():
    assert len({hash(rung) for rung in ALL_DIRECTIONS}) == len(ALL_DIRECTIONS)


def test_names_and_aliases_are_unique():
    rungs, aliases = ALL_DIRECTIONS.named, ALL_DIRECTIONS.aliases
    names = [*rungs, *aliases, *TRANSFER_ALIASES]
    assert len(rungs) == len(aliases) == len(ALL_DIRECTIONS)
    assert len(names) == len(set(names))
    both = {rung.family for rung in LADDER} & {*names}  # such a word means the family
    assert all(RUNGS[word].family == word for word in both)


def test_a_rung_comes_after_its_parent():
    parents: set[str | None] = {None}
    for rung in ALL_DIRECTIONS:
        assert rung.parent in parents, rung.name
        parents.add(rung.name)


def test_the_abbreviations_of_the_alexnet_study_all_resolve():
    assert len(STUDY) == 13
    for abbreviation in STUDY:
        rung, transfer = TRANSFER_ALIASES.get(abbreviation) or (ALIASES[abbreviation], "pageable")
        assert rung in RUNGS
        assert transfer in TRANSFERS


@each_file
def test_the_file_opens_with_the_rungs_name_and_parent(rung: Rung):
    text = rung.path.read_text()
    assert text.startswith(f"// {rung.name}: ")
    opening = text[: text.index("#include")]
    assert rung.parent is None or re.search(rf"// Parent: {rung.parent}[ ,.:;]", opening)


@each_file
def test_the_launches_are_the_files_kernels(rung: Rung):
    kernel = r'extern "C" __global__ void\s+(?:[A-Z]\w*\s+)?(?:__launch_bounds__\([\w, ]+\)\s+)?(\w+)\((.*?)\)\s*\{'
    parameters = {
        name: arguments.count(",") + 1 for name, arguments in re.findall(kernel, all_uncommented(rung), re.DOTALL)
    }
    launches = (*rung.prepare, *rung.launches)
    assert parameters == {launch.entry: len(launch.args) for launch in launches}
    roles = DIRECTIONS[rung.direction]
    passed = {roles.x, roles.w, roles.y, *(array.name for array in (*rung.scratch, *rung.prepared, *rung.maps))}
    read = {array.array for array in rung.maps}  # an array that a map describes need not be an argument too
    if rung.constant_symbol:  # the filters come in constant memory, not as an argument
        passed.remove("w")
        assert re.search(rf"__constant__ .*\b{rung.constant_symbol}\[", uncommented(rung))
    arguments = {name for launch in launches for name in launch.args} - {BATCH}
    assert passed - read <= arguments <= passed


def uncommented(rung: Rung) -> str:
    return re.sub(r"//.*", "", rung.path.read_text())


def all_uncommented(rung: Rung) -> str:
    """The rung's file and its headers, in which rungs may share kernels."""
    return "\n".join(re.sub(r"//.*", "", file.read_text()) for file in source_files(rung.path))


@each_rung
def test_the_kernel_uses_every_constant(rung: Rung):
    source = all_uncommented(rung)
    names = {constant.name for constant in rung.constants} - {IMAGES_PER_PIECE, MICRO_BATCH}  # used by launches alone
    assert not [name for name in names if not re.search(rf"\b{name}\b", source)]


@each_rung
def test_a_kernel_with_pdl_waits_for_earlier_launches(rung: Rung):
    source = all_uncommented(rung)
    assert any(launch.pdl for launch in rung.launches) == ("wait_for_primary_launches();" in source)
    assert not any(launch.pdl for launch in rung.prepare), "what prepares the filters has nothing to do before x"


@each_rung
def test_precision_and_types_agree(rung: Rung):
    assert rung.dtype == PRECISIONS[rung.precision].dtype
    assert "__half" in uncommented(rung) or rung.dtype == "float32"


@each_rung
def test_every_launch_is_within_the_limits_or_refused(rung: Rung):
    for name, conv in {**(ALL_LAYERS if rung.takes else LAYERS), **ODD}.items():
        if not set(conv.features) <= set(rung.takes):
            continue
        constants = rung.resolve(conv, {})
        if reason := rung.refuses(Problem(conv, 1, constants)):
            assert rung not in STUDY_RUNGS or name in ODD, f"{rung.name} must take {name}: {reason}"
            assert re.search(r"\d", reason), f"{name}: a refusal says how much is too much"
            continue
        for launch in BoundRung(rung, conv, constants).launches(128):
            assert launch.outside_limits() is None, name
            assert launch.dynamic_shared <= H200.shared_per_block, name


def test_micro_batches_share_scratch_and_launches():
    conv, rung = WORKLOADS["alexnet"].layer(1), RUNGS["wgmma-window-scaled"]
    few, all_at_once = (BoundRung(rung, conv, rung.resolve(conv, {MICRO_BATCH: images})) for images in (64, 0))
    assert few.micro_batches(150) == [(0, 64), (64, 64), (128, 22)]
    assert few.micro_batches(64) == [(0, 64)]
    assert all_at_once.micro_batches(150) == BoundRung(rung, conv, {}).micro_batches(150) == [(0, 150)]
    assert few.launches(150) == all_at_once.launches(64)
    assert few.scratch_bytes(150) == all_at_once.scratch_bytes(64)
    assert few.scratch_bytes(20) == all_at_once.scratch_bytes(20)


@pytest.mark.parametrize("rung", STUDY_RUNGS, ids=lambda rung: rung.name)
def test_a_block_of_the_alexnet_study_covers_the_plane(rung: Rung):
    for name, conv in {**LAYERS, **ODD}.items():
        constants = rung.resolve(conv, {})
        for launch in BoundRung(rung, conv, constants).launches(1):
            columns, rows, _ = launch.block
            assert 0 <= columns * constants["THREAD_OUTPUTS"] - conv.F < constants["THREAD_OUTPUTS"], name
            assert 0 <= rows * constants["THREAD_OUTPUTS"] - conv.E < constants["THREAD_OUTPUTS"], name


def test_the_alexnet_study_refuses_only_a_filter_beyond_shared_memory():
    refused = {
        (rung.name, name)
        for rung in STUDY_RUNGS
        for name, conv in ODD.items()
        if rung.refuses(Problem(conv, 1, rung.resolve(conv, {})))
    }
    whole_filter = ("direct-filter-one-thread", "direct-filter-shared", "direct-sum-shared")
    assert refused == {(name, "many channels, large filters") for name in whole_filter}


@pytest.mark.parametrize("name", ["channels-plane-shared", "channels-vector", "channels-half", "channels-atomic"])
def test_planes_go_to_shared_memory_where_every_gpu_has_it(name: str):
    rung, layers = RUNGS[name], WORKLOADS["alexnet"].layers
    assert [rung.resolve(conv, {})["PLANE_SHARED"] for conv in layers] == [0, 1, 1, 1, 1]
    large = rung.resolve(layers[0], {"PLANE_SHARED": 1})
    assert rung.refuses(Problem(layers[0], 1, large)) is None
    larger = ODD["large plane"]
    reason = rung.refuses(Problem(larger, 1, rung.resolve(larger, {"PLANE_SHARED": 1})))
    assert reason and "shared memory" in reason and str(H200.shared_per_block) in reason


@each_file
def test_images_beyond_32_bit_integers_are_refused(rung: Rung):
    groups = 8 if rung.family == "depthwise" else 1
    conv = Conv(C=8, H=2**14, W=2**14, M=8, R=1, S=1, groups=groups, direction=rung.direction)
    assert rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))) == f"an image of {2**31} values exceeds {2**31 - 1}"


@pytest.mark.parametrize(
    ("name", "conv"),
    [
        ("wgrad-wgmma-scaled", Conv(C=1, H=2**14, W=2**14 + 2, M=1, R=3, S=3, direction=WGRAD)),
        ("wgmma-scaled", Conv(C=511, H=2**11, W=2**11, M=7, R=1, S=1, groups=7)),
        ("wgmma-winograd", Conv(C=64, H=2**16, W=402, M=8, R=3, S=3)),
    ],
)
def test_prepared_images_beyond_32_bit_integers_are_refused(name: str, conv: Conv):
    rung = ALL_DIRECTIONS.named[name]
    reason = rung.refuses(Problem(conv, 1, rung.resolve(conv, {})))
    assert reason and re.fullmatch(f"a (prepared|transformed) image of [0-9]+ values exceeds {2**31 - 1}", reason)


@pytest.mark.parametrize("name", ["mma-scaled", "mma-split"])
def test_planes_of_more_rows_than_16_bits_number_are_refused(name: str):
    rung, conv = RUNGS[name], Conv(C=1, H=2**15 + 2, W=4, M=1, R=3, S=3, left=1, right=1)
    higher = replace(conv, H=conv.H + 1)
    reasons = [rung.refuses(Problem(each, 1, rung.resolve(each, {}))) for each in (conv, higher)]
    assert reasons == [None, f"a window begins at row {2**15}: takes {2**15 - 1} at most"]


def test_a_block_too_large_is_refused():
    conv = LAYERS["alexnet-1"]
    reason = RUNGS["direct"].refuses(Problem(conv, 1, RUNGS["direct"].resolve(conv, {"THREAD_OUTPUTS": 1})))
    assert reason == "a block of 55 x 55 threads exceeds 1024"


@pytest.mark.parametrize(("rows", "columns"), [(55, 55), (1, 1), (1, 3000), (508, 636), (33, 31), (2000, 3)])
def test_a_thread_has_as_few_outputs_as_cover_the_plane(rows: int, columns: int):
    conv = Conv(C=1, H=rows, W=columns, M=1, R=1, S=1)
    fewest = next(k for k in range(1, 99) if ceil(rows / k) * ceil(columns / k) <= MAX_BLOCK)
    assert outputs_per_thread(conv) == fewest


def test_a_huge_plane_is_divided_without_a_long_loop():
    script = (
        "from alexconv.kernels.common.planes import outputs_per_thread; from alexconv.shapes import Conv\n"
        "for H, W in ((10**20, 10**20), (1, 10**20), (10**20, 10**19)):\n"
        "    print(outputs_per_thread(Conv(C=1, H=H, W=W, M=1, R=1, S=1)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [int(line) for line in done.stdout.split()][:2] == [10**20 // 32, -(-(10**20) // 1024)]


def test_the_compiler_is_told_the_geometry_for_one_image():
    conv, rung = LAYERS["alexnet-2"], RUNGS["channels"]
    macros = defines(rung, conv, rung.resolve(conv, {"CHANNELS": 20}))
    assert (macros["CONV_C"], macros["CHANNELS"]) == (96, 20)
    assert macros["LADDER_PARTIAL_ELEMENTS"] == 256 * 5 * 27 * 27
    assert [macros[f"LADDER_CHANNELS_GRID_{axis}"] for axis in "XYZ"] == [1, 256, 5]
    assert [macros[f"LADDER_CHANNELS_BLOCK_{axis}"] for axis in "XYZ"] == [27, 27, 1]
    assert (macros["LADDER_REDUCE_CHANNELS_THREADS"], macros["LADDER_CHANNELS_SHARED_BYTES"]) == (27 * 27, 0)


@each_rung
def test_every_shape_has_macros_that_contradict_none_of_the_rungs_constants(rung: Rung):
    for name, conv in {**LAYERS, **ODD}.items():
        constants = rung.resolve(conv, {})
        macros = defines(rung, conv, constants)  # for a refused shape too: a record's key contains them
        assert {key: macros[key] for key in macros.keys() & constants.keys()}.items() <= constants.items(), name
    launches = (*rung.prepare, *rung.launches)
    assert len({launch.entry for launch in launches}) == len(launches), "an entry point has one geometry"


def test_defaults_follow_the_device():
    conv, small = LAYERS["alexnet-2"], replace(H200, multiprocessors=108, shared_per_block=163 * 1024)
    rung = RUNGS["wgmma-half"]
    ours, theirs = (rung.resolve(conv, {}, device=device) for device in (H200, small))
    assert (ours["GRID_BLOCKS"], theirs["GRID_BLOCKS"]) == (132, 108)
    assert rung.refuses(Problem(conv, 1, theirs, small)) is None
    reason = rung.refuses(Problem(conv, 1, ours, small))
    assert reason and str(small.shared_per_block) in reason


@pytest.mark.parametrize("warps", [8, 16])
def test_static_shared_memory_counts_where_values_are_scaled(warps):
    conv, static = LAYERS["alexnet-3"], 6 * warps
    for name in ("mma-half", "mma-scaled", "mma-split"):
        rung = RUNGS[name]
        bound = BoundRung(rung, conv, rung.resolve(conv, {"WARPS": warps}, 1, H200), H200)
        (dynamic,) = {launch.dynamic_shared for launch in bound.launches(1)}
        held = dynamic + (0 if name == "mma-half" else static)
        for most in (held, held - 1):
            device = replace(H200, shared_per_block=most)
            assert (BoundRung(rung, conv, bound.constants, device).refusal() is None) == (most == held)


@each_rung
def test_every_device_has_defaults(rung: Rung):
    """Each layer with each device and each batch, and each device with each batch: pairs, not all products."""
    sizes = ((1, 48 * 1024), (40, 64 * 1024), (108, 163 * 1024), (300, 1 << 20))
    devices = [replace(H200, multiprocessors=count, shared_per_block=shared) for count, shared in sizes]
    for (place, (name, conv)), (other, device) in product(enumerate({**LAYERS, **ODD}.items()), enumerate(devices)):
        N = (1, 5000)[(place + other) % 2]
        constants = rung.resolve(conv, {}, N, device)
        assert (
            not rung.refuses(Problem(conv, N, constants, device))
            or device.shared_per_block < H200.shared_per_block
            or (rung.refuses(Problem(conv, N, rung.resolve(conv, {}))))
        ), f"{name}: more shared memory makes nothing impossible"


def test_a_constant_is_kept_only_where_it_matters():
    rung, conv = RUNGS["channels-vector"], LAYERS["alexnet-2"]
    assert rung.resolve(conv, {"COALESCED": 0})["COALESCED"] == 1, "one output per thread: both mappings are the same"
    assert rung.resolve(conv, {"COALESCED": 0, "THREAD_OUTPUTS": 4})["COALESCED"] == 0
    with pytest.raises(ValueError, match="COALESCED of channels-vector is 0, 1, not 2"):
        rung.resolve(conv, {"COALESCED": 2})
    with pytest.raises(ValueError, match="THREAD_OUTPUTS of channels-vector is 1 or more, not 0"):
        rung.resolve(conv, {"THREAD_OUTPUTS": 0})


def test_partial_planes_take_as_much_memory_as_in_the_study():
    conv = LAYERS["alexnet-4"]
    bytes_of = {
        name: BoundRung(RUNGS[name], conv, RUNGS[name].resolve(conv, {})).scratch_bytes(128)
        for name in ("channels", "channels-half", "channels-atomic")
    }
    assert bytes_of["channels"] == 384 * 128 * 384 * 13 * 13 * 4
    assert bytes_of["channels-half"] == bytes_of["channels"] // 2
    assert bytes_of["channels-atomic"] == 0


@pytest.mark.parametrize("layer", range(1, 6))
@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.family == "mma"], ids=lambda rung: rung.name)
def test_one_image_is_cut_into_a_block_for_nearly_every_multiprocessor(rung: Rung, layer: int):
    conv = WORKLOADS["alexnet"].layer(layer)
    (launch,) = BoundRung(rung, conv, rung.resolve(conv, {})).launches(1)
    assert 90 <= launch.grid[0] <= 132
