"""Run by rekey.py --before COMMIT on the tree of that commit: the keys that it gives to points, and what it runs.

As keys_before.py, for trees that have a rekey.py of their own, whose functions give the answers.
"""

import json
import shlex
import sys
from dataclasses import asdict
from typing import Any

import rekey

from alexconv import run, tune
from alexconv.measuring.runner import Settings
from alexconv.records.names import in_present_names


def settings(command: str) -> Settings:
    """What the recorded command says about its points."""
    words = shlex.split(command)
    if "alexconv.tune" in words:
        return Settings(seed=tune.parser().parse_args(words[words.index("alexconv.tune") + 1 :]).seed)
    options = run.parser().parse_args(words[words.index("alexconv.run") + 1 :])
    return Settings(seed=options.seed, memory_budget=options.memory_budget, timed=not options.verify_only)


def answered(record: dict[str, Any]) -> dict[str, Any]:
    """The key and the kernels of a record; no key where the tree cannot tell."""
    try:
        chosen, present = settings(record["command"]), in_present_names(record)
        key = rekey.present_key(present, chosen, rekey.RecordedGpu(record["device"]))
        kernels = [] if "peer" in present or present["status"] == "skipped" else rekey.ran_now(present)
    except (rekey.Changed, LookupError, ValueError, SystemExit):
        return {"key": None}
    found = {name: value for name, value in asdict(chosen).items() if name in ("seed", "memory_budget", "timed")}
    return {"key": key, "settings": found, "kernels": kernels}


print(json.dumps([answered(record) for record in json.load(sys.stdin)]))
