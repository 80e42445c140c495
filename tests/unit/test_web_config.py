# SPDX-License-Identifier: Apache-2.0
"""What --web.config.file may say, what it says when it is wrong, and how it is read again."""

from __future__ import annotations

import errno
import http.client
import io
import logging
import os
import queue
import re
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from flask import Flask

from certificates import Authority
from pipelined.config import Address, Config
from pipelined.daemon.serve import serve
from pipelined.errors import UserError
from pipelined.http_port import web_config_file
from pipelined.http_port.server import HttpServer
from pipelined.http_port.tls import CURVES, VERSIONS
from pipelined.http_port.web_config import (
    _HEADERS,
    _HTTP_KEYS,
    _SECTIONS,
    _TLS_KEYS,
    read,
)
from pipelined.http_port.web_config_file import WebConfigFile

#: Of "secret", at the lowest cost there is.
HASH = "$2b$04$DaBjQgOeu0eDKLYt5q9oy.g8mssJa8xMvg1IlljMVILn5oE3UOE2i"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.issue("server", "DNS:localhost", "IP:127.0.0.1")
    return authority


@pytest.fixture
def directory(ca: Authority, tmp_path: Path) -> Path:
    """Where the file is, with a certificate beside it."""
    for name in ("ca.crt", "server.crt", "server.key"):
        (tmp_path / name).write_bytes((ca.certificate.parent / name).read_bytes())
    return tmp_path


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / "web.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


def with_client_ca(name: str) -> str:
    """TLS whose clients may have a certificate of this CA file."""
    return f"{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: {name}\n"


def refusal(path: Path) -> str:
    """The one line that it is refused with; the file is FILE, its directory is left out."""
    with pytest.raises(UserError) as caught:
        WebConfigFile(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(path), "FILE").replace(f"{path.parent}/", "")


# -- what it may say


def test_an_empty_file_leaves_the_port_as_it_is(tmp_path: Path) -> None:
    config = read(write(tmp_path, "# nothing yet\n"))
    assert (config.tls, config.headers, config.users) == (None, {}, {})


def test_everything_that_can_be_had_is_taken(directory: Path) -> None:
    path = write(
        directory,
        f"""
tls_server_config:
  cert_file: server.crt
  key_file: {directory}/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus.example.org, "0:0::1"]
  min_version: TLS12
  max_version: TLS12
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
  curve_preferences: [CurveP384]
http_server_config:
  http2: false
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Frame-Options: deny
    X-XSS-Protection: ""
basic_auth_users:
  alice: {HASH}
  123: {HASH}
""",
    )
    config = read(path)
    assert config.tls is not None
    assert config.tls.certificate.path == directory / "server.crt"
    assert config.tls.client_auth == "RequireAndVerifyClientCert"
    assert config.tls.allowed_names == {"prometheus.example.org", "::1"}
    assert (config.tls.min_version, config.tls.max_version) == ("TLS12", "TLS12")
    assert config.tls.prefer_server_cipher_suites is False
    assert config.tls.curve == "CurveP384"
    assert config.headers == {
        "Strict-Transport-Security": "max-age=31536000",
        "X-Frame-Options": "deny",
    }
    assert config.users == {"alice": HASH, "123": HASH}
    assert WebConfigFile(path).tls


def test_what_is_not_said_is_as_elsewhere(directory: Path) -> None:
    tls = read(write(directory, TLS)).tls
    assert tls is not None
    assert (tls.min_version, tls.max_version) == ("TLS12", "TLS13")
    assert (tls.client_auth, tls.client_ca) == ("NoClientCert", None)
    assert tls.prefer_server_cipher_suites is True


@pytest.mark.parametrize("cost", [4, 18, 31])
def test_a_hash_of_any_cost_that_bcrypt_checks_is_taken(tmp_path: Path, cost: int) -> None:
    hashed = HASH.replace("$04$", f"${cost:02}$")
    assert read(write(tmp_path, f"basic_auth_users: {{bob: {hashed}}}\n")).users == {"bob": hashed}


def test_certificates_are_not_asked_for_if_there_is_nothing_to_verify_them_by(
    directory: Path,
) -> None:
    path = write(directory, f"{TLS}  client_auth_type: VerifyClientCertIfGiven\n")
    tls = read(path).tls
    assert tls is not None
    assert tls.client_auth == "NoClientCert"
    context, _ = WebConfigFile(path).tls_in_use()
    assert context.verify_mode is ssl.CERT_NONE


def test_the_exporter_toolkits_own_files_are_read(directory: Path) -> None:
    # Its tests have them as examples of good ones.
    for text in (
        f"{TLS}  client_auth_type: VerifyClientCertIfGiven\n"
        "  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]\n  max_version: TLS12\n"
        "http_server_config:\n  http2: false\n",
        f"{TLS}basic_auth_users:\n"
        "  alice: $2y$12$1DpfPeqF9HzHJt.EWswy1exHluGfbhnn3yXhR7Xes6m3WJqFg0Wby\n"
        "  bob: $2y$18$4VeFDzXIoPHKnKTU3O3GH.N.vZu06CVqczYZ8WvfzrddFU6tGqjR.\n",
    ):
        assert WebConfigFile(write(directory, text)).tls


def test_certificates_may_stand_in_the_file_itself(directory: Path) -> None:
    def inline(name: str) -> str:
        return (directory / name).read_text().replace("\n", "\n    ")

    path = write(
        directory,
        "tls_server_config:\n"
        f"  cert: |\n    {inline('server.crt')}\n"
        f"  key: |\n    {inline('server.key')}\n"
        f"  client_ca: |\n    {inline('ca.crt')}\n"
        "  client_auth_type: VerifyClientCertIfGiven\n",
    )
    assert WebConfigFile(path).tls


# -- what it says when the file is wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "basic_auth_user: {}\n",
            "FILE:1: unknown key basic_auth_user in the file; did you mean basic_auth_users?",
        ),
        (
            "tls_server_config:\n  cert_fil: a\n",
            "FILE:2: unknown key cert_fil in tls_server_config; did you mean cert_file?",
        ),
        (
            "http_server_config:\n  headers:\n    Server: x\n",
            "FILE:3: unknown key Server in headers; known: Content-Security-Policy,"
            " X-Frame-Options, X-Content-Type-Options, X-XSS-Protection,"
            " Strict-Transport-Security",
        ),
        (
            "http_server_config: {}\n\nhttp_server_config: {}\n",
            "FILE:3: http_server_config is given twice",
        ),
        ("- a list\n", "FILE:1: the file must be keys and values"),
        ("a: [\n", "FILE:2: not YAML: expected the node content, but found '<stream end>'"),
        ("a: b: c\n", "FILE:1: not YAML: mapping values are not allowed here"),
        ("[" * 1000, "FILE: not YAML: "),
        (
            "tls_server_config:\n\tcert_file: a\n",
            "FILE:2: not YAML: found character '\\t' that cannot start any token;"
            " indent with spaces",
        ),
        (b"# caf\xe9\n", "FILE:1: not UTF-8; save the file as UTF-8"),
        (
            "\nrate_limit: {interval: 1s, burst: 20}\n",
            "FILE:2: rate_limit is not supported; take it out; a proxy in front can do it",
        ),
        (
            "http_server_config:\n  http2: true\n",
            "FILE:2: http2 is not supported: pipelined speaks HTTP/1.1;"
            " write http2: false, or leave it out",
        ),
        (
            "http_server_config:\n  http2: perhaps\n",
            "FILE:2: http2 must be true or false",
        ),
        (
            "http_server_config:\n  headers:\n    X-Frame-Options: never\n",
            "FILE:3: X-Frame-Options must be deny or sameorigin, not 'never'",
        ),
        (
            'http_server_config:\n  headers:\n    X-XSS-Protection: "0\\nSet-Cookie: a"\n',
            "FILE:3: X-XSS-Protection must be one line of plain characters",
        ),
        (
            "basic_auth_users:\n  alice: secret\n",
            "FILE:2: basic_auth_users: what alice has is no bcrypt hash;"
            " make one: pipelined hash-password",
        ),
        (
            f"basic_auth_users:\n  alice: {HASH.replace('$04$', '$32$')}\n",
            "FILE:2: basic_auth_users: the hash of alice has cost 32;"
            " bcrypt has costs of 4 to 31: pipelined hash-password",
        ),
        (
            f'basic_auth_users:\n  "a:b": {HASH}\n',
            "FILE:2: basic_auth_users: no user can be called 'a:b'",
        ),
        (
            "basic_auth_users:\n  alice: [x]\n",
            "FILE:2: alice must be a text",
        ),
        (
            "tls_server_config:\n  min_version: TLS13\n",
            "FILE:2: tls_server_config has no cert_file; add cert_file: server.crt",
        ),
        (
            "tls_server_config:\n  cert_file: server.crt\n",
            "FILE:2: tls_server_config has no key_file; add key_file: server.key",
        ),
        (
            "tls_server_config:\n  cert_file: lost.crt\n  key_file: server.key\n",
            "FILE:2: cannot read cert_file lost.crt: no such file or directory;"
            " a path that does not begin with / begins where this file is",
        ),
        (f"{TLS}  cert: abc\n", "FILE:4: cert and cert_file are both given; keep one"),
        (
            "tls_server_config:\n  cert_file: server.key\n  key_file: server.key\n",
            "FILE:2: cert_file server.key: holds no certificate;"
            " give it as PEM, which begins with -----BEGIN",
        ),
        (
            "tls_server_config:\n  cert_file: server.crt\n  key_file: server.crt\n",
            "FILE:3: key_file server.crt: holds no private key;"
            " give it as PEM, which begins with -----BEGIN",
        ),
        (
            "tls_server_config:\n  cert_file: ca.crt\n  key_file: server.key\n",
            "FILE:3: key_file server.key: does not belong to the certificate; give both anew",
        ),
        (
            f"{TLS}  min_version: TLS11\n",
            "FILE:4: min_version TLS11 is refused: TLS below 1.2 is broken; write TLS12",
        ),
        (
            f"{TLS}  max_version: TLS10\n",
            "FILE:4: max_version TLS10 is refused: TLS below 1.2 is broken; write TLS12",
        ),
        (
            f"{TLS}  min_version: TLS1.3\n",
            "FILE:4: min_version: there is no TLS1.3; did you mean TLS13?",
        ),
        (
            f"{TLS}  min_version: TLS13\n  max_version: TLS12\n",
            "FILE:5: max_version TLS12 is below min_version TLS13",
        ),
        (
            f"{TLS}  cipher_suites: [TLS_AES_128_GCM_SHA256]\n",
            "FILE:4: cipher_suites: TLS_AES_128_GCM_SHA256 is of TLS 1.3, whose suites are always"
            " all offered; take it out",
        ),
        (
            f"{TLS}  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA255]\n",
            "FILE:4: cipher_suites: there is no TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA255;"
            " did you mean TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256?",
        ),
        (f"{TLS}  cipher_suites: all\n", "FILE:4: cipher_suites must be a list of texts"),
        (
            f"{TLS}  curve_preferences: [CurveP256, CurveP384]\n",
            "FILE:4: curve_preferences: Python takes one curve only;"
            " keep the first, or leave it out: X25519 comes first then",
        ),
        (
            f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n",
            "FILE:4: client_auth_type RequireAndVerifyClientCert needs client_ca_file;"
            " name the CA that signs your clients' certificates; none is taken from the system",
        ),
        (
            f"{TLS}  client_auth_type: RequireAnyClientCert\n",
            "FILE:4: client_auth_type RequireAnyClientCert is not supported: Python verifies each"
            " certificate that it asks for; write RequireAndVerifyClientCert, and client_ca_file",
        ),
        (
            f"{TLS}  client_ca_file: ca.crt\n",
            "FILE:4: client_ca_file without client_auth_type;"
            " write client_auth_type: RequireAndVerifyClientCert",
        ),
        (
            f"{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: server.key\n",
            "FILE:5: client_ca_file server.key: holds no certificate that can be read;"
            " give it as PEM, which begins with -----BEGIN",
        ),
        (
            f"{TLS}  client_allowed_sans: [a]\n",
            "FILE:4: client_allowed_sans needs client_auth_type RequireAndVerifyClientCert;"
            " without it a client may come without a certificate",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_line_and_what_to_do(
    text: str | bytes, message: str, directory: Path
) -> None:
    assert refusal(write(directory, text)).startswith(message)


@pytest.mark.parametrize("content", [b"", b"caf\xc3\xa9\n", b"\xff"])
def test_a_client_ca_file_without_a_certificate_is_refused(directory: Path, content: bytes) -> None:
    (directory / "clients.crt").write_bytes(content)
    path = write(directory, with_client_ca("clients.crt"))
    assert refusal(path).startswith(
        "FILE:5: client_ca_file clients.crt: holds no certificate that can be read;"
    )


def test_comments_in_a_client_ca_file_may_have_any_characters(directory: Path) -> None:
    content = b"# caf\xc3\xa9, \xff\n" + (directory / "ca.crt").read_bytes()
    (directory / "clients.crt").write_bytes(content)
    context, _ = WebConfigFile(write(directory, with_client_ca("clients.crt"))).tls_in_use()
    assert len(context.get_ca_certs()) == 1


def test_unless_others_are_asked_for_every_suite_has_forward_secrecy_and_seals(
    directory: Path,
) -> None:
    context, _ = WebConfigFile(write(directory, TLS)).tls_in_use()
    suites = [suite for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    assert suites
    assert all(suite["name"].startswith("ECDHE-") and suite["aead"] for suite in suites), suites


@pytest.mark.parametrize("key", ["X25519", "CurveP521"])
def test_a_curve_is_had_or_refused_by_name(key: str, directory: Path) -> None:
    path = write(directory, f"{TLS}  curve_preferences: [{key}]\n")
    try:
        assert WebConfigFile(path).tls
    except UserError as error:
        assert key in str(error)
        assert key == "X25519"  # old OpenSSLs cannot choose it


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "SECURITY.md").read_text()
    named = set(re.findall(r"`([\w-]+)`", page))
    known = {*_SECTIONS, *_TLS_KEYS, *_HTTP_KEYS, *_HEADERS, *CURVES, *VERSIONS}
    assert known <= named


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "web.yml") == (
        "cannot read FILE: no such file or directory;"
        " --web.config.file names a YAML file that this user may read; the service is not root:"
        " docs/INSTALL.md, Private files"
    )


def test_a_key_that_this_user_may_not_read_has_a_hint_about_that(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_to_read(monkeypatch, "server.key", errno.EACCES)
    assert refusal(write(directory, TLS)) == (
        "FILE:3: cannot read key_file server.key: permission denied; let this user read it,"
        " as docs/INSTALL.md (private files) does for the service"
    )


def test_a_key_with_a_password_is_refused_not_asked_for(ca: Authority, directory: Path) -> None:
    subprocess.run(
        ["openssl", "pkey", "-in", directory / "server.key", "-aes256", "-passout", "pass:x",
         "-out", directory / "locked.key"],
        check=True,
    )  # fmt: skip
    path = write(directory, TLS.replace("server.key", "locked.key"))
    assert refusal(path).startswith("FILE:3: key_file locked.key: is encrypted; take the password")


def test_an_expired_certificate_is_a_warning_with_what_to_do(
    ca: Authority, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = ca.issue("old", "DNS:localhost", days=-1)
    path = write(
        directory, f"tls_server_config:\n  cert_file: {old.certificate}\n  key_file: {old.key}\n"
    )
    file = WebConfigFile(path)
    assert file.certificate_expiry is not None
    assert file.certificate_expiry < time.time()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "expired on 20" in record.getMessage()
    assert f"openssl x509 -noout -enddate -in {old.certificate}" in record.getMessage()


def test_a_certificate_that_holds_is_no_warning(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = WebConfigFile(write(directory, TLS))
    assert file.certificate_expiry is not None
    assert 29 * 86400 < file.certificate_expiry - time.time() <= 30 * 86400
    assert caplog.records == []


def test_passwords_without_tls_are_a_warning_where_other_hosts_reach_the_port(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = f"basic_auth_users:\n  alice: {HASH}\n"
    path = write(directory, users)
    WebConfigFile(path)
    assert caplog.records == []
    WebConfigFile(path, exposed_at=Address("192.0.2.1", 9905))
    (record,) = caplog.records
    assert "passwords and no tls_server_config" in record.getMessage()
    assert "to 192.0.2.1:9905 reads them" in record.getMessage()
    caplog.clear()
    WebConfigFile(write(directory, TLS + users), exposed_at=Address("192.0.2.1", 9905))
    assert caplog.records == []


# -- reading it again


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def users(file: WebConfigFile) -> set[str]:
    return set(file.current()[0].users)


def newer(path: Path, text: str) -> None:
    """Write it so that it is seen to have changed, however coarse the clock of the disk is."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_a_changed_file_holds_within_a_second_of_use(tmp_path: Path, clock: Clock) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    newer(path, f"basic_auth_users: {{bob: {HASH}}}\n")
    clock.now += 0.5
    assert users(file) == {"alice"}
    clock.now += 0.6
    assert users(file) == {"bob"}


def test_reload_does_not_wait(tmp_path: Path, clock: Clock) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    path.write_text(f"basic_auth_users: {{bob: {HASH}}}\n")
    file.reload()
    assert users(file) == {"bob"}


def test_a_wrong_file_changes_nothing_and_is_logged_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock, wall_clock=lambda: 1_700_000_000.0)
    newer(path, "basic_auth_users: {alice: oops}\n")
    for _ in range(3):
        clock.now += 2
        assert users(file) == {"alice"}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        f"{path}:1: basic_auth_users: what alice has is no bcrypt hash; make one: pipelined"
        " hash-password; what was read before stays in use"
    )
    assert file.last_reload_successful is False
    assert file.last_reload_success_time == 1_700_000_000.0


def test_reload_raises_what_is_wrong_and_keeps_what_was(tmp_path: Path) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path)
    path.unlink()
    with pytest.raises(UserError, match="cannot read"):
        file.reload()
    assert users(file) == {"alice"}
    assert file.last_reload_successful is False


def test_a_corrected_file_holds_again(tmp_path: Path, clock: Clock) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    path.unlink()
    clock.now += 2
    assert users(file) == {"alice"}
    path.write_text(f"basic_auth_users: {{bob: {HASH}}}\n")
    clock.now += 2
    assert users(file) == {"bob"}
    assert file.last_reload_successful is True


def fail_to_read(monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    """Reading the files with this name fails from now on."""
    read_bytes = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.name == name:
            raise OSError(code, os.strerror(code))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", fail)


@pytest.mark.parametrize(
    ("name", "code"),
    [("web.yml", errno.EMFILE), ("server.key", errno.EIO), ("ca.crt", errno.ESTALE)],
)
def test_a_file_that_cannot_be_read_for_a_while_is_tried_again_and_logged_once(
    directory: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    code: int,
) -> None:
    path = write(directory, with_client_ca("ca.crt") + f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    newer(path, path.read_text().replace("alice", "bob"))
    with monkeypatch.context() as failing:
        fail_to_read(failing, name, code)
        for _ in range(3):
            clock.now += 2
            assert users(file) == {"alice"}
    assert file.last_reload_successful is False
    (record,) = caplog.records
    assert os.strerror(code).lower() in record.getMessage()
    clock.now += 2
    assert users(file) == {"bob"}
    assert file.last_reload_successful is True


def test_a_change_of_permissions_is_noticed(
    directory: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = WebConfigFile(write(directory, TLS), clock=clock)
    fail_to_read(monkeypatch, "server.key", errno.EACCES)
    key = directory / "server.key"
    before = key.stat().st_ctime_ns
    while key.stat().st_ctime_ns == before:  # the clock of the disk is coarse
        key.chmod(0o640)
    clock.now += 2
    file.current()
    assert file.last_reload_successful is False


def test_what_a_hangup_found_wrong_is_not_logged_again(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    path.write_text("basic_auth_users: {alice: oops}\n")
    with pytest.raises(UserError):
        file.reload()
    clock.now += 2
    assert users(file) == {"alice"}
    assert caplog.records == []


def test_a_failure_that_nobody_expects_changes_nothing_and_is_one_line(
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    newer(path, f"basic_auth_users: {{bob: {HASH}}}\n")
    with monkeypatch.context() as failing:
        failing.setattr(web_config_file, "read", fail_oddly)
        for _ in range(3):
            clock.now += 2
            assert users(file) == {"alice"}
        with pytest.raises(UserError, match="odd"):
            file.reload()
    assert file.last_reload_successful is False
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (f"{path}: TypeError('odd'); what was read before stays in use")
    assert record.exc_info is None
    clock.now += 2
    assert users(file) == {"bob"}


def fail_oddly(path: Path) -> NoReturn:
    raise TypeError("odd")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [(TLS, "", "TLS cannot be switched off"), ("", TLS, "TLS cannot be switched on")],
)
def test_tls_stays_as_it_was_at_the_start(
    before: str, after: str, message: str, directory: Path
) -> None:
    path = write(directory, before)
    file = WebConfigFile(path)
    path.write_text(after)
    with pytest.raises(UserError, match=f"{message} while pipelined runs; restart it"):
        file.reload()
    assert file.tls == bool(before)


def test_a_new_certificate_holds_for_the_next_connection(
    ca: Authority, directory: Path, clock: Clock
) -> None:
    file = WebConfigFile(write(directory, TLS), clock=clock)
    with HttpServer(Flask("x"), "127.0.0.1", 0, file) as server:

        def serial() -> str:
            pem = ssl.get_server_certificate(("127.0.0.1", server.port), timeout=20)
            return pem

        first = serial()
        new = ca.issue("new", "DNS:localhost")
        newer(directory / "server.crt", new.certificate.read_text())
        newer(directory / "server.key", new.key.read_text())
        assert serial() == first
        clock.now += 2
        assert serial() != first


def test_a_change_of_certificates_forgets_no_login(directory: Path, clock: Clock) -> None:
    path = write(directory, f"{TLS}basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    before = file.current()[1]
    (directory / "server.crt").touch()
    file.reload()
    assert file.current()[1] is before


def test_a_change_of_users_forgets_every_login(tmp_path: Path) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    file = WebConfigFile(path)
    before = file.current()[1]
    path.write_text(f"basic_auth_users: {{alice: {HASH}, bob: {HASH}}}\n")
    file.reload()
    assert file.current()[1] is not before


# -- TLS, on a server


@pytest.fixture
def server(request: pytest.FixtureRequest, directory: Path) -> Iterator[HttpServer]:
    """Serves "here" with the TLS options that the test gives."""
    app = Flask("here")
    app.add_url_rule("/", view_func=lambda: "here")
    path = write(directory, TLS + request.param)
    with HttpServer(app, "127.0.0.1", 0, WebConfigFile(path)) as running:
        yield running


with_tls = pytest.mark.parametrize("server", [""], indirect=True)
with_client_certificates = pytest.mark.parametrize(
    "server",
    ["  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"],
    indirect=True,
)
with_names = pytest.mark.parametrize(
    "server",
    [
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
        "  client_allowed_sans: [prometheus.example.org, '::1']\n"
    ],
    indirect=True,
)


def client(ca: Authority, **settings: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca.certificate))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as from Python 3.13 on
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def get(server: HttpServer, context: ssl.SSLContext) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@with_tls
def test_a_client_that_knows_the_ca_is_answered(server: HttpServer, ca: Authority) -> None:
    assert server.url.startswith("https://")
    assert get(server, client(ca)) == (200, b"here")


@with_tls
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_1_1_is_refused(server: HttpServer, ca: Authority) -> None:
    old = client(ca, minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        get(server, old)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@with_tls
def test_tls_1_2_and_1_3_are_spoken(
    server: HttpServer, ca: Authority, version: ssl.TLSVersion
) -> None:
    only = client(ca)
    only.minimum_version = only.maximum_version = version
    assert get(server, only)[0] == 200


@pytest.mark.parametrize("server", ["  min_version: TLS13\n"], indirect=True)
def test_min_version_is_the_least_spoken(server: HttpServer, ca: Authority) -> None:
    with pytest.raises(ssl.SSLError):
        get(server, client(ca, maximum_version=ssl.TLSVersion.TLSv1_2))
    assert get(server, client(ca))[0] == 200


@pytest.mark.parametrize(
    "server",
    ["  cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\n  max_version: TLS12\n"],
    indirect=True,
)
def test_only_the_cipher_suites_of_the_list_are_spoken(server: HttpServer, ca: Authority) -> None:
    other = client(ca)
    other.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    with pytest.raises(ssl.SSLError):
        get(server, other)
    assert get(server, client(ca))[0] == 200


@with_client_certificates
def test_a_client_certificate_of_the_ca_is_let_in(server: HttpServer, ca: Authority) -> None:
    pair = ca.issue("client", "DNS:anybody")
    context = client(ca)
    context.load_cert_chain(pair.certificate, pair.key)
    assert get(server, context)[0] == 200


#: With TLS 1.3 the client hears of it only when it reads.
REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)


@with_client_certificates
def test_no_client_certificate_is_no_connection(server: HttpServer, ca: Authority) -> None:
    with pytest.raises(REFUSED):
        get(server, client(ca))


@with_client_certificates
def test_a_client_certificate_of_another_ca_is_no_connection(
    server: HttpServer, ca: Authority, tmp_path: Path
) -> None:
    pair = Authority(tmp_path / "other").issue("client")
    context = client(ca)
    context.load_cert_chain(pair.certificate, pair.key)
    with pytest.raises(REFUSED):
        get(server, context)


@pytest.mark.parametrize("name", ["DNS:prometheus.example.org", "IP:::1"])
@with_names
def test_a_client_certificate_with_an_allowed_name_is_let_in(
    server: HttpServer, ca: Authority, name: str
) -> None:
    pair = ca.issue("named", name, "DNS:more")
    context = client(ca)
    context.load_cert_chain(pair.certificate, pair.key)
    assert get(server, context)[0] == 200


@with_names
def test_a_client_certificate_without_an_allowed_name_is_no_connection(
    server: HttpServer, ca: Authority
) -> None:
    pair = ca.issue("unnamed", "DNS:prometheus.example.org.evil", "URI:prometheus.example.org/")
    context = client(ca)
    context.load_cert_chain(pair.certificate, pair.key)
    with pytest.raises(REFUSED):
        get(server, context)


@with_tls
def test_plain_http_is_answered_that_this_is_tls(server: HttpServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == 400
    assert answer.read() == b"Client sent an HTTP request to an HTTPS server.\n"
    connection.close()


# -- in the daemon


def test_a_wrong_file_fails_before_anything_is_attached(tmp_path: Path) -> None:
    def never(config: Config) -> Any:
        raise AssertionError("opened")

    path = write(tmp_path, "basic_auth_users: {alice: oops}\n")
    with pytest.raises(UserError, match="is no bcrypt hash"):
        serve(daemon_config(path), io.StringIO(), open_observer=never)


def test_the_password_is_asked_for_while_hooks_are_still_being_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: queue.Queue[HttpServer] = queue.Queue()
    start = HttpServer.start

    def note(server: HttpServer) -> None:
        start(server)
        started.put(server)

    def open_slowly(config: Config) -> Any:
        url = started.get(timeout=20).url
        for path in ("/healthz", "/metrics", "/nothing"):
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                urllib.request.urlopen(url + path[1:], timeout=20)
            refused.value.close()
        raise UserError("enough")

    monkeypatch.setattr(HttpServer, "start", note)
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}\n")
    with pytest.raises(UserError, match="enough"):
        serve(daemon_config(path), io.StringIO(), open_observer=open_slowly)


def daemon_config(path: Path) -> Config:
    return Config(web_listen_address=Address("127.0.0.1", 0), web_config_file=path, history=False)
