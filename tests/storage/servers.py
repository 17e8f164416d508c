"""Real S3 servers on loopback for tests: one that honours create-if-absent, one that ignores it.

Each is started once per test process, with free ports and a folder of its own, and ended by its
own process group. A test asks for `s3_root` or `careless_s3_root`, which also sets the
environment, and opens its stores after that.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BUCKET = "shardline-test"
ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key-0123456789"  # noqa: S105 - of servers that live for one test run
LOOPBACK = "127.0.0.1"
_START_SECONDS = 300


@dataclass(frozen=True)
class S3Server:
    """A server that answers. `bucket` exists in it, and no other one."""

    port: int
    pid: int
    bucket: str = BUCKET

    def environment(self) -> dict[str, str]:
        """The variables by which a client finds it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "NO_PROXY": LOOPBACK,
        }

    def new_root(self) -> str:
        """A root that nobody has used."""
        return f"s3://{self.bucket}/{secrets.token_hex(8)}"


def program(name: str) -> str:
    """A server's program beside the interpreter, or else on the path; skips the test if none."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=beside) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process group of its own, which ends with the block or with this process."""
    setpriv = shutil.which("setpriv")
    guard = [setpriv, "--pdeathsig", "SIGKILL"] if setpriv else []
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*guard, *command],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # It holds nothing that is worth an orderly end, which takes SeaweedFS 16 seconds.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            log = (folder / "server.log").read_text(errors="replace")[-2000:]
            pytest.fail(f"{process.args!r} did not start:\n{log}")
        time.sleep(0.05)


def answer(port: int, method: str, path: str, body: bytes = b"") -> int | None:
    """The status of one plain request, or None if nobody answers."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request(method, path, body)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS, which honours create-if-absent."""
    weed = program("weed")
    folder = tmp_path_factory.mktemp("seaweedfs")
    (folder / "data").mkdir()
    keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    actions = ["Admin", "Read", "Write", "List"]
    identity = {"name": "test", "credentials": [keys], "actions": actions}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = free_ports(8)
    s3, filer, master, volume, *rpc = ports
    command = [
        *(weed, "server", "-dir=data", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}"),
        *(
            f"-master.port={master}",
            f"-master.port.grpc={rpc[0]}",
            "-master.volumeSizeLimitMB=1024",
        ),
        *(f"-volume.port={volume}", f"-volume.port.grpc={rpc[1]}"),
        *("-volume.max=100", "-volume.minFreeSpace=1"),
        *("-filer", f"-filer.port={filer}", f"-filer.port.grpc={rpc[2]}"),
        *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={rpc[3]}", "-s3.config=s3.json"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
        *("-filer.localSocket=filer.sock", "-s3.localSocket=s3.sock"),
    ]
    bucket = f"/buckets/{BUCKET}/"

    def ready() -> bool:
        return (
            answer(s3, "GET", "/") is not None
            and answer(filer, "POST", bucket) in {201, 409}
            and answer(filer, "PUT", f"{bucket}.ready", b"yes") == 201
            and answer(filer, "DELETE", f"{bucket}.ready") == 204
        )

    try:
        with running(command, folder) as process:
            wait_until(ready, process, folder)
            yield S3Server(s3, process.pid)
    finally:
        for port in ports:  # it puts sockets of these names into this place whatever it is told
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108
                left.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The S3 server of rclone, which takes no notice of If-None-Match."""
    rclone_program = program("rclone")
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "data" / BUCKET).mkdir(parents=True)
    (port,) = free_ports(1)
    command = [
        *(rclone_program, "serve", "s3", "data", "--addr", f"{LOOPBACK}:{port}"),
        *("--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--config", str(folder / "rclone.conf")),
    ]
    with running(command, folder) as process:
        wait_until(lambda: answer(port, "GET", "/") is not None, process, folder)
        yield S3Server(port, process.pid)


def point_at(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stores opened from now on find this server and nothing else."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3_root(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty root on SeaweedFS."""
    point_at(seaweedfs, monkeypatch)
    return seaweedfs.new_root()


@pytest.fixture
def careless_s3_root(rclone: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty root on rclone."""
    point_at(rclone, monkeypatch)
    return rclone.new_root()
