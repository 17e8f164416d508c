"""Build of the compiled kernel. All other metadata is in pyproject.toml.

The compiled kernel is optional: the plain-Python kernel gives the same results, much more slowly.
Therefore a failed build is a warning and never fails the install.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = Path("shardline", "kernel")
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}


def kernel_extensions() -> list[Extension]:
    """Return one optional extension per Cython source of the kernel."""
    depends = sorted(str(path) for path in (*KERNEL.glob("*.h"), *KERNEL.glob("*.pxd")))
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            include_dirs=[str(KERNEL)],
            depends=depends,
            optional=True,
        )
        for source in sorted(KERNEL.glob("*.pyx"))
    ]


class OptionalBuild(build_ext):
    """Build that warns if the kernel cannot be compiled."""

    def build_extensions(self) -> None:
        """Compile all extensions. On failure, print a single warning."""
        try:
            self._compile_all()
        except Exception as error:  # noqa: BLE001 - a failed build must not fail the install
            self._remove_outdated()
            self._warn(error)

    def _compile_all(self) -> None:
        from Cython.Build import cythonize  # noqa: PLC0415 - Cython may be missing

        if self.compiler.compiler_type == "unix":
            for extension in self.extensions:
                extension.extra_compile_args += ["-O3", "-Wno-unused-function"]
        translated = cythonize(
            self.extensions,
            build_dir="build/cython",
            compiler_directives=DIRECTIVES,
            quiet=True,
        )
        for extension, source in zip(self.extensions, translated, strict=True):
            extension.sources = source.sources
            self.build_extension(extension)

    def _remove_outdated(self) -> None:
        """Delete the results of an earlier build, which may not match the sources."""
        for extension in self.extensions:
            built = Path(self.get_ext_fullpath(extension.name))
            built.unlink(missing_ok=True)
            if self.editable_mode:
                (KERNEL / built.name).unlink(missing_ok=True)

    def _warn(self, error: Exception) -> None:
        reason = " ".join(str(error).split()) or type(error).__name__
        sys.stderr.write(
            f"shardline: WARNING: the compiled kernel was not built ({reason}). "
            "The plain-Python kernel will be used: same results, much slower. "
            "For the compiled one, install a C compiler (gcc or clang), the Python headers "
            "and Cython, then install shardline again.\n"
        )


setup(ext_modules=kernel_extensions(), cmdclass={"build_ext": OptionalBuild})
