"""Deferred imports, in processes of their own: a module is loaded once in a process."""

import subprocess
import sys


def printed(program: str) -> str:
    start = (
        "import sys; from shardline.dagster.expectations.engine import defer_imports as deferred; "
    )
    command = [sys.executable, "-c", start + program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_deferred_module_loads_at_first_use() -> None:
    program = """
with deferred("wave", "xml.dom"):
    import wave
    from xml import dom
before = "wave" in sys.modules, "xml.dom" in sys.modules
print(*before, wave.Wave_read.__name__, dom.Node.TEXT_NODE, "wave" in sys.modules)
"""
    assert printed(program) == "False False Wave_read 3 True"


def test_import_after_block_gets_real_module() -> None:
    program = """
with deferred("wave"):
    import wave as placeholder
import wave
print(type(wave).__name__, placeholder.open is wave.open)
"""
    assert printed(program) == "module True"


def test_loaded_or_missing_module_is_left_alone() -> None:
    program = """
import wave
with deferred("wave", "no_such_module"):
    import wave as again
    try:
        import no_such_module
    except ModuleNotFoundError:
        print(again is wave)
"""
    assert printed(program) == "True"


def test_great_expectations_loads_without_plots_and_statistics() -> None:
    program = """
from pathlib import Path
from shardline.dagster.expectations.engine import RuleEngine
RuleEngine(Path("suite.json"), [])
print(*sorted({"great_expectations", "altair", "scipy.stats"} & set(sys.modules)))
"""
    assert printed(program) == "great_expectations"
