"""docs/gradients.md shows each rung's and peer's times by layer, what is wrong as wrong, and whose bits repeat."""

from report_records import GPU, record, write

from alexconv.reports import gradients


def of(direction, layer, rung, precision="fp32"):
    measurement = record("alexnet", layer, 128, rung, precision=precision)
    measurement["point"] |= {"direction": direction, "constants": {}}
    return measurement | {"changed": []}


def cells(text, first):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| `{first}` |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_times_of_rungs_and_peers_by_direction(tmp_path):
    wrong = of("wgrad", 2, "torch-nchw-fp32") | {"samples": {}, "status": "wrong"}
    wrong |= {"peer": {"kernels": ["winogradWgradDelta4x4"]}, "error": {"scaled": 3e-4, "tolerance": 8e-7}}
    records = [
        *(of("wgrad", layer, "wgrad-igemm") for layer in range(1, 6)),
        of("wgrad", 3, "wgrad-atomic"),
        wrong,
        of("wgrad", 3, "torch-nchw-fp32-deterministic"),
        of("dgrad", 3, "dgrad-wgmma-half", "fp16"),
        of("forward", 3, "direct"),
    ]
    again = write(tmp_path / "another.jsonl", [of("dgrad", 4, "dgrad-wgmma-half", "fp16")], GPU | {"uuid": "GPU-2"})
    parts = gradients.parts([write(tmp_path / "made.jsonl", records), again])
    assert parts["gradients-where"] == f"Kernel times in ms, alexnet, N = 128, {GPU['name']}."
    igemm, atomic = (cells(parts["wgrad"], name) for name in ("wgrad-igemm", "wgrad-atomic"))
    assert "–" not in igemm
    assert float(igemm[7]) > float(igemm[2]) > 0
    assert (igemm[-1], atomic[-1], atomic[7]) == ("yes", "no", "–")
    assert cells(parts["wgrad"], "torch-nchw-fp32")[2:5] == ["–", "wrong", "–"]
    assert cells(parts["wgrad"], "torch-nchw-fp32-deterministic")[-1] == "yes"
    assert cells(parts["dgrad"], "dgrad-wgmma-half")[1] == "fp16"
    assert "direct`" not in parts["wgrad"] + parts["dgrad"].replace("dgrad-", "")
    assert parts["refused"].splitlines()[-1] == "| wgrad | `torch-nchw-fp32` | 2 | 3.0e-04 | 8.0e-07 | winograd |"


def test_what_pays_compares_rungs_of_the_same_layer_and_card(tmp_path):
    def timed(direction, rung, ms, layer=1, transfer="pageable"):
        measurement = of(direction, layer, rung)
        measurement["point"]["transfer"] = transfer
        return measurement | {"samples": {"kernel": [ms] * 5}}

    pair = timed("wgrad", "wgrad-direct", 6.0), timed("wgrad", "wgrad-partial", 2.0)
    of_wgrad = [*pair, timed("wgrad", "wgrad-atomic", 3.0), timed("wgrad", "wgrad-matmul", 1.0, layer=3)]
    of_forward = [
        timed("forward", "direct-register", 2.0),
        timed("forward", "channels", 4.0),
        timed("forward", "channels", 1.0, transfer="pinned"),
        timed("forward", "direct-register", 2.0, layer=2),
    ]
    files = [[write(tmp_path / f"{name}.jsonl", records)] for name, records in (("g", of_wgrad), ("f", of_forward))]
    _, _, cut, atomics, *others = gradients.parts(*files)["pays"].splitlines()
    assert [cell.strip() for cell in cut.split("|")[2:-1]] == ["2.00× slower", "–", "3.00× faster", "–", "–"]
    assert [cell.strip() for cell in atomics.split("|")[2:-1]] == ["–", "–", "1.50× slower", "–", "–"]
    assert not [line for line in others if "×" in line]
    rungs = {name for pairs in gradients.IDEAS.values() for direction in pairs for name in pairs[direction]}
    assert rungs <= set(gradients.ALL_DIRECTIONS.named)


def test_other_batch_sizes_and_constants_have_a_row_each(tmp_path):
    small, tile = of("wgrad", 3, "wgrad-wgmma-half", "fp16"), of("wgrad", 4, "wgrad-wgmma-half", "fp16")
    small["point"]["N"] = 32
    tile["point"]["constants"], tile["changed"] = {"CLUSTER": 2, "UNITS": 3}, ["CLUSTER"]
    usual = write(tmp_path / "usual.jsonl", [of("wgrad", 3, "wgrad-igemm")])
    text = gradients.parts([usual], more=[write(tmp_path / "others.jsonl", [tile, small])])["others"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    assert [row[1:3] for row in rows] == [["32", "as chosen"], ["128", "CLUSTER=2"]]
    assert [row[5] == "–" for row in rows] == [True, False]


def test_bits_of_outputs_on_two_cards(tmp_path):
    def digested(layer, rung, outputs):
        digests = {"inputs": "1f", "outputs": outputs}
        return of("wgrad", layer, rung) | {"audit": {"samples": 9, "differing": 0, "digests": digests}}

    first, second = (
        write(tmp_path / f"{name}.jsonl", records, GPU | {"uuid": f"GPU-{name}-0"})
        for name, records in (
            ("a", [digested(3, "wgrad-igemm", "2e"), digested(4, "wgrad-igemm", "2e"), of("wgrad", 5, "wgrad-igemm")]),
            ("b", [digested(3, "wgrad-igemm", "2e"), digested(4, "wgrad-igemm", "3d"), of("wgrad", 5, "wgrad-igemm")]),
        )
    )
    text = gradients.parts([first], again=[second])["bits"]
    assert text.startswith(f"1 of 2 gradients have the same bits on {GPU['name']} (GPU-a) and {GPU['name']} (GPU-b)")
    assert "layer 4" in text
    assert "bits" not in gradients.parts([first])
