"""Orders of the axes of inputs and outputs: ``nchw``, the study's, and ``nhwc``, channels innermost."""

import numpy as np
import numpy.typing as npt

STUDY = "nchw"
LAYOUTS = (STUDY, "nhwc")


def from_study(values: npt.NDArray[np.generic], layout: str) -> npt.NDArray[np.generic]:
    """``[N][C][H][W]`` in another layout, as a contiguous array; itself where the layout is the study's."""
    return values if layout == STUDY else np.ascontiguousarray(values.transpose(0, 2, 3, 1))


def to_study(values: npt.NDArray[np.generic], layout: str) -> npt.NDArray[np.generic]:
    """A view ``[N][C][H][W]`` of an array in another layout."""
    return values if layout == STUDY else values.transpose(0, 3, 1, 2)
