"""What cuDNN and cuBLAS run, by the names of their kernels: the names are all that tells their algorithm."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from alexconv.reports.measurements import Measured
from alexconv.shapes import Conv

UNKNOWN = "not identified"
REAL_PRODUCTS = 4  # of a complex one
FFT_TILE = re.compile(r"fft2d_r2c_(\d+)x\1")
FFT, WINOGRAD = "FFT", "Winograd"
MEGA = 1e6
FMA, MMA, WGMMA = "FMA units", "tensor cores (mma)", "tensor cores (wgmma)"


@dataclass(frozen=True)
class Kernel:
    """What a kernel does; ``algorithm`` is that of a convolution that it is part of, if the name says it."""

    step: str
    algorithm: str = ""


RULES = tuple(
    (re.compile(pattern), Kernel(step, algorithm))
    for pattern, step, algorithm in (
        (r"flip_filter", "flip filters", ""),
        (r"fft2d_r2c_(\d+)x\1", r"FFT, tiles of \1×\1", FFT),
        (r"fft2d_c2r_(\d+)x\1", r"inverse FFT, tiles of \1×\1", FFT),
        (r"pointwise_mult_and_sum_complex", "complex products and sums", FFT),
        (r"xmma_gemm_cf32cf32.*_ffma_", f"complex GEMM, {FMA}", ""),
        (r"winograd", WINOGRAD, WINOGRAD),
        (r"kern_precompute_indices", "precompute indices", ""),
        (
            r"precomputed_convolve_sgemm",
            "implicit GEMM (sgemm), precomputed indices",
            "implicit GEMM, precomputed indices",
        ),
        (r"implicit_convolve_sgemm", "implicit GEMM (sgemm)", "implicit GEMM"),
        (r"fprop_implicit_gemm_.*_ffma_", f"implicit GEMM, {FMA}", "implicit GEMM"),
        (r"sm90_xmma_fprop_implicit_gemm_.*_warpgroupsize", f"implicit GEMM, {WGMMA}", "implicit GEMM"),
        (r"sm80_xmma_fprop_implicit_gemm_.*_tensor\d", f"implicit GEMM, {MMA}", "implicit GEMM"),
        (r"cutlass_tensorop_\w+fprop_optimized", f"implicit GEMM (CUTLASS), {MMA}", "implicit GEMM"),
        (r"fprop_image_first_layer_.*_tensor\d", f"convolution of a first layer, {MMA}", ""),
        (r"convolve_common_engine_float_NHWC", "convolution in NHWC", ""),
        (r"sm80_xmma_gemm_.*_ffma_|simt_sgemm", f"GEMM, {FMA}", "GEMM"),
        (r"sm80_xmma_gemm_.*_tensor\d|tensorop_\w*gemm", f"GEMM, {MMA}", "GEMM"),
        (r"sm90_xmma_gemm_.*_warpgroupsize", f"GEMM, {WGMMA}", "GEMM"),
        (r"nvjet_sm90", "GEMM (nvjet)", "GEMM"),
        (r"splitKreduce", "add split-K parts", ""),
        (r"nchwToNhwc", "NCHW to NHWC", ""),
        (r"nhwcToNchw", "NHWC to NCHW", ""),
        (r"convertTensor", "convert types", ""),
        (r"nhwcAddPadding", "pad NHWC", ""),
        (r"init_device_workspace", "initialize workspace", ""),
    )
)


def kernel_of(name: str) -> Kernel:
    """What a kernel of this name does."""
    for pattern, kernel in RULES:
        if match := pattern.search(name):
            return Kernel(match.expand(kernel.step), kernel.algorithm)
    return Kernel(UNKNOWN)


def steps(names: Iterable[str]) -> str:
    """What kernels do, in their order; what several do stands once with their number."""
    counts = Counter(kernel_of(name).step for name in names)
    return "; ".join(f"{count} × {step}" if count > 1 else step for step, count in counts.items())


def algorithm_of(names: Sequence[str]) -> str:
    """The algorithm that the kernels of a convolution are parts of."""
    return next((kernel.algorithm for kernel in map(kernel_of, names) if kernel.algorithm), UNKNOWN)


def fft_tile(names: Sequence[str]) -> int | None:
    """The width of the tiles that are transformed, in pixels; None without an FFT."""
    match = FFT_TILE.search(" ".join(names))
    return int(match[1]) if match else None


def products(names: Sequence[str], conv: Conv) -> int | None:
    """Real products for a plane of outputs and an input channel; None if the algorithm is not identified.

    A real tile of T x T pixels has T (T / 2 + 1) coefficients after the transform, each a complex product, and gives
    T - R + 1 rows of outputs.  Transforms are not counted.
    """
    if tile := fft_tile(names):
        return REAL_PRODUCTS * tile * (tile // 2 + 1) * fft_tiles(tile, conv)
    return None if algorithm_of(names) in (UNKNOWN, WINOGRAD) else definition(conv)


def definition(conv: Conv) -> int:
    """The definition's products for a plane of outputs and an input channel."""
    return conv.E * conv.F * conv.R * conv.S


def fft_tiles(tile: int, conv: Conv) -> int:
    """Tiles that cover a plane's outputs."""
    down, across = -(-conv.E // (tile - conv.R + 1)), -(-conv.F // (tile - conv.S + 1))
    return down * across


@dataclass(frozen=True)
class Plan:
    """What a peer ran for a layer: its kernels by name, and the memory that they took besides the arrays."""

    names: tuple[str, ...]
    workspace_bytes: int | None
    conv: Conv

    @property
    def brief(self) -> str:
        """Algorithm and workspace."""
        tile, megabytes = fft_tile(self.names), round((self.workspace_bytes or 0) / MEGA)
        name = f"{FFT} of {tile}×{tile} tiles" if tile else algorithm_of(self.names)
        return f"{name}, {megabytes} MB of workspace" if megabytes else name

    @property
    def products(self) -> str | None:
        """Its products, and the definition's where these differ."""
        own, usual = products(self.names, self.conv), definition(self.conv)
        return None if own is None else f"{own:,}" if own == usual else f"{own:,} instead of {usual:,}"

    @property
    def bound(self) -> str:
        """What the error's bound is in terms of."""
        if tile := fft_tile(self.names):
            return "the whole plane" if fft_tiles(tile, self.conv) == 1 else f"a tile of {tile}×{tile}"
        algorithm = algorithm_of(self.names)
        return UNKNOWN if algorithm == UNKNOWN else "a tile" if algorithm == WINOGRAD else "the output's patch"


def plan_of(point: Measured | None) -> Plan | None:
    """What a peer ran for a point; None where its kernels are not on record."""
    peer = (point.record.get("peer") or {}) if point else {}
    if not point or not peer.get("kernels"):
        return None
    return Plan(tuple(peer["kernels"]), peer.get("workspace_bytes"), point.conv)
