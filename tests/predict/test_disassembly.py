from pathlib import Path
from types import SimpleNamespace

import pytest
import stored_code

from alexconv.compiling import nvcc
from alexconv.errors import MachineFault, MissingTool
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.predict import cubins, disassembly, gpu, model, native, opcodes
from alexconv.predict.disassembly import UnknownInstruction, kernels
from alexconv.shapes import WORKLOADS

LINE = "\t/*0000*/ {text} ; /* 0x0000000000000000 */\n\t/* 0x{control:016x} */\n"


def code(text: str, control: int = 0) -> str:
    return ".text.made_up:\n" + LINE.format(text=text, control=control << 41)


def one(text: str, control: int = 0) -> disassembly.Instruction:
    return kernels(code(text, control))["made_up"][0]


def test_control_bits_say_when_the_next_instruction_goes():
    instruction = one("@!P2 IADD3 R3, -R5, R3.reuse, RZ", 0b000101_011_111_0_0100)
    assert (instruction.stall, instruction.writes, instruction.reads, instruction.waits, instruction.yields) == (
        4,
        None,
        3,
        5,
        True,
    )
    assert (instruction.guard.number, instruction.guard.inverted) == (2, True)
    assert [operand.number for operand in instruction.operands] == [3, 5, 3, disassembly.NO_REGISTER]
    assert instruction.operands[1].negative
    assert [operand.reused for operand in instruction.operands] == [False, False, True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LDG.E R2, desc[UR6][R8.64+-0x10]", (8, disassembly.NO_UNIFORM, 1, -16)),
        ("LDS R2, [R3.X4+UR5+0x20]", (3, 5, 4, 32)),
        ("SYNCS.EXCH.64 URZ, [UR8], UR4", (disassembly.NO_REGISTER, 8, 1, 0)),
    ],
)
def test_addresses_are_sums(text, expected):
    place = next(operand for operand in one(text).operands if operand.kind == "M")
    assert (place.number, place.uniform, place.scale, place.value) == expected


def test_transposed_factors_of_a_product_have_their_descriptor_s_register():
    product = one("HGMMA.64x192x16.F32 R24, gdesc[UR16].tnspA.tnspB, RZ, !UPT, gsb0")
    assert (product.operands[1].kind, product.operands[1].number) == ("G", 16)
    assert native.table([product]).shape[0] == 1


def test_float_immediates_become_bits_of_their_type():
    assert one("FADD R2, R2, 1").operands[2].value == 0x3F800000
    assert one("HFMA2.MMA R2, -RZ, RZ, 1, 0").operands[3].value == 0x3C00


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("FROBNICATE R2, R3", "opcode FROBNICATE"),
        ("IADD3.ODDLY R2, R3, R4, R5", "modifier ODDLY"),
        ("BMOV.32.CLEAR R3, B0", "opcode BMOV"),
        ("IDP.4A.S8.S8 R5, R4, R3, RZ", "opcode IDP"),
        ("S2R R2, SR_WEATHER", "special register SR_WEATHER"),
    ],
)
def test_what_the_model_does_not_know_is_an_error_that_names_it(text, complaint):
    with pytest.raises(UnknownInstruction, match=complaint):
        native.table(kernels(code(text))["made_up"])


def test_every_stored_program_is_known():
    for program in stored_code.stored()["programs"]:
        for kernel in stored_code.kernels(program).values():
            assert len(kernel.table) == len(kernel.code) > 5


VERSIONS, *FORMS = (Path(__file__).parent / "opcodes.txt").read_text().splitlines()


@pytest.mark.parametrize("row", FORMS)
def test_every_opcode_of_the_supported_compilers_is_known(row):
    """As scripts/measure/store_code.py lists them; a new compiler's may need rows in alexconv/predict/opcodes.py."""
    name, *modifiers = row.split()[0].split(".")
    instruction = SimpleNamespace(name=name, modifiers=tuple(modifiers), operands=(), text=row)
    assert opcodes.opcode(instruction).op in opcodes.OPS
    assert opcodes.modifier_bits(instruction) >= 0


def test_the_compilers_whose_opcodes_are_known_are_those_of_the_list():
    first, *_, last = (version.rpartition(".")[0] for version in VERSIONS.split())
    assert f"{first} to {last}" == opcodes.COMPILERS


def test_a_prefetch_of_a_tensor_map_takes_an_issue_slot():
    instruction = one("UTMACCTL.PF [UR4]")
    assert opcodes.opcode(instruction) == opcodes.Opcode("NOP", "NONE")
    assert native.table([instruction]).shape[0] == 1


def test_an_unknown_opcode_is_one_line_with_the_rung_and_the_compiler(monkeypatch):
    conv = WORKLOADS["alexnet"].layer(3)
    bound = BoundRung(RUNGS["igemm"], conv, RUNGS["igemm"].resolve(conv, {}))
    text = "".join(code("FROBNICATE R2, R3").replace("made_up", name) for name in bound.entries())
    monkeypatch.setattr(nvcc, "compile_cubin", lambda *_: b"")
    monkeypatch.setattr(nvcc, "nvcc_version", lambda: "13.9.1")
    monkeypatch.setattr(cubins, "needs", lambda *_: {name: cubins.Needs(32, 0) for name in bound.entries()})
    monkeypatch.setattr(cubins, "literals", lambda _: {})
    monkeypatch.setattr(disassembly, "disassembled", lambda _: text)
    says = rf"^igemm by nvcc 13\.9\.1: the model does not know the opcode FROBNICATE.*use nvcc {opcodes.COMPILERS}.*$"
    with pytest.raises(UnknownInstruction, match=says):
        model.compile_kernels(bound, gpu.load("h200"))


def test_without_nvdisasm_one_line_says_what_to_install(monkeypatch):
    disassembly.find_nvdisasm.cache_clear()
    monkeypatch.setattr("shutil.which", lambda *_: None)
    with pytest.raises(MissingTool, match=r"pip install 'alexconv\[predict\]'"):
        disassembly.find_nvdisasm()
    disassembly.find_nvdisasm.cache_clear()


@pytest.mark.parametrize("name", gpu.names())
def test_every_number_of_a_gpu_has_a_source(name):
    import tomllib

    for section in tomllib.loads((gpu.FOLDER / f"{name}.toml").read_text()).values():
        if isinstance(section, dict):
            for entry in section.values():
                assert set(entry) == {"value", "source"}
                assert len(entry["source"]) >= 3


def test_a_gpu_like_another_differs_only_where_its_file_says():
    like, other = gpu.load("rtx3060"), gpu.load("rtx3090")
    differing = {
        f"{section}.{name}"
        for section, values in other.values.items()
        for name, value in values.items()
        if like.values[section][name] != value
    }
    assert differing == {
        *(f"device.{name}" for name in ("multiprocessors", "clock_hz", "memory_bytes", "l2_bytes")),
        *("device.dram_bytes_per_s", "device.dram_write_bytes_per_s", "memory.l2_sectors_per_cycle"),
        *(f"memory.{what}_cycles" for what in ("store_line", "store_sector", "partial_sector", "reduction_sector")),
        *(f"peaks.{name}" for name in other.peaks),
    }


def issued(*lines: str, threads: int = 64, literals: bytes = b"") -> list[float]:
    """How often each instruction of a program is issued by one block; a line that ends with a colon is a label."""
    control = 0b000000_111_111_0_0100 << 41
    text = "".join(f"{line}\n" if line.endswith(":") else LINE.format(text=line, control=control) for line in lines)
    kernel = kernels(".text.made_up:\n" + text)["made_up"]
    table, chip = native.table(kernel), gpu.load("h200")
    work = native.Work((1, 1, 1), (threads, 1, 1), 0, 1, 1 << 17, (0,), ())
    parameters = chip.parameters(1, 0, 0, 1)
    return native.simulate(table, native.registers_of(kernel), work, parameters, literals).issued.tolist()


def test_literals_are_read_from_their_bank():
    """The upper word of a 64-bit constant in bank 2; past its end are zeros."""
    counts = issued(
        *("MOV R0, c[0x2][0x4]", "ISETP.NE.AND P0, PT, R0, 0x7, PT", "@P0 BRA `(.L_wrong)"),
        *("MOV R0, c[0x2][0x8]", "ISETP.NE.AND P0, PT, R0, RZ, PT", "@P0 BRA `(.L_wrong)", "EXIT"),
        *(".L_wrong:", "NOP", "EXIT"),
        threads=32,
        literals=(7 << 32).to_bytes(8, "little"),
    )
    assert counts[6:] == [1, 0, 0]


def test_one_lane_at_a_barrier_counts_for_its_warp():
    """Thread 0 waits at a barrier while the other lanes of its warp wait for it and the other warp ends."""
    counts = issued(
        *("S2R R0, SR_TID.X", "ISETP.NE.AND P0, PT, R0, RZ, PT", "BSSY B0, `(.L_end)", "@P0 BRA `(.L_end)"),
        "BAR.RED.OR.DEFER_BLOCKING 0x0, !PT",
        *(".L_end:", "BSYNC B0", "EXIT"),
    )
    assert counts[4:] == [1, 3, 2]  # the barrier once; both parts of the first warp and the second at BSYNC; two ends


def test_a_ballot_is_in_every_lane():
    counts = issued(
        *("S2R R0, SR_TID.X", "ISETP.GT.AND P0, PT, R0, 0x1e, PT", "VOTE.ANY R2, P1, P0"),
        *("ISETP.NE.AND P2, PT, R2, -0x80000000, PT", "@P2 BRA `(.L_wrong)", "@!P1 BRA `(.L_wrong)", "EXIT"),
        *(".L_wrong:", "NOP", "EXIT"),
        threads=32,
    )
    assert counts[6:] == [1, 0, 0]


@pytest.mark.parametrize(
    "chosen, bits",
    [
        ("FMNMX.NAN R3, |R0|, R1, !PT", "0x40000000"),  # the larger of 2 and 1
        ("FMNMX R3, R0, R1, !PT", "0x3f800000"),
        ("FMNMX R3, -R0, R1, PT", "0x3f800000"),  # the smaller of 2 and 1
        ("FMNMX R3, R0, -|R1|, PT", "0xc0000000"),
        ("FMNMX.NAN R3, R1, R2, !PT", "0x7fffffff"),
        ("FMNMX.NAN R3, R2, R1, !PT", "0x7fffffff"),
        ("FMNMX R3, R2, R1, !PT", "0x3f800000"),
        ("FMNMX R3, R1, R2, PT", "0x3f800000"),
        ("FSEL R3, |R0|, R1, PT", "0x40000000"),
        ("FSEL R3, R0, -R1, !PT", "0xbf800000"),
    ],
)
def test_one_of_two_floats_is_chosen(chosen, bits):
    counts = issued(
        *("MOV R0, 0xc0000000", "MOV R1, 0x3f800000", "MOV R2, 0x7fffffff", chosen),  # -2, 1 and NaN
        *(f"ISETP.NE.U32.AND P0, PT, R3, {bits}, PT", "@P0 BRA `(.L_wrong)", "EXIT", ".L_wrong:", "NOP", "EXIT"),
        threads=32,
    )
    assert counts[6:] == [1, 0, 0]


def test_a_disassembler_that_does_not_end_or_start_is_the_machine_s_fault(tmp_path, monkeypatch):
    program = tmp_path / "nvdisasm"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(disassembly, "find_nvdisasm", lambda: str(program))
    monkeypatch.setattr(disassembly, "TIME_LIMIT", 0.1)
    with pytest.raises(MachineFault, match="nvdisasm cannot run: Permission denied; try again"):
        disassembly.disassembled(b"a cubin that no cache has")
    program.chmod(0o755)
    with pytest.raises(MachineFault, match="nvdisasm did not finish"):
        disassembly.disassembled(b"a cubin that no cache has")
