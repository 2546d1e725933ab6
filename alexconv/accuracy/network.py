"""A small network that reads handwritten digits; its convolutions are a LeNet-style workload's two layers.

Convolution, ReLU, 2x2 max pooling, twice; then one fully connected layer to ten classes, the largest of which is the
prediction (LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 86(11), 1998, with
today's ReLU and maxima).  The caller chooses how the convolutions are computed.

The images are scikit-learn's digits, a part of the UCI set "Optical recognition of handwritten digits": 8x8 pixels of
17 grey levels, in the order of their writers.  The network has learnt from all but the last HELD_OUT.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alexconv.cpu_reference.reference import reference
from alexconv.data import WEIGHTS
from alexconv.errors import MissingTool
from alexconv.shapes import WORKLOADS, Conv

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Convolve = Callable[[int, Floats, Floats], Floats]  # layer number, input [N][C][H][W], filters [M][C][R][S]; output

WORKLOAD = WORKLOADS["lenet-70-k5"]
CLASSES = 10
HELD_OUT = 360  # images, a fifth of the set
SCALE = 8  # rows and columns per pixel: 8 x 8 become 64 x 64, which a border of zeros extends to the workload's 70 x 70
DARKEST = 16  # grey level


@dataclass(frozen=True)
class Network:
    """Trained filters ``[M][C][R][S]`` of each convolution, and the last layer's weights ``[10][features]``, ``[10]``.

    The convolutions have no bias, as the workloads have none.
    """

    filters: tuple[Floats, ...]
    weights: Floats
    bias: Floats

    def scores(self, images: Floats, convolve: Convolve) -> Floats:
        """One score for each class, ``[N][10]``, of images ``[N][C][H][W]``."""
        x = images
        for layer, w in enumerate(self.filters, start=1):
            x = pooled(np.maximum(convolve(layer, x, w), 0))
        return x.reshape(len(x), -1) @ self.weights.T + self.bias


def pooled(y: Floats) -> Floats:
    """Maxima of 2x2 squares, ``[N][M][E][F]`` to ``[N][M][E/2][F/2]``; an odd last row or column is left out."""
    N, M, E, F = y.shape
    squares = y[:, :, : E // 2 * 2, : F // 2 * 2].reshape(N, M, E // 2, 2, F // 2, 2)
    maxima: Floats = squares.max(axis=(3, 5))
    return maxima


def on_cpu(layer: int, x: Floats, w: Floats) -> Floats:
    """The CPU reference as a ``Convolve``."""
    return reference(WORKLOAD.layer(layer), x, w)


def trained() -> Network:
    """The network with the package's weights; ``scripts/measure/train_digits.py`` made them."""
    with np.load(WEIGHTS) as arrays:
        filters = tuple(arrays[f"conv{number}"] for number in range(1, len(WORKLOAD.layers) + 1))
        return Network(filters, arrays["weights"], arrays["bias"])


def digits() -> tuple[Floats, Labels]:
    """All images ``[1797][1][70][70]`` from 0 to 1, and their classes ``[1797]``; raises MissingTool.

    Pixels are repeated and not interpolated: the scale is whole, and every value is exact in half precision too.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingTool(f"the digits come with scikit-learn: pip install 'alexconv[accuracy]' ({error})") from None
    small, labels = load_digits(return_X_y=True)
    pixels = (small / DARKEST).astype(np.float32).reshape(len(small), 1, 8, 8)
    return framed(np.kron(pixels, np.ones((SCALE, SCALE), np.float32)), WORKLOAD.layer(1)), labels.astype(np.int64)


def framed(images: Floats, conv: Conv) -> Floats:
    """Images in the middle of the layer's input planes, zero around them."""
    rows, columns = (conv.H - images.shape[2]) // 2, (conv.W - images.shape[3]) // 2
    x = np.zeros(conv.x_shape(len(images)), np.float32)
    x[:, :, rows : rows + images.shape[2], columns : columns + images.shape[3]] = images
    return x


def held_out(count: int) -> tuple[Floats, Labels]:
    """The first ``count`` of the images that the network has never seen, and their classes; raises MissingTool."""
    images, labels = digits()
    chosen = slice(len(images) - HELD_OUT, len(images) - HELD_OUT + count)
    return images[chosen], labels[chosen]
