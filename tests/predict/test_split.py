import json
from pathlib import Path

from alexconv.predict import split


def test_what_is_held_out_is_what_the_seed_drew():
    written = json.loads(Path(split.__file__).with_name("held_out.json").read_text())
    assert written["held_out"] == split.draw(written["seed"])


def test_a_point_is_held_out_by_its_family_its_layer_or_its_workload():
    chosen = split.split()
    training_layer = next(layer for layer in range(1, 6) if layer not in chosen["alexnet_layers"])
    assert split.held_out("alexnet", chosen["alexnet_layers"][0], "igemm")
    assert not split.held_out("alexnet", training_layer, "igemm")
    assert split.held_out(chosen["workloads"][0], 1, "igemm")
