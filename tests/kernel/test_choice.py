"""Which kernel is used, and that the two are interchangeable."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shardline import kernel as chosen
from shardline.kernel import reference as specification

if TYPE_CHECKING:
    from types import ModuleType

FUNCTIONS = sorted(set(specification.__all__) - {"NAME"})


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "SHARDLINE_KERNEL"} | environment,
    )


NAME = "from shardline import kernel; print(kernel.NAME, kernel.crc32c(b'123456789'))"


def test_reference_kernel_on_request() -> None:
    assert python(NAME, SHARDLINE_KERNEL="reference").stdout == "reference 3808858755\n"


@pytest.mark.usefixtures("compiled")
def test_compiled_kernel_on_request() -> None:
    assert python(NAME, SHARDLINE_KERNEL="compiled").stdout == "compiled 3808858755\n"


@pytest.mark.usefixtures("compiled")
def test_built_kernel_is_default() -> None:
    assert python(NAME).stdout == "compiled 3808858755\n"
    assert python(NAME, SHARDLINE_KERNEL="").stdout == "compiled 3808858755\n"


def test_reference_kernel_loads_no_compiled_module() -> None:
    program = "import sys; from shardline import kernel; print(*sys.modules)"
    modules = set(python(program, SHARDLINE_KERNEL="reference").stdout.split())
    assert "shardline.kernel.reference" in modules
    assert not modules & {"shardline.kernel.compiled", "shardline.kernel._frames"}


WITHOUT = "import sys; sys.modules['shardline.kernel._frames'] = None\n"


def test_unbuilt_kernel_falls_back_to_reference() -> None:
    assert python(WITHOUT + NAME).stdout == "reference 3808858755\n"


CODE = """
from shardline.errors import KernelUnavailableError
try:
    import shardline.kernel
except KernelUnavailableError as error:
    print(error.code, bool(error.hint))
"""


def test_required_unbuilt_kernel_raises() -> None:
    result = python(WITHOUT + CODE, SHARDLINE_KERNEL="compiled")
    assert result.stdout == "kernel-unavailable True\n"


def test_unknown_kernel_raises() -> None:
    result = python(NAME, SHARDLINE_KERNEL="nonsense")
    assert result.returncode == 1
    assert "KernelUnavailableError" in result.stderr
    assert "'nonsense'" in result.stderr
    assert "'compiled' or 'reference'" in result.stderr
    assert python(CODE, SHARDLINE_KERNEL="nonsense").stdout == "unknown-kernel True\n"


def test_main_prints_kernel_in_use() -> None:
    program = "import runpy; runpy.run_module('shardline.kernel', run_name='__main__')"
    assert "kernel: plain Python" in python(program, SHARDLINE_KERNEL="reference").stdout


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_chosen_kernel(kernel: ModuleType, name: str) -> None:
    assert callable(getattr(kernel, name))
    assert inspect.getdoc(getattr(kernel, name))
    if chosen.NAME == kernel.NAME:
        assert getattr(chosen, name) is getattr(kernel, name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_have_equal_signatures(
    reference: ModuleType, compiled: ModuleType, name: str
) -> None:
    def arguments(kernel: ModuleType) -> list[tuple[str, object, object]]:
        parameters = inspect.signature(getattr(kernel, name)).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert arguments(compiled) == arguments(reference)
