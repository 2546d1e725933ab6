"""Convolution shapes and the workloads (tables of layers) that the studies use.

Letters are the convolution literature's: ``N`` images, ``C`` input channels, ``M`` filters, ``H x W`` input plane
including its zero padding, ``R x S`` filter, ``U`` stride, ``E x F`` output plane.  Arrays are C-ordered:
input ``[N][C][H][W]``, filters ``[M][C][R][S]``, output ``[N][M][E][F]``.

A layer has three problems, its *directions*: forward, dgrad (the gradient of its input) and wgrad (of its filters).
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import product
from math import gcd

FORWARD, DGRAD, WGRAD = "forward", "dgrad", "wgrad"


@dataclass(frozen=True)
class Direction:
    """What is computed of a layer, by the names of its arrays; ``dx`` has the shape of ``x``, and so on.

    Code for every direction calls the arrays by these roles: ``x`` comes image by image, ``w`` as a whole, ``y`` is the
    output.
    """

    x: str
    w: str
    y: str
    sums_images: bool = False  # each output is a sum over all images of a batch, which is never cut into pieces


DIRECTIONS = {
    FORWARD: Direction("x", "w", "y"),
    DGRAD: Direction("dy", "w", "dx"),
    WGRAD: Direction("x", "dy", "dw", sums_images=True),
}
FILTERS = ("w", "dw")  # arrays that have no image axis


@dataclass(frozen=True)
class Conv:
    """One convolution layer without its batch size, in a direction.

    Raises ValueError for sizes below one, a filter larger than the plane, and groups that do not divide C and M.
    """

    C: int  # input channels
    H: int  # input rows in memory
    W: int  # input columns in memory
    M: int  # filters, output channels
    R: int  # filter rows
    S: int  # filter columns
    U: int = 1  # stride, along rows
    pad: int = 0  # rows and columns of zeros on each side that H and W include, in the studies' arrays
    top: int = 0  # rows of zeros above the plane that are not in memory, as networks have them; likewise the next three
    bottom: int = 0
    left: int = 0
    right: int = 0
    V: int = 0  # stride along columns; 0: U
    dilation_rows: int = 1
    dilation_columns: int = 1
    groups: int = 1  # filters are [M][C / groups][R][S]
    bias: bool = False  # [M], added to the outputs
    relu: bool = False
    direction: str = FORWARD
    ceiling: int = 0  # the largest output that ReLU passes (6: ReLU6); 0: any
    silu: bool = False  # the activation is SiLU instead, x / (1 + exp(-x))
    gelu: bool = False  # or GELU, x times the normal distribution function of x
    residual: bool = False  # [N][M][E][F], which lies like the outputs, is added to them before the activation
    y_channels: int = 0  # of the array of which the outputs are a slice of channels; 0: M, the whole array
    pool_size: int = 0  # the input is max-pooled as it is loaded: rows and columns of a window; 0: it is not
    pool_stride: int = 0  # rows and columns between windows
    unpooled_rows: int = 0  # of the planes in memory, which are pooled to H x W
    unpooled_columns: int = 0
    stores_terms: bool = False  # the outputs are stored as the fp16 terms that the layer after it multiplies, too
    takes_terms: bool = False  # the input's terms were stored by the layer before it

    def __post_init__(self) -> None:
        sizes = (self.C, self.H, self.W, self.M, self.R, self.S, self.U, *self.dilation, self.groups)
        if min(*sizes) < 1 or min(self.pad, self.V, *self.padding) < 0:
            raise ValueError(f"every size of a convolution must be at least 1, got {self}")
        if self.V == self.U:
            object.__setattr__(self, "V", 0)  # so that equal layers compare equal
        rows, columns = self.padded
        if self.filter_rows > rows or self.filter_columns > columns:
            raise ValueError(
                f"filter {self.filter_rows}x{self.filter_columns} is larger than the plane {rows}x{columns}"
            )
        if 2 * self.pad >= min(self.H, self.W):
            raise ValueError(f"a padding of {self.pad} leaves nothing of the plane {self.H}x{self.W}")
        if self.y_channels and self.y_channels <= self.M:
            raise ValueError(f"{self.M} filters are no slice of {self.y_channels} channels")
        if self.pool_size and self._pooled != (self.H, self.W):
            raise ValueError(f"pooling leaves planes of {self._pooled[0]}x{self._pooled[1]}, not {self.H}x{self.W}")
        if self.C % self.groups or self.M % self.groups:
            raise ValueError(f"{self.groups} groups do not divide {self.C} channels and {self.M} filters")

    @property
    def _pooled(self) -> tuple[int, int]:
        """Rows and columns of the planes in memory once they are pooled."""
        rows, columns = self.unpooled_rows - self.pool_size, self.unpooled_columns - self.pool_size
        return rows // self.pool_stride + 1, columns // self.pool_stride + 1

    @cached_property
    def padding(self) -> tuple[int, int, int, int]:
        """Rows and columns of zeros that are not in memory: top, bottom, left, right."""
        return self.top, self.bottom, self.left, self.right

    @property
    def dilation(self) -> tuple[int, int]:
        """Rows and columns between taps."""
        return self.dilation_rows, self.dilation_columns

    @property
    def strides(self) -> tuple[int, int]:
        """Rows and columns between the windows of neighbouring outputs."""
        return self.U, self.V or self.U

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns of the input plane with its padding."""
        return self.H + self.top + self.bottom, self.W + self.left + self.right

    @property
    def filter_rows(self) -> int:
        """Rows that a filter covers."""
        return (self.R - 1) * self.dilation_rows + 1

    @property
    def filter_columns(self) -> int:
        """Columns that a filter covers."""
        return (self.S - 1) * self.dilation_columns + 1

    @property
    def E(self) -> int:
        """Rows of the output plane."""
        return (self.padded[0] - self.filter_rows) // self.U + 1

    @property
    def F(self) -> int:
        """Columns of the output plane."""
        return (self.padded[1] - self.filter_columns) // self.strides[1] + 1

    @property
    def K(self) -> int:
        """Taps of a filter: in forward direction the products summed into one output."""
        return self.C // self.groups * self.R * self.S

    @property
    def roles(self) -> Direction:
        """The arrays of its direction."""
        return DIRECTIONS[self.direction]

    def products(self, N: int) -> int:
        """The most products that are summed into one output, in a batch of N images."""
        if self.direction == DGRAD:
            rows, columns = (
                -(-taps // (stride // gcd(stride, apart)))
                for taps, stride, apart in zip((self.R, self.S), self.strides, self.dilation, strict=True)
            )
            return self.M // self.groups * rows * columns
        return N * self.E * self.F if self.direction == WGRAD else self.K

    def chain(self, N: int) -> int:
        """The longest chain of additions to one output that a precision class allows, in a batch of N images.

        A sum over images is blocked: the products of an image, or as many others, are summed by themselves.
        """
        return self.E * self.F + N if self.roles.sums_images else self.products(N)

    def taps(self, rows: slice | None = None) -> Iterator[tuple[int, int, slice, slice]]:
        """For each tap its place (r, s), and the rows and columns of the padded plane under it.

        Of all outputs, or of some of their rows.
        """
        (down, across), (apart, columns_apart) = self.strides, self.dilation
        first, last = (rows.start, rows.stop - 1) if rows else (0, self.E - 1)
        for r, s in product(range(self.R), range(self.S)):
            top, left = r * apart, s * columns_apart
            under = slice(top + first * down, top + last * down + 1, down)
            yield r, s, under, slice(left, left + (self.F - 1) * across + 1, across)

    def toward(self, direction: str) -> "Conv":
        """The layer's problem in a direction.  Gradients are those of the convolution alone, without bias and ReLU.

        Their arrays have no border: padding that the studies have in memory is padding that is not.
        """
        if direction == self.direction:
            return self
        around = {side: getattr(self, side) + self.pad for side in ("top", "bottom", "left", "right")}
        inner = {"H": self.H - 2 * self.pad, "W": self.W - 2 * self.pad, "pad": 0, **around}
        return replace(self.alone(), **inner, direction=direction)

    def alone(self) -> "Conv":
        """The convolution alone: no bias, activation or residual, and outputs that are a whole array."""
        return replace(self, bias=False, relu=False, ceiling=0, silu=False, gelu=False, residual=False, y_channels=0)

    @property
    def is_linear(self) -> bool:
        """Whether nothing is added to the sums or applied to them, so that outputs change their sign with inputs."""
        return not (self.bias or self.relu or self.silu or self.gelu or self.residual)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names in ``FEATURES`` that the layer has: not every rung takes them."""
        return tuple(name for name, has in FEATURES.items() if has(self))

    @cached_property
    def one_group(self) -> "Conv":
        """The layer of a group's channels and filters alone."""
        return replace(self, C=self.C // self.groups, M=self.M // self.groups, groups=1) if self.groups > 1 else self

    def with_border(self) -> "Conv":
        """The same layer with its padding in memory."""
        rows, columns = self.padded
        return replace(self, H=rows, W=columns, top=0, bottom=0, left=0, right=0)

    def macs(self, N: int) -> int:
        """Multiply-accumulates for N images."""
        return N * self.M * self.E * self.F * self.K

    def x_shape(self, N: int) -> tuple[int, int, int, int]:
        """Input array, ``[N][C][H][W]``; with larger planes where it is pooled as it is loaded."""
        return N, self.C, self.unpooled_rows or self.H, self.unpooled_columns or self.W

    def w_shape(self) -> tuple[int, int, int, int]:
        """Filter array, ``[M][C / groups][R][S]``."""
        return self.M, self.C // self.groups, self.R, self.S

    def y_shape(self, N: int) -> tuple[int, int, int, int]:
        """Output array, ``[N][M][E][F]``."""
        return N, self.M, self.E, self.F

    def shape_of(self, array: str, N: int) -> tuple[int, int, int, int]:
        """An array of any direction by its name."""
        shapes = {"x": self.x_shape(N), "w": self.w_shape(), "y": self.y_shape(N)}
        return shapes[array.removeprefix("d")]

    def facts(self) -> dict[str, int | str]:
        """The fields by name; those in ``OPTIONAL`` only where they differ from their defaults."""
        return {name: value for name, value in asdict(self).items() if OPTIONAL.get(name) != value}

    def sizes(self) -> dict[str, int]:
        """The sizes that a kernel is compiled for, by name in capitals: ``facts`` without ``pad``, and E and F."""
        sizes = {name.upper(): int(value) for name, value in self.facts().items() if name not in ("pad", "direction")}
        return {**sizes, "E": self.E, "F": self.F}


# Fields that older records and caches lack, with their defaults.
OPTIONAL = {field.name: field.default for field in fields(Conv)[list(Conv.__annotations__).index("top") :]}

# Beyond the studies' contract: by name, whether a layer has it.
FEATURES: dict[str, Callable[[Conv], bool]] = {
    "padding": lambda conv: any(conv.padding),
    "stride pairs": lambda conv: conv.V != 0,
    "dilation": lambda conv: conv.dilation != (1, 1),
    "groups": lambda conv: conv.groups > 1,
    "bias": lambda conv: conv.bias,
    "ReLU": lambda conv: conv.relu or conv.silu or conv.gelu,  # one of the activations
    "residual": lambda conv: conv.residual,
    "slice": lambda conv: conv.y_channels > 0,
    "pooling": lambda conv: conv.pool_size > 0,
    "terms": lambda conv: conv.stores_terms or conv.takes_terms,
}


# Those of a layer by itself: the others come from what a network has before and after it.
OF_FLOATS = "pooling", "terms"  # what kernels that convert their input take over from their neighbours
LAYER_FEATURES = tuple(name for name in FEATURES if name not in ("residual", "slice", *OF_FLOATS))
CONVOLUTION_FEATURES = tuple(name for name in LAYER_FEATURES if name not in ("bias", "ReLU"))  # those of gradients
# Those of most rungs that stand in networks.
NETWORK_FEATURES = tuple(name for name in FEATURES if name not in OF_FLOATS)


@dataclass(frozen=True)
class Workload:
    """A network's convolution layers, numbered from 1, and the batch sizes its study reports."""

    name: str
    layers: tuple[Conv, ...]
    batches: tuple[int, ...]
    source: str

    def layer(self, number: int) -> Conv:
        """Layer by its number from 1; raises KeyError for a number that the workload lacks."""
        if not 1 <= number <= len(self.layers):
            raise KeyError(f"{self.name} has layers 1 to {len(self.layers)}, not {number}")
        return self.layers[number - 1]


def _lenet(size: int, filter_size: int, maps: tuple[int, int], batches: tuple[int, ...], source: str) -> Workload:
    """Two valid convolutions with a 2x2 pooling between them, as the LeNet-style course projects use."""
    first = Conv(C=1, H=size, W=size, M=maps[0], R=filter_size, S=filter_size)
    second = Conv(C=maps[0], H=first.E // 2, W=first.F // 2, M=maps[1], R=filter_size, S=filter_size)
    return Workload(f"lenet-{size}-k{filter_size}", (first, second), batches, source)


_LENET_BATCHES = (100, 1000, 5000, 10000)


def _padded(C: int, size: int, M: int, R: int, U: int = 1, padding: int | None = None, groups: int = 1) -> Conv:
    """A layer of square planes with equal padding on all sides, R // 2 unless given: a network's usual one."""
    around = R // 2 if padding is None else padding
    return Conv(C, size, size, M, R, R, U, top=around, bottom=around, left=around, right=around, groups=groups)


def _inception(C: int, size: int, maps: tuple[int, int, int, int, int, int]) -> tuple[Conv, ...]:
    """The convolutions of an Inception module: 1x1; 1x1 and 3x3; 1x1 and 5x5; 1x1 after a pooling."""
    one, before_3, three, before_5, five, pooled = maps
    thin = [_padded(C, size, M, 1) for M in (one, before_3, before_5, pooled)]
    return *thin, _padded(before_3, size, three, 3), _padded(before_5, size, five, 5)


def _bottlenecks(C: int, size: int, width: int, U: int) -> tuple[Conv, ...]:
    """The convolutions of a stage of ResNet's bottleneck blocks; the first block's 3x3 has the stride U."""
    inner = size // U
    first = _padded(C, size, width, 1), _padded(width, size, width, 3, U), _padded(C, size, 4 * width, 1, U)
    return (
        *first,
        _padded(width, inner, 4 * width, 1),
        _padded(4 * width, inner, width, 1),
        _padded(width, inner, width, 3),
    )


def _each_once(*layers: Conv) -> tuple[Conv, ...]:
    """The shapes in order, without repeats."""
    return tuple(dict.fromkeys(layers))


_NETWORK_BATCHES = (1, 32, 128)
_VGG_16 = (
    *(_padded(3, 224, 64, 3), _padded(64, 224, 64, 3), _padded(64, 112, 128, 3), _padded(128, 112, 128, 3)),
    *(_padded(128, 56, 256, 3), _padded(256, 56, 256, 3), _padded(256, 28, 512, 3), _padded(512, 28, 512, 3)),
    _padded(512, 14, 512, 3),
)
_RESNET_50 = (
    _padded(3, 224, 64, 7, 2),
    *(*_bottlenecks(64, 56, 64, 1), *_bottlenecks(256, 56, 128, 2)),
    *(*_bottlenecks(512, 28, 256, 2), *_bottlenecks(1024, 14, 512, 2)),
)
_ALEXNET = (
    *(Conv(C=3, H=227, W=227, M=96, R=11, S=11, U=4), Conv(C=96, H=31, W=31, M=256, R=5, S=5, pad=2)),
    *(Conv(C=256, H=15, W=15, M=384, R=3, S=3, pad=1), Conv(C=384, H=15, W=15, M=384, R=3, S=3, pad=1)),
    Conv(C=384, H=15, W=15, M=256, R=3, S=3, pad=1),
)
_CONVNET_ALEXNET = (
    _padded(3, 224, 64, 11, 4, padding=2),
    *(_padded(64, 27, 192, 5), _padded(192, 13, 384, 3), _padded(384, 13, 256, 3), _padded(256, 13, 256, 3)),
)
_CONVNET_OVERFEAT = (
    *(_padded(3, 231, 96, 11, 4, padding=0), _padded(96, 28, 256, 5, padding=0)),
    *(_padded(256, 12, 512, 3), _padded(512, 12, 1024, 3), _padded(1024, 12, 1024, 3)),
)
_CONVNET_VGG_A = (
    *(_padded(3, 224, 64, 3), _padded(64, 112, 128, 3), _padded(128, 56, 256, 3), _padded(256, 56, 256, 3)),
    *(_padded(256, 28, 512, 3), _padded(512, 28, 512, 3), _padded(512, 14, 512, 3)),
)
_CONVNET_GOOGLENET = (
    *(_padded(3, 224, 64, 7, 2), _padded(64, 56, 64, 1), _padded(64, 56, 192, 3)),
    *_inception(192, 28, (64, 96, 128, 16, 32, 32)),
    *_inception(256, 28, (128, 128, 192, 32, 96, 64)),
    *_inception(480, 14, (192, 96, 208, 16, 48, 64)),
    *_inception(512, 14, (160, 112, 224, 24, 64, 64)),
    *_inception(512, 14, (128, 128, 256, 24, 64, 64)),
    *_inception(512, 14, (112, 144, 288, 32, 64, 64)),
    *_inception(528, 14, (256, 160, 320, 32, 128, 128)),
    *_inception(832, 7, (256, 160, 320, 32, 128, 128)),
    *_inception(832, 7, (384, 192, 384, 48, 128, 128)),
)
# The networks of soumith/convnet-benchmarks, with every layer as often as it occurs.
CONVNETS = {
    "AlexNet": _CONVNET_ALEXNET,
    "Overfeat": _CONVNET_OVERFEAT,
    "VGG-A": _CONVNET_VGG_A,
    "GoogLeNet": _CONVNET_GOOGLENET,
}


def _depthwise(C: int, size: int, R: int, U: int = 1) -> Conv:
    """A depthwise layer of square planes with padding R // 2: a filter for each channel."""
    return replace(_padded(C, size, C, R, U), groups=C)


_MOBILENET_V2 = (
    *(_depthwise(32, 112, 3), _depthwise(96, 112, 3, 2), _depthwise(144, 56, 3), _depthwise(144, 56, 3, 2)),
    *(_depthwise(192, 28, 3), _depthwise(192, 28, 3, 2), _depthwise(384, 14, 3), _depthwise(576, 14, 3)),
    *(_depthwise(576, 14, 3, 2), _depthwise(960, 7, 3)),
)
_EFFICIENTNET_B0 = (
    *(_depthwise(144, 56, 5, 2), _depthwise(240, 28, 5), _depthwise(240, 28, 3, 2), _depthwise(480, 14, 3)),
    *(_depthwise(480, 14, 5), _depthwise(672, 14, 5), _depthwise(672, 14, 5, 2), _depthwise(1152, 7, 5)),
    _depthwise(1152, 7, 3),
)
_FIRST_AND_LAST = (
    *(_padded(3, 224, 32, 3, 2), _padded(1, 64, 64, 3), _padded(4, 64, 320, 3)),
    *(_padded(3, 224, 96, 4, 4, padding=0), _padded(3, 224, 768, 16, 16, padding=0)),
    *(_padded(320, 64, 4, 3), _padded(128, 256, 3, 3), _padded(64, 512, 3, 3)),
)
_CONVNEXT_T = (_depthwise(96, 56, 7), _depthwise(192, 28, 7), _depthwise(384, 14, 7), _depthwise(768, 7, 7))

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "alexnet",
            _ALEXNET,
            (1, 32, 128),
            "AlexNet as one tower, no groups (Purdue ECE 695, 2020)",
        ),
        Workload(
            "alexnet-fused",
            tuple(replace(layer, bias=True, relu=True) for layer in _ALEXNET),
            _NETWORK_BATCHES,
            "the layers of alexnet with bias and ReLU",
        ),
        Workload(
            "alexnet-2012",
            (
                _padded(3, 227, 96, 11, 4, padding=0),
                *(_padded(96, 27, 256, 5, groups=2), _padded(256, 13, 384, 3)),
                *(_padded(384, 13, 384, 3, groups=2), _padded(384, 13, 256, 3, groups=2)),
            ),
            _NETWORK_BATCHES,
            "AlexNet with its two groups (Krizhevsky, Sutskever and Hinton, NIPS 2012)",
        ),
        _lenet(72, 7, (12, 24), _LENET_BATCHES, "LeNet-style (Illinois ECE 408, 2018)"),
        _lenet(70, 5, (12, 24), _LENET_BATCHES, "LeNet-style (Illinois ECE 408, 2019)"),
        _lenet(86, 7, (4, 16), _LENET_BATCHES, "LeNet-style (Illinois ECE 408, 2023 and 2024)"),
        Workload(
            "vgg-resnet",
            (
                Conv(C=64, H=58, W=58, M=128, R=3, S=3, pad=1),
                Conv(C=512, H=16, W=16, M=512, R=3, S=3, pad=1),
                Conv(C=3, H=230, W=230, M=64, R=7, S=7, U=2, pad=3),
                Conv(C=256, H=14, W=14, M=512, R=1, S=1),
            ),
            (8, 32),
            "VGG and ResNet layers: 3x3 on wide and on narrow planes, the 7x7 stem, a 1x1",
        ),
        Workload(
            "resnext-regnet",
            (
                *(_padded(128, 56, 128, 3, groups=32), _padded(256, 56, 256, 3, 2, groups=32)),
                *(_padded(256, 28, 256, 3, groups=32), _padded(512, 14, 512, 3, groups=32)),
                *(_padded(1024, 7, 1024, 3, groups=32), _padded(168, 28, 168, 3, groups=7)),
                *(_padded(192, 28, 192, 3, groups=4), _padded(432, 14, 432, 3, groups=9)),
            ),
            _NETWORK_BATCHES,
            "3x3 layers in groups of 4 to 48 channels: ResNeXt-50 32x4d, RegNetX-1.6GF and -3.2GF",
        ),
        Workload(
            "vgg16",
            _VGG_16,
            _NETWORK_BATCHES,
            "VGG-16, each shape once (Simonyan and Zisserman, ICLR 2015)",
        ),
        Workload(
            "resnet50",
            _each_once(*_RESNET_50),
            _NETWORK_BATCHES,
            "ResNet-50 with the stride in the 3x3, each shape once (He, Zhang, Ren and Sun, CVPR 2016)",
        ),
        Workload(
            "conv2d-v2",
            (
                *(Conv(C=64, H=128, W=128, M=64, R=8, S=8), Conv(C=64, H=128, W=128, M=64, R=16, S=16)),
                *(Conv(C=128, H=256, W=256, M=128, R=16, S=16), Conv(C=128, H=256, W=256, M=128, R=32, S=32)),
            ),
            (1, 2, 4),
            "the board conv2d_v2 of gpu-mode/reference-kernels: its benchmarks, of 4, 4, 2 and 1 image; docs/board.md",
        ),
        Workload(
            "large-filters",
            tuple(Conv(64, 63 + width, 63 + width, 64, width, width) for width in (9, 11, 15, 23, 31)),
            (1, 8),
            "filters from 9 x 9 to 31 x 31, 64 channels, filters and outputs per row",
        ),
        Workload(
            "convnet-layers",
            (
                *(Conv(3, 128, 128, 96, 11, 11), Conv(64, 64, 64, 128, 9, 9), Conv(128, 32, 32, 128, 9, 9)),
                *(Conv(128, 16, 16, 128, 7, 7), Conv(384, 13, 13, 384, 3, 3)),
            ),
            (128,),
            "the five layers L1 to L5 of soumith/convnet-benchmarks",
        ),
        Workload(
            "convnet-benchmarks",
            _each_once(*(layer for network in CONVNETS.values() for layer in network)),
            _NETWORK_BATCHES,
            "AlexNet, Overfeat [fast], VGG-A and GoogLeNet v1 of soumith/convnet-benchmarks, each shape once",
        ),
        Workload(
            "depthwise",
            _each_once(*_MOBILENET_V2, *_EFFICIENTNET_B0, *_CONVNEXT_T),
            _NETWORK_BATCHES,
            "Depthwise layers of MobileNetV2, EfficientNet-B0 and ConvNeXt-T, each shape once",
        ),
        Workload(
            "first-last",
            _FIRST_AND_LAST,
            _NETWORK_BATCHES,
            "First and last layers of networks: stems, patch embeddings, and the ends of diffusion models",
        ),
    )
}
