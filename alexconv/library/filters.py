"""Filters and bias of a ``Conv2d``: copied once, packed and prepared for rungs on each device."""

from math import prod
from typing import Any

import numpy as np

from alexconv.library.arrays import Descriptor, host_array, host_memory, packed_descriptor, view
from alexconv.library.calls import check_filters
from alexconv.library.packets import Packet, Value
from alexconv.library.terms import Terms
from alexconv.library.workspaces import Gpu, Lane, Loaded, Prepared

MOST_PREPARED = 16  # forms of a Conv2d's filters, one for each shape and rung


class FixedFilters:
    """Filters and bias of a Conv2d, and their copies and prepared forms on each device."""

    @host_memory()
    def __init__(self, filters: Any, bias: Any, terms: Terms) -> None:
        self.w, self.bias = view(filters, "filters"), None if bias is None else view(bias, "bias", axes=1)
        check_filters(self.w.descriptor, self.bias and self.bias.descriptor, terms)
        self.arrays = filters, bias
        self.requires_grad = requires_grad(filters) or requires_grad(bias)
        if self.w.descriptor.device is None:
            self.arrays = np.array(host_array(filters), order="C"), bias
            self.w = view(self.arrays[0], "filters")
        if self.bias is not None and self.bias.descriptor.device is None:
            self.arrays = self.arrays[0], np.array(host_array(bias), order="C")
            self.bias = view(self.arrays[1], "bias", axes=1)
        self._copies: dict[int, Prepared] = {}  # by device
        self._prepared: dict[Any, Prepared] = {}  # by kernels

    def copies(self, device: Gpu, lane: Lane) -> tuple[Prepared, bool]:
        """Packed filters ``w`` and ``bias`` on a device, and whether this call enqueued the copies."""
        copies = self._copies.get(device.number)
        if copies is not None:
            wait_for(copies, lane)
            return copies, False
        stream = device.side if lane.life else lane.stream
        arrays = {"w": self.w} | ({} if self.bias is None else {"bias": self.bias})
        copies = Prepared(device, {name: device.allocate(nbytes(array.descriptor)) for name, array in arrays.items()})
        for (name, source), values in zip(arrays.items(), self.arrays, strict=False):
            if source.descriptor.device is None:
                device.upload(copies.addresses[name], host_array(values), stream)
            else:
                if not (lane.life and device.streams.capture(source.stream)):  # captured work has not run yet
                    device.join(source.stream, stream)
                recipe = device.recipe(Lane(device, stream))
                target = packed_descriptor(source.descriptor.shape, "nchw", source.descriptor.dtype, device.number)
                device.add_copy(recipe, (source.address, source.descriptor), (copies.addresses[name], target), (0, 0))
                Packet(recipe, lane, ()).enqueue(())
        copies.order.end(stream)
        wait_for(copies, lane)
        self._copies[device.number] = copies
        return copies, True

    def prepared(self, device: Gpu, lane: Lane, loaded: Loaded) -> tuple[Prepared, bool]:
        """The filters prepared for a rung, and whether this call enqueued their copies or preparation."""
        copies, new = self.copies(device, lane)
        prepared = self._prepared.get(loaded.program.kernels)
        if prepared is not None:
            wait_for(prepared, lane)
            return prepared, new
        stream, sizes = device.side if lane.life else lane.stream, loaded.bound.prepared_bytes()
        prepared = Prepared(device, {name: device.allocate(size) for name, size in sizes.items()})
        recipe = device.recipe(Lane(device, stream))
        values: dict[str, Value] = {**copies.addresses, **prepared.addresses}
        device.add_launches(recipe, loaded.program, loaded.bound.preparation(), values, pdl=False)
        Packet(recipe, lane, ()).enqueue(())
        prepared.order.end(stream)
        wait_for(prepared, lane)
        self._prepared[loaded.program.kernels] = prepared
        if len(self._prepared) > MOST_PREPARED:
            del self._prepared[next(iter(self._prepared))]
        return prepared, True


def wait_for(prepared: Prepared, lane: Lane) -> None:
    """Makes a lane's later work wait for prepared arrays; during a capture, the host waits."""
    if lane.life:
        prepared.order.wait()
    else:
        prepared.order.begin(lane.stream)


def nbytes(array: Descriptor) -> int:
    """Bytes of an array's elements."""
    return prod(array.shape) * array.itemsize


def requires_grad(values: Any) -> bool:
    """Whether an array is a torch tensor that requires a gradient."""
    return values is not None and getattr(values, "requires_grad", False)
