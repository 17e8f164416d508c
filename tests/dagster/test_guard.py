"""The guard before the web server: what the page itself needs passes, what others send does not."""

import json
import re
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from shardline.dagster.resources import get_page_link
from shardline.dagster.web.guard import get_loopback_origins, parse_origin
from shardline.errors import InvalidArgumentError
from tests.dagster.web_page import LAUNCH, SECONDS, WebPage, launch_of, web_page
from tests.errors import raises
from tests.storage.servers import LOOPBACK

pytestmark = pytest.mark.xdist_group("web page")  # they wait: one worker is enough

FOREIGN = "http://attacker.example"
PROXIED = "data.example.com"
TUNNEL = "localhost:8080"
LAUNCH_INLINE = """\
mutation { launchRun(executionParams: {mode: "default", selector: {
  repositoryLocationName: "small", repositoryName: "__repository__", pipelineName: "__ASSET_JOB",
  assetSelection: [{path: ["one"]}]}}) { __typename } }
"""
VERSION = "{ version }"
ONE_ASSET = launch_of("one")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebPage]:
    options = ("--no-daemon", "--host", PROXIED, "--host", f"http://{TUNNEL}")
    with web_page(tmp_path_factory.mktemp("page"), *options) as started:
        yield started


@pytest.fixture(scope="module")
def read_only_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebPage]:
    folder = tmp_path_factory.mktemp("read_only")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLINE_UI_HOSTS", f"{PROXIED} http://{TUNNEL}")
        patch.setenv("SHARDLINE_REPORTS", str(folder / "reports"))
        with web_page(folder, "--no-daemon", "--read-only") as started:
            yield started


def open_socket(
    page: WebPage, *, origin: str | None = None, host: str | None = None
) -> ClientConnection:
    return connect(
        f"ws://{host or page.host}/graphql",
        sock=socket.create_connection((LOOPBACK, page.port)),
        origin=None if origin is None else Origin(origin),
        subprotocols=[Subprotocol("graphql-ws")],
        proxy=None,
    )


def subscribe(page: WebPage, query: str, origin: str) -> dict[str, object]:
    """The first message that answers a subscription."""
    with open_socket(page, origin=origin) as connection:
        connection.send(json.dumps({"type": "connection_init"}))
        assert json.loads(connection.recv()) == {"type": "connection_ack"}
        payload = {"query": query, "variables": {}}
        connection.send(json.dumps({"id": "1", "type": "start", "payload": payload}))
        message: dict[str, object] = json.loads(connection.recv())
        return message


def test_page_and_scripts_load(page: WebPage) -> None:
    index = page.ask("GET", "/")
    assert index.status == 200
    assert index.headers.get_content_type() == "text/html"
    scripts = re.findall(r'<script[^>]* src="(/[^"]+)"', index.text)
    assert scripts
    for script in scripts:
        answer = page.ask("GET", script, {"Sec-Fetch-Site": "same-origin"})
        assert answer.status == 200
        assert answer.headers.get_content_type() == "application/javascript"
        assert answer.body


@pytest.mark.parametrize("path", ["/", "/assets/one", "/graphql", "/server_info", "/favicon.svg"])
def test_responses_forbid_frames(page: WebPage, path: str) -> None:
    answer = page.ask("GET", path, {"Accept": "text/html"})
    assert answer.status == 200
    assert "frame-ancestors 'none'" in answer.headers.get_all("Content-Security-Policy", [])
    assert answer.headers.get_all("X-Frame-Options") == ["DENY"]
    assert answer.headers.get_all("X-Content-Type-Options") == ["nosniff"]
    assert answer.headers.get_all("Referrer-Policy") == ["same-origin"]


def test_dagster_security_policy_is_kept(page: WebPage) -> None:
    policies = page.ask("GET", "/").headers.get_all("Content-Security-Policy", [])
    assert len(policies) == 2
    assert "script-src 'nonce-" in policies[0]
    assert "object-src 'none'" in policies[0]


@pytest.mark.parametrize("name", [LOOPBACK, "localhost", "LOCALHOST", "[::1]"])
def test_same_origin_query_passes(page: WebPage, name: str) -> None:
    host = f"{name}:{page.port}"
    headers = {"Host": host, "Origin": f"http://{host.lower()}", "Sec-Fetch-Site": "same-origin"}
    answer = page.graphql(VERSION, headers=headers)
    assert answer.status == 200
    assert set(json.loads(answer.body)["data"]) == {"version"}


def test_request_without_origin_passes(page: WebPage) -> None:
    assert page.graphql(VERSION, headers={"Origin": None}).status == 200


def test_json_with_charset_passes(page: WebPage) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    # Dagster looks for the small letters.
    assert page.graphql(VERSION, headers=headers).status == 400
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert page.graphql(VERSION, headers=headers).status == 200


def test_run_launched_from_page_is_queued(page: WebPage) -> None:
    before = page.runs()
    run = page.launch("one")
    assert set(page.runs()) - set(before) == {run}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": FOREIGN},
        {"Origin": "null"},
        {"Origin": f"http://{LOOPBACK}"},
        {"Origin": f"http://{LOOPBACK}:1"},
        {"Origin": ""},
        {"Origin": None, "Sec-Fetch-Site": "cross-site"},
        {"Origin": None, "Sec-Fetch-Site": "same-site"},
        {
            "Origin": None,
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
        },
    ],
)
def test_mutation_from_foreign_origin_is_denied(
    page: WebPage, headers: dict[str, str | None]
) -> None:
    before = page.runs()
    answer = page.graphql(LAUNCH, ONE_ASSET, headers)
    assert answer.status == 403
    assert "--host" in answer.text
    assert page.runs() == before


def test_origin_with_other_scheme_is_denied(page: WebPage) -> None:
    assert page.graphql(VERSION, headers={"Origin": f"https://{page.host}"}).status == 403


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "application/graphql",
        None,
    ],
)
def test_mutation_by_form_is_denied(page: WebPage, content_type: str | None) -> None:
    before = page.runs()
    answer = page.graphql(LAUNCH, ONE_ASSET, {"Origin": None, "Content-Type": content_type})
    assert answer.status == 415
    assert "application/json" in answer.text
    assert page.runs() == before


def test_mutation_in_form_address_is_denied(page: WebPage) -> None:
    before = page.runs()
    headers = {"Content-Type": "text/plain"}
    assert page.ask("POST", f"/graphql?query={quote(LAUNCH_INLINE)}", headers).status == 415
    assert page.runs() == before


@pytest.mark.parametrize("path", ["/graphql", "/graphql%0A", "//graphql", "/%67raphql"])
@pytest.mark.parametrize("headers", [{}, {"Origin": FOREIGN}, {"Sec-Fetch-Site": "cross-site"}])
def test_mutation_by_get_is_denied(
    page: WebPage, path: str, headers: dict[str, str | None]
) -> None:
    before = page.runs()
    answer = page.ask("GET", f"{path}?query={quote(LAUNCH_INLINE)}", headers)
    assert answer.status == (403 if headers else 405)
    assert page.runs() == before


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_denied(page: WebPage, method: str) -> None:
    assert page.ask(method, "/graphql").status == 405


def test_preflight_from_foreign_origin_allows_nothing(page: WebPage) -> None:
    wanted = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    answer = page.ask("OPTIONS", "/graphql", {"Origin": FOREIGN, **wanted})
    assert answer.status == 403
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "attacker.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1.attacker.example:{port}",
        "localhost.:{port}",
        "0.0.0.0:{port}",
        "data.example.com:{port}",
        "",
        None,
    ],
)
@pytest.mark.parametrize("path", ["/", "/graphql", "/server_info"])
def test_foreign_or_missing_host_is_denied(page: WebPage, host: str | None, path: str) -> None:
    named = None if host is None else host.format(port=page.port)
    answer = page.ask("GET", path, {"Host": named})
    assert answer.status == 421
    assert "--host" in answer.text


def test_foreign_host_as_origin_is_denied(page: WebPage) -> None:
    before = page.runs()
    host = f"attacker.example:{page.port}"
    headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert page.graphql(LAUNCH, ONE_ASSET, headers).status == 421
    assert page.runs() == before


def test_two_hosts_are_denied(page: WebPage) -> None:
    with socket.create_connection((LOOPBACK, page.port), timeout=SECONDS) as connection:
        request = f"GET / HTTP/1.1\r\nHost: {page.host}\r\nHost: attacker.example\r\n\r\n"
        connection.sendall(request.encode())
        assert connection.recv(12) in {b"HTTP/1.1 421", b"HTTP/1.1 400"}


def test_link_from_other_site_opens_page(page: WebPage) -> None:
    headers = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert page.ask("GET", "/assets/one?view=lineage", headers).status == 200


@pytest.mark.parametrize(
    ("mode", "kind"), [("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe")]
)
def test_other_site_cannot_embed_content(page: WebPage, mode: str, kind: str) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": kind}
    assert page.ask("GET", "/favicon.svg", headers).status == 403


def test_reported_events_need_json(page: WebPage) -> None:
    path = "/report_asset_materialization/reported"
    assert page.ask("POST", path).status == 415
    assert page.ask("POST", path, {"Content-Type": "text/plain"}).status == 415
    json_type = {"Content-Type": "application/json"}
    assert page.ask("POST", path, {**json_type, "Origin": FOREIGN}, b"{}").status == 403
    assert page.ask("POST", path, json_type, b"{}").status == 200


def test_same_origin_subscription_passes(page: WebPage) -> None:
    query = 'subscription { pipelineRunLogs(runId: "unknown") { __typename } }'
    message = subscribe(page, query, page.origin)
    failure = {"pipelineRunLogs": {"__typename": "PipelineRunLogsSubscriptionFailure"}}
    assert message == {"type": "data", "id": "1", "payload": {"data": failure}}


def test_mutation_by_websocket_launches_nothing(page: WebPage) -> None:
    before = page.runs()
    assert subscribe(page, LAUNCH_INLINE, page.origin)["type"] == "error"
    assert page.runs() == before


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        (FOREIGN, None, 403),
        ("null", None, 403),
        (f"http://{LOOPBACK}", None, 403),
        (None, None, 403),
        ("http://attacker.example:{port}", "attacker.example:{port}", 421),
        ("http://127.0.0.1:{port}", "attacker.example:{port}", 421),
    ],
)
def test_websocket_from_foreign_origin_is_denied(
    page: WebPage, origin: str | None, host: str | None, status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        open_socket(
            page,
            origin=origin and origin.format(port=page.port),
            host=host and host.format(port=page.port),
        )
    assert refused.value.response.status_code == status
    assert b"rigin" in refused.value.response.body or b"--host" in refused.value.response.body


def test_proxy_addresses_pass(page: WebPage) -> None:
    proxied = {"Host": PROXIED, "Origin": f"https://{PROXIED}"}
    tunnelled = {"Host": TUNNEL, "Origin": f"http://{TUNNEL}"}
    assert page.graphql(VERSION, headers=proxied).status == 200
    assert page.graphql(VERSION, headers=tunnelled).status == 200
    with open_socket(page, origin=f"https://{PROXIED}", host=PROXIED) as connection:
        assert connection.subprotocol == "graphql-ws"


def test_proxy_addresses_come_from_environment(read_only_page: WebPage) -> None:
    for origin in (f"https://{PROXIED}", f"http://{TUNNEL}"):
        headers = {"Host": origin.partition("://")[2], "Origin": origin}
        assert read_only_page.graphql(VERSION, headers=headers).status == 200


@pytest.mark.parametrize("origin", [f"http://{PROXIED}", f"http://{TUNNEL}", FOREIGN])
def test_proxy_name_does_not_admit_others(page: WebPage, origin: str) -> None:
    assert page.graphql(VERSION, headers={"Host": PROXIED, "Origin": origin}).status == 403


def test_read_only_page_changes_nothing(read_only_page: WebPage) -> None:
    assert read_only_page.ask("GET", "/").status == 200
    launched = read_only_page.data(LAUNCH, ONE_ASSET)["launchRun"]
    assert launched["__typename"] == "UnauthorizedError"
    headers = {"Content-Type": "application/json"}
    for kind in ("materialization", "check", "observation"):
        path = f"/report_asset_{kind}/one"
        assert read_only_page.ask("POST", path, headers, b"{}").status == 401
    assert read_only_page.ask("POST", "/of/a/later/release", headers, b"{}").status == 401
    assert read_only_page.runs() == {}


@pytest.mark.parametrize(
    ("told", "origin"),
    [
        ("data.example.com", "https://data.example.com"),
        ("Data.Example.com:8443", "https://data.example.com:8443"),
        ("https://data.example.com:443/", "https://data.example.com"),
        ("http://localhost:80", "http://localhost"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_parse_origin_returns_browser_origin(told: str, origin: str) -> None:
    assert parse_origin(told) == origin


@pytest.mark.parametrize(
    "told",
    [
        *("", "*", "*.example.com", "ftp://example.com", "https://", "example.com/path", "a b"),
        *("user@example.com", "example.com:port", "http://https://example.com", "a,b", "?"),
    ],
)
def test_parse_origin_of_invalid_address_raises(told: str) -> None:
    with raises(InvalidArgumentError, "invalid-location"):
        parse_origin(told)


def test_parse_origin_drops_default_port() -> None:
    assert get_loopback_origins(80) == {"http://127.0.0.1", "http://localhost", "http://[::1]"}


def test_reports_are_served_in_sandbox(
    read_only_page: WebPage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reports = next(tmp_path_factory.getbasetemp().glob("read_only*")) / "reports"
    (reports / "audit").mkdir(parents=True)
    page = reports / "audit" / "all of it.html"
    page.write_text("<title>audit</title>")
    (reports.parent / "secret.txt").write_text("secret")
    link = get_page_link(page, reports)
    assert link == "/reports/audit/all%20of%20it.html"
    answer = read_only_page.ask("GET", link)
    assert (answer.status, answer.text) == (200, "<title>audit</title>")
    policies = answer.headers.get_all("Content-Security-Policy") or []
    assert any(policy.startswith("sandbox allow-scripts") for policy in policies)
    assert any("frame-ancestors 'none'" in policy for policy in policies)
    for other in (
        "/reports/none.html",
        "/reports/",
        "/reports/../secret.txt",
        "/reports/..%2fsecret.txt",
    ):
        refused = read_only_page.ask("GET", other)
        assert "secret" not in refused.text
        assert refused.status == 404, other
    assert read_only_page.ask("GET", link, {"Host": "attacker.example"}).status == 421
