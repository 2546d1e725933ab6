"""Checks of the kernel of a whole network, whose blocks wait for each other: on a small network, without a GPU.

Blocks take turns (``executors/host/hostcuda/residents.h``).  In even orders of threads a block runs until all of its
threads wait, so one that does not wait for another overtakes it, and reads NaN; in odd ones its turn ends with each
arrival, so what it has not yet stored is missing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from alexconv.check.hazards import BUILD, MOMENTS, Schedule, watch_launch
from alexconv.errors import LaunchError
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.problem import H200
from alexconv.kernels.rung import Rung
from alexconv.networks.checks import checked_stages
from alexconv.networks.measuring import opened
from alexconv.networks.persistent import LAYOUT, PRECISION
from alexconv.networks.plan import NetworkPlan, NetworkPoint, as_stored, plan_network
from alexconv.networks.schedules import SCHEDULES
from alexconv.networks.stages import Stage, Values, convolution, linear, max_pooling
from alexconv.networks.tables import Network
from alexconv.networks.weights import generated, images, stored_as
from alexconv.planning.layouts import from_study
from alexconv.shapes import Conv

BLOCKS = 3  # resident ones: fewer than a stage's tiles
ORDERS = (0, 1, 7, 8)  # of a block's threads: forward, in reverse, two at random; blocks take turns by them, too


Change = Callable[[Rung], Rung]


def as_it_is(rung: Rung) -> Rung:
    """No change."""
    return rung


@cache
def small() -> Network:
    """A first stage of few channels, stages with and without pooling, partial tiles, warps without a step."""
    stages: list[Stage] = [convolution("conv1", Conv(3, 31, 28, 64, 5, 4, 4, top=1, bottom=1, left=2, right=2))]
    stages.append(max_pooling("pool1", stages[-1], 3, 2))
    stages.append(convolution("conv2", Conv(64, 3, 3, 96, 3, 3, top=1, bottom=1, left=1, right=1)))
    stages.append(convolution("conv3", Conv(96, 3, 3, 40, 3, 3, top=1, bottom=1, left=1, right=1)))
    stages.append(max_pooling("pool3", stages[-1], 2, 1))
    stages.append(linear("linear4", stages[-1], 64, relu=True))
    return Network("small", (*stages, linear("linear5", stages[-1], 11, relu=False)), "for checks")


def image() -> Values:
    """An image of the network."""
    return images(small(), 0, 1)


def planned(executor: HostExecutor, change: Change = as_it_is) -> NetworkPlan:
    """The network's plan on as many blocks as the executor's device holds, its kernel perhaps changed."""
    weights = stored_as(generated(small()), PRECISION)
    plan = plan_network(executor, NetworkPoint(small(), 1, PRECISION, SCHEDULES["persistent"]), weights)
    assert plan.whole
    bound = replace(plan.whole.bound, rung=change(plan.whole.bound.rung))
    return replace(plan, whole=replace(plan.whole, bound=bound))


def host(build: str = "fast", order: int = 0, blocks: int = BLOCKS) -> HostExecutor:
    """The host executor with a device that holds so many blocks."""
    return HostExecutor(build, order, device=replace(H200, multiprocessors=blocks))


def wrong_stages(executor: HostExecutor, plan: NetworkPlan) -> Iterator[str]:
    """The stages whose outputs exceed their bounds, NaN included, or why the launch failed."""
    try:
        with opened(executor, plan) as network:
            errors, _, _ = checked_stages(plan, image(), network.stage_outputs, generated=True)
    except LaunchError as failure:
        yield str(failure)
        return
    for error in errors:
        if not error.passes:
            where = f"on {executor.device.multiprocessors} blocks, in thread order {executor.runtime.order}"
            yield f"{error.stage}: its error is {error.of_bound:.3g} times its bound {where}"


def correct(change: Change = as_it_is, build: str = "fast", orders: Sequence[int] = ORDERS) -> Iterator[str]:
    """Every stage's outputs, in several orders of threads and of blocks."""
    for order in orders:
        executor = host(build, order)
        yield from wrong_stages(executor, planned(executor, change))


def addresses(change: Change = as_it_is) -> Iterator[str]:
    """The same under AddressSanitizer."""
    return correct(change, "asan", ORDERS[:1])


def async_hazards(change: Change = as_it_is) -> Iterator[str]:
    """Copies that are not waited for, and races, in a block that runs alone."""
    executor = host(BUILD, blocks=1)
    plan = planned(executor, change)
    assert plan.whole
    module, (launch,) = executor.load(plan.whole.bound).module, plan.whole.bound.launches(1)
    buffers = {name: executor.runtime.allocate(size, name) for name, size in plan.sizes(1).items()}
    named = {name: buffers[array] for name, array in plan.whole.arrays.items()}
    inputs = {**as_stored(plan.whole, plan), "x": from_study(image().astype(plan.dtype), LAYOUT)}
    for moment in MOMENTS:
        for buffer in buffers.values():
            buffer.bytes[:] = 0xFF
        for name, values in inputs.items():
            named[name].array(values.dtype, values.shape)[:] = values
        arguments = [named[name] for name in launch.args]
        hazards, failure = watch_launch(module, launch, arguments, Schedule(moment, seed=1))
        yield from map(str, hazards)
        if failure:
            yield failure


KINDS: Mapping[str, Callable[[], Iterator[str]]] = MappingProxyType(
    {"correct": correct, "addresses": addresses, "async": async_hazards}
)
