"""Other libraries' convolutions that are timed beside rungs: what each computes, and its name in points and records."""

from dataclasses import dataclass, replace
from itertools import product

from alexconv.planning.layouts import LAYOUTS
from alexconv.precisions import IEEE, PRECISIONS
from alexconv.shapes import FORWARD

CONVOLVED = tuple(name for name, row in PRECISIONS.items() if row.torch)  # precisions of the libraries' convolutions
PRODUCT = "gemm"
IM2COL = "im2col"


@dataclass(frozen=True)
class Peer:
    """Another library's implementation of a layer.

    ``layout`` is that of input and output, PRODUCT for a matrix product of the layer's size, or IM2COL for one of an
    explicit im2col matrix, which is written in the measured time.  A ``strict`` one
    transforms no inputs, as FFT and Winograd do; a ``deterministic`` one computes gradients with the same bits each
    time.
    """

    library: str
    layout: str
    precision: str
    strict: bool = False
    deterministic: bool = False

    @property
    def name(self) -> str:
        """``torch-nchw-fp32``, ``cudnn-nchw-fp32-strict``, ``torch-nhwc-fp16-deterministic``."""
        kinds = [kind for kind in ("strict", "deterministic") if getattr(self, kind)]
        return "-".join((self.library, self.layout, self.precision, *kinds))

    def computes(self, direction: str) -> bool:
        """Whether it computes a layer in a direction.  A forward pass has the same bits each time anyway."""
        if direction == FORWARD:
            return not self.deterministic
        return self.library in ("torch", "cudnn") and not (self.is_product or self.strict)

    @property
    def is_product(self) -> bool:
        """Whether it computes a matrix product, and no convolution."""
        return self.layout == PRODUCT


def convolutions(library: str) -> tuple[Peer, ...]:
    """A library's convolutions in every precision and layout."""
    return tuple(Peer(library, layout, precision) for precision, layout in product(CONVOLVED, LAYOUTS))


def peer_name(layout: str, precision: str) -> str:
    """The name of torch's convolution."""
    return Peer("torch", layout, precision).name


TORCH_PEERS = (
    *convolutions("torch"),
    *(replace(peer, deterministic=True) for peer in convolutions("torch")),
    Peer("torch", PRODUCT, "fp32"),
)
STRICT = (peer for peer in convolutions("cudnn") if PRECISIONS[peer.precision].torch == IEEE)
CUDNN_PEERS = (*convolutions("cudnn"), *(replace(peer, strict=True) for peer in STRICT))
CUBLASLT_PEERS = tuple(Peer("cublaslt", IM2COL, precision) for precision in CONVOLVED)
TRITON_PEERS = tuple(Peer("triton", "nhwc", precision) for precision in CONVOLVED)
ALL_PEERS = (*TORCH_PEERS, *CUDNN_PEERS, *CUBLASLT_PEERS, *TRITON_PEERS)
GEMM = TORCH_PEERS[-1].name
