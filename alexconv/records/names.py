"""Translates names of rungs and constants in older records to present ones."""

from typing import Any

from alexconv.kernels.ladder import FORMER_NAMES, RUNGS

SEQUENCE_SUFFIX = "-together"  # ends the name of a sequence of layers


def in_present_names(record: dict[str, Any]) -> dict[str, Any]:
    """A record with the present names of its rung, constants, layers and kernels."""
    if isinstance(record.get("rung"), str):
        return {**record, "rung": present_rung(record["rung"])}
    if "point" not in record:
        return record
    renamed = {**record, "point": _renamed(record["point"])}
    rung = record["point"]["rung"]
    if "planned_constants" in record:
        renamed["planned_constants"] = _constants(rung, record["planned_constants"])
    if "changed" in record:
        renamed["changed"] = list(_constants(rung, dict.fromkeys(record["changed"], 0)))
    if "layers" in record:
        renamed["layers"] = [{**_renamed(layer), **_launches(layer["rung"], layer)} for layer in record["layers"]]
    if "entry" in record:
        renamed["entry"] = _entry(rung, record["entry"])
    return renamed | _launches(rung, record)


def present_rung(name: str) -> str:
    """The present name of a rung, or of its sequence of layers."""
    base = name.removesuffix(SEQUENCE_SUFFIX)
    return FORMER_NAMES.get(base, base) + name[len(base) :]


def _renamed(point: dict[str, Any]) -> dict[str, Any]:
    """A point, or a layer of one: it has a rung and constants."""
    return {**point, "rung": present_rung(point["rung"]), "constants": _constants(point["rung"], point["constants"])}


def _launches(rung: str, record: dict[str, Any]) -> dict[str, Any]:
    """The launches of a record or of a layer, if it has any."""
    if not isinstance(record.get("launches"), list):
        return {}
    return {
        "launches": [
            {**launch, "entry": _entry(rung, launch["entry"])}
            if isinstance(launch, dict) and "entry" in launch
            else launch
            for launch in record["launches"]
        ]
    }


def _entry(rung: str, entry: Any) -> Any:
    present = RUNGS.get(present_rung(rung))
    return present.present_entry(entry) if present else entry


def _constants(rung: str, constants: dict[str, int]) -> dict[str, int]:
    present = RUNGS.get(present_rung(rung))
    return present.present_names(constants) if present else constants
