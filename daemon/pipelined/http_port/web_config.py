# SPDX-License-Identifier: Apache-2.0
"""`--web.config.file`: what the file may say about TLS, headers and passwords of the port.

The format is that of the Prometheus exporter-toolkit (docs/web-configuration.md there). What
pipelined cannot do as the file asks is refused by name; nothing is left out silently.

It is read node by node (`yaml_nodes`), because every message names the line and what to do.
jsonschema, pydantic and marshmallow check values, after PyYAML has dropped the lines; strictyaml
keeps lines, but refuses the flow style (`{alice: …}`) that files of other exporters may have. None
of them knows what to do about a value, which is most of what is written here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipelined.http_port.tls import CIPHER_SUITES, CURVES, TLS13_SUITES, VERSIONS
from pipelined.http_port.yaml_nodes import Material, Nodes

if TYPE_CHECKING:
    import yaml

__all__ = ["TlsSettings", "WebConfig", "read"]

_TLS_KEYS = (
    "cert",
    "key",
    "client_ca",
    "cert_file",
    "key_file",
    "client_ca_file",
    "client_auth_type",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
    "curve_preferences",
)
_SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
_HTTP_KEYS = ("http2", "headers")
#: What to do if the file cannot be read. Under systemd, `--check-config` as root reads what the
#: service may not.
_READABLE = (
    "--web.config.file names a YAML file that this user may read; the service is not root:"
    " docs/INSTALL.md, Private files"
)
#: Headers that may be set, and their values where only some make sense.
_HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
_VERIFIES = ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_DOES_NOT_VERIFY = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
#: Costs of bcrypt: each step doubles the time that a check takes.
_COSTS = range(4, 32)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """`tls_server_config`."""

    line: int
    certificate: Material
    key: Material
    client_ca: Material | None
    client_auth: str
    allowed_names: frozenset[str]
    min_version: str
    max_version: str
    cipher_suites: tuple[str, ...]
    prefer_server_cipher_suites: bool
    curve: str | None


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The content of a file; the certificates that it names are not read yet."""

    tls: TlsSettings | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    """User names and bcrypt hashes. Without any, everybody may see everything."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it names."""
        tls = self.tls
        named = (tls.certificate, tls.key, tls.client_ca) if tls else ()
        return tuple(one.path for one in named if one and one.path)

    @property
    def requires_authentication(self) -> bool:
        """Whether clients need a password or a certificate."""
        required = self.tls is not None and self.tls.client_auth == "RequireAndVerifyClientCert"
        return bool(self.users) or required


def read(path: Path) -> WebConfig:
    """The content of the file. Raises ConfigurationError with the line of what is wrong."""
    reader = _Reader(path)
    return reader.config(reader.root(_READABLE))


class _Reader(Nodes):
    """Makes a `WebConfig` of a file's nodes."""

    def config(self, root: yaml.Node | None) -> WebConfig:
        sections = self.mapping(root, "the file", _SECTIONS)
        if "rate_limit" in sections:
            raise self.wrong(
                sections["rate_limit"],
                "rate_limit is not supported",
                "take it out; a proxy in front can do it",
            )
        return WebConfig(
            tls=self._tls(sections.get("tls_server_config")),
            headers=self._http(sections.get("http_server_config")),
            users=self._users(sections.get("basic_auth_users")),
        )

    def _tls(self, node: yaml.Node | None) -> TlsSettings | None:
        keys = self.mapping(node, "tls_server_config", _TLS_KEYS)
        if not keys:
            return None
        assert node is not None
        certificate, key = self.material(keys, "cert"), self.material(keys, "key")
        for part, found in (("cert", certificate), ("key", key)):
            if found is None:
                raise self.wrong(
                    node,
                    f"tls_server_config has no {part}_file",
                    f"add {part}_file: server.{'crt' if part == 'cert' else 'key'}",
                )
        assert certificate and key
        client_ca = self.material(keys, "client_ca")
        client_auth = self._client_auth(keys, client_ca)
        names = self.texts(keys, "client_allowed_sans")
        if names and client_auth != "RequireAndVerifyClientCert":
            raise self.wrong(
                keys["client_allowed_sans"],
                "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert",
                "without it a client may come without a certificate",
            )
        low = self._choice(keys, "min_version", VERSIONS, "TLS12", ("TLS10", "TLS11"))
        high = self._choice(keys, "max_version", VERSIONS, "TLS13", ("TLS10", "TLS11"))
        if low > high:
            raise self.wrong(keys["max_version"], f"max_version {high} is below min_version {low}")
        suites = self.texts(keys, "cipher_suites")
        for name in suites:
            if name in TLS13_SUITES:
                raise self.wrong(
                    keys["cipher_suites"],
                    f"cipher_suites: {name} is of TLS 1.3, whose suites are always all offered",
                    "take it out",
                )
            self.known(keys["cipher_suites"], "cipher_suites", name, CIPHER_SUITES)
        curves = self.texts(keys, "curve_preferences")
        for name in curves:
            self.known(keys["curve_preferences"], "curve_preferences", name, CURVES)
        if len(curves) > 1:
            raise self.wrong(
                keys["curve_preferences"],
                "curve_preferences: Python takes one curve only",
                "keep the first, or leave it out: X25519 comes first then",
            )
        return TlsSettings(
            line=node.start_mark.line + 1,
            certificate=certificate,
            key=key,
            client_ca=client_ca,
            client_auth=client_auth,
            allowed_names=frozenset(_name(one) for one in names),
            min_version=low,
            max_version=high,
            cipher_suites=suites,
            prefer_server_cipher_suites=self.flag(keys, "prefer_server_cipher_suites", True),
            curve=curves[0] if curves else None,
        )

    def _client_auth(self, keys: Mapping[str, yaml.Node], ca: Material | None) -> str:
        kind = self.text(keys, "client_auth_type") or "NoClientCert"
        node = keys.get("client_auth_type")
        if kind in _DOES_NOT_VERIFY and node is not None:
            raise self.wrong(
                node,
                f"client_auth_type {kind} is not supported: Python verifies each certificate"
                " that it asks for",
                "write RequireAndVerifyClientCert, and client_ca_file",
            )
        if node is not None:
            self.known(node, "client_auth_type", kind, ("NoClientCert", *_VERIFIES))
        if kind == "VerifyClientCertIfGiven" and ca is None:
            return (
                "NoClientCert"  # nobody needs a certificate, and there is nothing to verify one by
            )
        if kind == "RequireAndVerifyClientCert" and ca is None:
            assert node is not None
            raise self.wrong(
                node,
                f"client_auth_type {kind} needs client_ca_file",
                "name the CA that signs your clients' certificates; none is taken from the system",
            )
        if ca is not None and kind == "NoClientCert":
            raise self.wrong(
                keys[ca.key],
                f"{ca.key} without client_auth_type",
                "write client_auth_type: RequireAndVerifyClientCert",
            )
        return kind

    def _http(self, node: yaml.Node | None) -> dict[str, str]:
        keys = self.mapping(node, "http_server_config", _HTTP_KEYS)
        if self.flag(keys, "http2", False):
            raise self.wrong(
                keys["http2"],
                "http2 is not supported: pipelined speaks HTTP/1.1",
                "write http2: false, or leave it out",
            )
        headers: dict[str, str] = {}
        found = self.mapping(keys.get("headers"), "headers", _HEADERS)
        for name, node in found.items():
            value = self.text(found, name)
            if not value:
                continue
            if _HEADERS[name] and value not in _HEADERS[name]:
                raise self.wrong(
                    node, f"{name} must be {' or '.join(_HEADERS[name])}, not {value!r}"
                )
            if not re.fullmatch(r"[\x20-\x7e]+", value):
                raise self.wrong(node, f"{name} must be one line of plain characters")
            headers[name] = value
        return headers

    def _users(self, node: yaml.Node | None) -> dict[str, str]:
        users: dict[str, str] = {}
        found = self.mapping(node, "basic_auth_users", None)
        for name, value in found.items():
            if not name or ":" in name:
                raise self.wrong(value, f"basic_auth_users: no user can be called {name!r}")
            hashed = self.text(found, name)
            match = re.fullmatch(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}", hashed)
            if match is None:
                raise self.wrong(
                    value,
                    f"basic_auth_users: what {name} has is no bcrypt hash",
                    "make one: pipelined hash-password",
                )
            if int(match[1]) not in _COSTS:
                raise self.wrong(
                    value,
                    f"basic_auth_users: the hash of {name} has cost {int(match[1])}",
                    f"bcrypt has costs of {_COSTS[0]} to {_COSTS[-1]}: pipelined hash-password",
                )
            users[name] = hashed
        return users

    def _choice(
        self,
        keys: Mapping[str, yaml.Node],
        name: str,
        known: Iterable[str],
        default: str,
        broken: Iterable[str],
    ) -> str:
        value = self.text(keys, name)
        if not value:
            return default
        if value in broken:
            raise self.wrong(
                keys[name], f"{name} {value} is refused: TLS below 1.2 is broken", "write TLS12"
            )
        self.known(keys[name], name, value, known)
        return value


def _name(name: str) -> str:
    """A name of a certificate as `tls.peer_names` writes it."""
    try:
        return ipaddress.ip_address(name).compressed
    except ValueError:
        return name
