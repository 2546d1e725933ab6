"""A rung and its changed constants in a few words: as tables, plots and progress lines name it."""

from alexconv.data import UNIFORM
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.problem import H200, TYPICAL_BATCH, Constants, Device
from alexconv.kernels.rung import Rung
from alexconv.records.store import DATA, LATER_AXES, Record
from alexconv.shapes import WORKLOADS, Conv

SEQUENCE_SUFFIX = "-together"  # ends the name of a sequence of layers
MIXED = "mixed"  # instead of a rung, where each layer of a sequence has its own
SHARED = "shared"  # the field of a device's header that says that others measured it


def changed_constants(
    rung: Rung, constants: Constants, conv: Conv, N: int = TYPICAL_BATCH, device: Device = H200
) -> dict[str, int]:
    """The constants that differ from the rung's defaults for the shape."""
    defaults = rung.resolve(conv, {}, N, device)
    return {name: value for name, value in constants.items() if value != defaults.get(name)}


def changed_in(record: Record) -> dict[str, int]:
    """The changed constants of a record: those it names, else those that differ from present defaults."""
    point = record["point"]
    if "changed" in record:
        return {name: point["constants"][name] for name in record["changed"]}
    return changed_today(point)


def changed_today(axes: Record, ladder: Ladder = LADDER) -> dict[str, int]:
    """The constants of a point that differ from present defaults; none for what the ladder does not have."""
    if (rung := ladder.named.get(axes["rung"])) is None:
        return {}
    conv = WORKLOADS[axes["workload"]].layer(axes["layer"])
    return changed_constants(rung, axes["constants"], conv.toward(rung.direction), axes["N"])


def label_of(axes: Record, changed: Constants) -> str:
    """A recorded point in a few words: its axes, and the constants that differ from its rung's defaults."""
    rung = label_with(axes["rung"], changed)
    place = f"{axes['workload']} layer {axes['layer']} N={axes['N']}"
    return f"{place} {rung} {axes['transfer']}{particulars(axes, rung)}"


def label_with(rung: str, changed: Constants) -> str:
    """The rung's name, followed by its changed constants."""
    words = " ".join(f"{name}={value}" for name, value in changed.items())
    return f"{rung} [{words}]" if words else rung


def rung_label(rung: Rung, constants: Constants, conv: Conv) -> str:
    """The rung's name, with those constants that differ from its defaults for the shape."""
    return label_with(rung.name, changed_constants(rung, constants, conv))


def particulars(axes: Record, beside: str = "") -> str:
    """The data set, the direction and the mix in a label; empty for uniform data, forward, and one rung's defaults.

    A direction with which the text ``beside`` begins, such as a rung's name, is not repeated.
    """
    values = [axes[axis] for axis, usual in LATER_AXES.items() if axes.get(axis, usual) != usual]
    return "".join(f" {value}" for value in values if not beside.startswith(f"{value}-"))


def data_of(record: Record) -> str:
    """The data set of a record; older records, which lack it, are of uniform data."""
    return str(record["point"].get(DATA, UNIFORM))


def device_name(device: Record) -> str:
    """A device's name, which tells a card that others measured from this project's."""
    name = str(device.get("name") or device.get("backend"))
    return f"{name} (shared)" if device.get(SHARED) is True else name
