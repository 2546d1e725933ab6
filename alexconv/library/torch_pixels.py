"""What a patched model computes between convolutions by pixels.cu, on tensors of a GPU in channels_last.

The modules share the state of those that they replace, and compute other tensors, or with gradients, as those do.
Imported only in a process that has torch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from alexconv.library import pixels
from alexconv.library.arrays import is_aligned, view
from alexconv.library.operation import is_plain, observed


def takes(*tensors: torch.Tensor) -> bool:
    """Whether pixels.cu may compute with these tensors."""
    if observed(torch) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return False
    if torch.is_autocast_enabled(tensors[0].device.type):
        return False
    return not needs_grad(*tensors) and all(
        tensor.is_cuda and tensor.dim() == 4 and is_plain(tensor) and tensor.dtype in (torch.float32, torch.float16)
        for tensor in tensors
    )


def needs_grad(*tensors: torch.Tensor | None) -> bool:
    """Whether any of these tensors asks for its gradient."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def version(parameter: torch.Tensor | None) -> tuple[int, int] | None:
    """A value that changes when a parameter or its memory does."""
    if parameter is None:
        return None
    return parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version


class Derived:
    """A value computed from parameters, and again once one of them changes or moves.

    It keeps their memory, so that no other tensor gets an address by which it knows them.  Copies and files of a module
    begin without it: it may belong to the memory of a GPU.
    """

    def __init__(self) -> None:
        self._state: tuple[Any, Any, Any] = None, None, None  # versions, memory, value

    def value(self, parameters: Sequence[torch.Tensor | None], compute: Callable[[], Any]) -> Any:
        """The value of ``compute`` for these parameters as they are now."""
        versions = list(map(version, parameters))
        if self._state[0] != versions:
            memory = [parameter.detach() for parameter in parameters if parameter is not None]
            self._state = versions, memory, compute()
        return self._state[2]

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Derived, ()


def computed(
    x: torch.Tensor, shape: tuple[int, ...], work: Callable[[Any, Any], pixels.Work | None], *others: torch.Tensor
) -> torch.Tensor | None:
    """A new tensor of that shape, from x and others in the order of their arrays; None if pixels.cu does not take them.

    ``work`` returns the launch for the descriptors of x and the new tensor.
    """
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    of_x, of_y = view(x, "x"), view(y, "y")
    launch = work(of_x.descriptor, of_y.descriptor)
    if launch is None or not all(readable(other, x) for other in others):
        return None
    addresses = {"x": of_x.address, "y": of_y.address}
    names = (name for name in launch.arrays if name not in addresses)
    addresses |= {name: other.data_ptr() for name, other in zip(names, others, strict=True)}
    pixels.enqueue(launch, of_x, [addresses.get(name, 0) for name in ("x", "y", "residual", "w", "bias")])
    return y


def readable(values: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether kernels on the device of x can read a tensor's values in whole vectors, one after the other."""
    return values.device == x.device and values.is_contiguous() and is_aligned(values.data_ptr())


class PatchedNorm(nn.BatchNorm2d):  # type: ignore[misc]
    """A batch norm in evaluation, with its activation."""

    _factors: Derived | None = None

    def forward(self, x: torch.Tensor, activation: str | None = None) -> torch.Tensor:
        """The activation of the normalized tensor."""
        fits = takes(x) and x.shape[1] == self.num_features  # else torch raises
        if fits and not self.training and not needs_grad(self.weight, self.bias):
            factors, shifts = self.factors()
            y = computed(x, x.shape, lambda of_x, of_y: pixels.affine(of_x, of_y, activation), factors, shifts)
            if y is not None:
                return y
        return activated(super().forward(x), activation)

    def factors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What the norm multiplies with, and adds after that, for each channel, as it is now."""
        state = self.running_mean, self.running_var, self.weight, self.bias

        def compute() -> tuple[torch.Tensor, torch.Tensor]:
            mean, variance, weight, bias = (values if values is None else values.detach().double() for values in state)
            factors: Any = (variance + self.eps).rsqrt()
            factors = factors if weight is None else factors * weight
            shifts: Any = mean * -factors if bias is None else bias - mean * factors
            return factors.float(), shifts.float()

        if self._factors is None:
            self._factors = Derived()
        both: tuple[torch.Tensor, torch.Tensor] = self._factors.value(state, compute)
        return both


class PatchedMaxPool(nn.MaxPool2d):  # type: ignore[misc]
    """Max pooling."""

    def forward(self, x: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
        """The largest values of windows; in channels_last if ``like``, or else x, is."""
        if takes(x) and pairs(self.dilation) == (1, 1) and not self.return_indices:
            turns = like is not None and is_channels_last(like) and x.is_contiguous()
            y = pooled(x, self, pixels.pool_planes if turns else partial(pixels.pool, mean=False))
            if y is not None:
                return y
        y = super().forward(x)
        turns = like is not None and is_channels_last(like)
        return y.contiguous(memory_format=torch.channels_last) if turns else y


class PatchedAvgPool(nn.AvgPool2d):  # type: ignore[misc]
    """Average pooling."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The means of windows."""
        if takes(x) and pairs(self.padding) == (0, 0) and not self.ceil_mode and self.divisor_override is None:
            y = pooled(x, self, partial(pixels.pool, mean=True))
            if y is not None:
                return y
        return super().forward(x)


class PatchedGlobalPool(nn.AdaptiveAvgPool2d):  # type: ignore[misc]
    """Average pooling to a size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The means of windows, here of planes if the size is 1."""
        return averaged(x, self.output_size)


def patched(module: nn.Module) -> nn.Module:
    """A module of PATCHES that pixels.cu computes, with the same state."""
    replacement: nn.Module = object.__new__(PATCHES[type(module)])
    replacement.__dict__ = module.__dict__
    return replacement


def pairs(value: Any) -> tuple[int, int]:
    """A number for rows and columns, or one for each."""
    down, across = value if isinstance(value, tuple | list) else (value, value)
    return down, across


def is_channels_last(x: torch.Tensor) -> bool:
    """Whether a tensor ``[N][C][H][W]``, or a slice of one, has its channels innermost."""
    return bool(x.shape[1] > 1 and x.stride(1) == 1 and x.shape[2] * x.shape[3] > 1)


def pooled(x: torch.Tensor, pool: Any, work: Callable[..., pixels.Work | None]) -> torch.Tensor | None:
    """The tensor pooled by a launch of pixels.cu, with channels innermost; None if that does not take it."""
    (R, S), (U, V), (top, left) = (pairs(size) for size in (pool.kernel_size, pool.stride, pool.padding))
    N, C, H, W = x.shape
    rows, columns = (
        outputs(size, window, step, around, up=pool.ceil_mode)
        for size, window, step, around in ((H, R, U, top), (W, S, V, left))
    )
    window = R, S, U, V, top, left
    return computed(x, (N, C, rows, columns), lambda of_x, of_y: work(of_x, of_y, window))


def outputs(size: int, window: int, step: int, around: int, *, up: bool) -> int:
    """Rows or columns of outputs; rounded ``up``, but no window begins in the padding at the end."""
    room = size + 2 * around - window
    count = (room + (step - 1 if up else 0)) // step + 1
    return count - 1 if up and (count - 1) * step >= size + around else count


class PatchedLayerNorm(nn.LayerNorm):  # type: ignore[misc]
    """A layer norm over the channels of pixels, ``[N][H][W][C]``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized tensor."""
        return normalized(x, self.normalized_shape, self.weight, self.bias, self.eps)


PATCHES: dict[type, type] = {
    nn.LayerNorm: PatchedLayerNorm,
    nn.AdaptiveAvgPool2d: PatchedGlobalPool,
    nn.BatchNorm2d: PatchedNorm,
    nn.MaxPool2d: PatchedMaxPool,
    nn.AvgPool2d: PatchedAvgPool,
}


def normalized(
    x: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """``torch.nn.functional.layer_norm``."""
    affine = weight is not None and bias is not None and weight.dtype == bias.dtype == x.dtype
    if affine and not needs_grad(weight, bias) and x.dim() == 4 and tuple(normalized_shape) == x.shape[3:] and takes(x):
        planes = x.permute(0, 3, 1, 2)
        y = computed(planes, planes.shape, lambda of_x, of_y: pixels.layer_norm(of_x, of_y, eps), weight, bias)
        if y is not None:
            return y.permute(0, 2, 3, 1)
    return torch.nn.functional.layer_norm(x, normalized_shape, weight, bias, eps)


def averaged(x: torch.Tensor, output_size: Any) -> torch.Tensor:
    """``torch.nn.functional.adaptive_avg_pool2d``."""
    if output_size in (1, (1, 1), [1, 1]) and takes(x):
        y = computed(x, (*x.shape[:2], 1, 1), lambda of_x, _: pixels.means(of_x))
        if y is not None:
            return y
    return torch.nn.functional.adaptive_avg_pool2d(x, output_size)


def gated(x: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """A tensor times the sigmoid of ``gates``, which has a pixel for each image."""
    if takes(x, gates) and gates.shape == (*x.shape[:2], 1, 1) and gates.dtype == x.dtype:
        packed = gates.contiguous()
        y = computed(x, x.shape, lambda of_x, _: pixels.gate(of_x, view(packed, "gates").descriptor), packed)
        if y is not None:
            return y
    return x * torch.sigmoid(gates)


def activated(y: torch.Tensor, activation: str | None) -> torch.Tensor:
    """A tensor with an activation applied by torch."""
    return y if activation is None else getattr(torch.nn.functional, activation)(y)
