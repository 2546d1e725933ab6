"""Kernels on a 64-bit ARM CPU, as in a Mac's container: compiled for it, and run by QEMU.

A part of what runs on this machine's own CPU; all of it: ``make test-aarch64``.  QEMU on x86-64 keeps stores in order,
which such a CPU does not: only a real one shows a missing fence.
"""

import shutil

import pytest
import test_host_executor as on_host
from compilers import wrapper
from rung_runs import DEEP, assert_exact, whole

from alexconv.errors import LaunchError, MissingTool
from alexconv.executors import choose_executor
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.ladder import LADDER

COMPILER, QEMU = "aarch64-linux-gnu-g++", "qemu-aarch64"
RUNGS = {rung.family: rung for rung in LADDER if not (rung.gpu_only or whole(rung, DEEP, 2).bound.refusal())}

needs_cross_compiler = pytest.mark.skipif(
    not (shutil.which(COMPILER) and (shutil.which(QEMU) or shutil.which(f"{QEMU}-static"))),
    reason=f"{COMPILER} or {QEMU} is missing (Debian: apt-get install g++-aarch64-linux-gnu qemu-user)",
)


@pytest.fixture
def cross_compiler(monkeypatch):
    monkeypatch.setenv("CXX", COMPILER)


@needs_cross_compiler
@pytest.mark.parametrize("family", RUNGS)
def test_a_rung_of_each_family_is_exact(cross_compiler, family):
    assert_exact(choose_executor("host"), whole(RUNGS[family], DEEP, 2).bound, 2)


@needs_cross_compiler
def test_halves_round_and_threads_wait_as_on_this_cpu(cross_compiler):
    runtime = HostRuntime()
    assert runtime.describe()["cpu"].startswith("aarch64 ")
    on_host.test_every_half_operation_rounds_once(on_host.module("arithmetic"))
    on_host.test_shuffles_pick_the_right_lane(on_host.module("warps"))
    on_host.test_exited_threads_are_not_waited_for(7)


@needs_cross_compiler
def test_a_bad_access_is_an_error(cross_compiler, tmp_path):
    (source := tmp_path / "faults.cu").write_text(on_host.FAULTS)
    y = HostRuntime().allocate(8192, "y")
    with pytest.raises(LaunchError, match=r"before: bad access \(SIGSEGV\) 4 bytes before y"):
        HostRuntime().compile(source, {}, on_host.NAMES).launch("before", on_host.ONE, on_host.ONE, 0, [y])


def test_a_compiler_for_another_cpu_needs_qemu_and_the_fast_build(tmp_path, monkeypatch):
    script = 'case "$1" in -dumpmachine) echo vax-linux-gnu;; *) exec "$CXX" "$@";; esac'
    monkeypatch.setenv("CXX", str(wrapper(tmp_path / "vax-c++", script)))
    with pytest.raises(MissingTool, match=r"vax-c\+\+ compiles for vax, and qemu-vax, which runs .* install it"):
        HostRuntime()
    (tmp_path / "qemu-vax").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert HostRuntime().describe()["cpu"].startswith("vax under QEMU on ")
    with pytest.raises(MissingTool, match=r"the asan build needs a compiler for this machine's CPU, not .*: set CXX"):
        HostRuntime(build="asan")
