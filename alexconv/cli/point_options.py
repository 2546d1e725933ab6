"""The options that choose points, shared by the commands."""

import argparse
from collections.abc import Container

from alexconv.kernels.ladder import Ladder
from alexconv.options import comma_separated
from alexconv.planning.points import (
    DEFAULTS,
    PAGEABLE,
    ConstantSource,
    Point,
    batches_of,
    choose_rungs,
    expand,
    of_precisions,
    parse_batches,
    parse_directions,
    parse_layers,
    refuse_unused,
    workload_named,
)
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import DIRECTIONS, WORKLOADS

BY_BACKEND = "128 on a GPU, 1 on the host"  # the default of --N where the executor decides
RUNG_WORDS = "rungs by name, study abbreviation or family; family:igemm where a rung has the family's name"
GPU_BATCH = 128  # the default of commands about GPUs alone


def add_layers(options: argparse._ActionsContainer, N: int | None = None) -> None:
    """Adds --workload, --layers and --N; without ``N`` the executor's usual batch is the default."""
    add = options.add_argument
    add("--workload", default="alexnet", metavar="NAME", help=f"{', '.join(WORKLOADS)} (default: alexnet)")
    add("--layers", default="all", metavar="LIST", help="layers, such as 1-5 or 1,3 (default: all)")
    add(
        "--N",
        type=comma_separated,
        default=None if N is None else str(N),
        metavar="LIST",
        help=f"batch sizes in images, such as 1,32,128 or 256:2048:x2 (default: {BY_BACKEND if N is None else N})",
    )


def add_rungs(options: argparse._ActionsContainer) -> None:
    """Adds --rungs."""
    options.add_argument("--rungs", default="all", metavar="LIST", help=f"{RUNG_WORDS} (default: all)")


def add_direction(options: argparse._ActionsContainer, default: str | None = None) -> None:
    """Adds --direction."""
    usual = "forward, or those of the rungs named" if default is None else "all"
    options.add_argument(
        "--direction",
        type=comma_separated,
        default=default,
        metavar="LIST",
        help=f"only rungs of these directions: {', '.join(DIRECTIONS)} (default: {usual})",
    )


def add_constants(options: argparse._ActionsContainer) -> None:
    """Adds --set."""
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=V1,V2",
        help="values of a rung's constant, instead of its default; repeatable",
    )


def points_of(
    options: argparse.Namespace,
    ladder: Ladder,
    usual_batch: int,
    source: ConstantSource = DEFAULTS,
    precisions: Container[str] = (),
) -> list[Point]:
    """The points that --workload, --layers, --N and --rungs choose, with pageable transfers; raises UsageError.

    Each constant that the source has values for must be one of a chosen rung.
    """
    workload = workload_named(options.workload)
    batches = parse_batches(options.N or str(usual_batch))
    named = choose_rungs(options.rungs, ladder, parse_directions(vars(options).get("direction")))
    rungs = of_precisions([(rung, None) for rung, _ in named], precisions)
    places = batches_of(workload, parse_layers(options.layers, workload), batches)
    points = expand(places, rungs, [TRANSFERS[PAGEABLE]], source)
    refuse_unused(source.chosen, points)
    return points
