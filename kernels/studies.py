"""The variants measured by the LeNet-style course studies (Illinois ECE 408, 2018 to 2024), in this project's terms."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from alexconv.kernels.rung import IMAGES_PER_PIECE


@dataclass(frozen=True)
class Variant:
    """A measurement of a study: rung, transfer, and the constants that matter to it.

    A constant's value is a number, or one for each layer.
    """

    rung: str
    transfer: str = "pageable"
    constants: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)


AS_WRITTEN = {"RESTRICT": 0, "UNROLL": 1}  # no hints: the studies' first version


def tiled(transfer: str = "pageable", **more: int | tuple[int, ...]) -> Variant:
    """The studies' baseline."""
    return Variant("tiled", transfer, {**AS_WRITTEN, **more})


def fused(tile: int | tuple[int, ...], **more: int) -> Variant:
    """The fused product before its tuning with restrict and unrolling."""
    return Variant("fused-unroll-matmul", constants={"TILE": tile, **AS_WRITTEN, **more})


STUDY_WORKLOADS = {
    "ece408-2018": "lenet-72-k7",
    "ece408-2019": "lenet-70-k5",
    "ece408-2023": "lenet-86-k7",
    "ece408-2024": "lenet-86-k7",
}

# By study and the study's own name for the variant.  Its serial CPU run is not a rung but the CPU reference.
PUBLISHED: dict[tuple[str, str], Variant] = {
    ("ece408-2018", "tiled-grid-baseline"): tiled(),
    ("ece408-2018", "unroll-matmul-per-image"): Variant("unroll-matmul", constants={"TILE": 32, IMAGES_PER_PIECE: 1}),
    ("ece408-2018", "unroll-matmul-constant-weights"): Variant(
        "unroll-matmul-constant", constants={"TILE": 32, IMAGES_PER_PIECE: 1}
    ),
    ("ece408-2018", "fused-unroll-matmul-per-image"): fused(32, IMAGES_PER_PIECE=1),
    ("ece408-2018", "fused-unroll-matmul-batch-grid-24x24"): fused(24),
    ("ece408-2018", "fused-unroll-matmul-per-layer-tiles-16-24"): fused((16, 24)),
    ("ece408-2018", "fused-per-layer-tiles-restrict-unroll"): Variant(
        "fused-unroll-matmul", constants={"TILE": (16, 24), "RESTRICT": 1, "UNROLL": 0}
    ),
    ("ece408-2018", "shared-memory-conv"): Variant("shared-output-tile"),
    ("ece408-2019", "tiled-grid-baseline"): tiled(),
    ("ece408-2019", "shared-conv-strategy3-constant-restrict-unroll"): Variant("shared-core-tile-constant"),
    ("ece408-2019", "unroll-matmul-batched-chunked"): Variant("unroll-matmul", constants={IMAGES_PER_PIECE: 4000}),
    ("ece408-2019", "unroll-register-tiled-matmul"): Variant(
        "unroll-register-matmul", constants={IMAGES_PER_PIECE: 4000}
    ),
    ("ece408-2019", "fused-unroll-matmul"): fused(16),
    ("ece408-2019", "fused-swept-tiles-16-24"): fused((16, 24)),
    ("ece408-2019", "sweep baseline/baseline tiles 16,16"): tiled(TILE=16),
    ("ece408-2019", "sweep baseline/baseline tiles 16,32"): tiled(TILE=(16, 32)),
    ("ece408-2019", "sweep fusion/fusion tiles 16,32"): fused((16, 32)),
    ("ece408-2019", "sweep fusion/fusion tiles 6,6"): fused(6),
    ("ece408-2019", "sweep fusion/fusion tiles 12,12"): fused(12),
    ("ece408-2019", "sweep fusion/fusion tiles 18,18"): fused(18),
    ("ece408-2019", "sweep fusion/fusion tiles 24,24"): fused(24),
    ("ece408-2019", "sweep fusion/fusion tiles 32,32"): fused(32),
    ("ece408-2019", "sweep fusion/fusion tiles 16,24"): fused((16, 24)),
    ("ece408-2023", "baseline"): tiled(),
    ("ece408-2023", "streams-overlap"): tiled("streamed:3"),
    ("ece408-2023", "fp16"): Variant("tiled-half", constants={"RESTRICT": 1, "UNROLL": 1}),
    ("ece408-2023", "restrict-unroll-2"): tiled(RESTRICT=1, UNROLL=2),
    ("ece408-2023", "restrict-unroll-3"): tiled(RESTRICT=1, UNROLL=3),
    ("ece408-2023", "restrict-unroll-4"): tiled(RESTRICT=1, UNROLL=4),
    ("ece408-2024", "baseline"): tiled(),
    ("ece408-2024", "streams-overlap"): tiled("streamed:10"),
    ("ece408-2024", "shared-memory-conv-strategy2"): Variant("shared-input-tile"),
    ("ece408-2024", "unroll-matmul"): Variant("unroll-matmul", constants={IMAGES_PER_PIECE: 5000}),
    ("ece408-2024", "fused-unroll-matmul"): fused(16),
    ("ece408-2024", "constant-weights"): Variant("tiled-constant", constants=AS_WRITTEN),
    ("ece408-2024", "restrict-unroll"): tiled(RESTRICT=1, UNROLL=0),
    ("ece408-2024", "atomics-channel-reduction"): Variant("tiled-scatter-atomic"),
    ("ece408-2024", "fp16"): Variant("tiled-half", constants=AS_WRITTEN),
}
