# SPDX-License-Identifier: Apache-2.0
"""TLS of the port: the context that a configuration asks for, and connections that never block.

Names of versions, cipher suites and curves are those of Go, as in the files of other exporters.
What Python's ssl cannot do as asked is refused by name.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

__all__ = [
    "CIPHER_SUITES",
    "CURVES",
    "TLS13_SUITES",
    "VERSIONS",
    "TlsError",
    "Wanted",
    "client_context",
    "context_of",
    "expiry_of",
    "peer_names",
]

#: Versions that may be asked for. Older ones are broken.
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}

#: Cipher suites of TLS 1.2: Go's names, and OpenSSL's.
CIPHER_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
#: Those that are spoken if none are asked for, in OpenSSL's words. Python's own default has more,
#: without forward secrecy or with CBC.
_DEFAULT_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
#: Those of TLS 1.3, of which neither Go nor Python lets one choose.
TLS13_SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
#: Curves: Go's names, and OpenSSL's.
CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a context is made from; files already read."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None
    client_required: bool
    min_version: str
    max_version: str
    cipher_suites: tuple[str, ...]
    prefer_server_cipher_suites: bool
    curve: str | None


class TlsError(Exception):
    """What cannot be done. `part` is the key that it is about; the text is the reason."""

    def __init__(self, part: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.part = part
        self.reason = reason
        self.hint = hint


def context_of(wanted: Wanted) -> ssl.SSLContext:
    """A context for the server's side. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[wanted.min_version]
    context.maximum_version = VERSIONS[wanted.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if not wanted.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_certificate(context, wanted.certificate, wanted.key)
    context.set_ciphers(_DEFAULT_SUITES)
    if wanted.cipher_suites:
        _set_cipher_suites(context, wanted.cipher_suites)
    if wanted.curve is not None:
        try:
            context.set_ecdh_curve(CURVES[wanted.curve])
        except (ValueError, ssl.SSLError):
            raise TlsError(
                "curve_preferences",
                f"this host's Python cannot choose {wanted.curve}",
                "leave curve_preferences out: X25519 comes first then",
            ) from None
    if wanted.client_ca is not None:
        _trust(context, "client_ca", wanted.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if wanted.client_required else ssl.CERT_OPTIONAL
    return context


def client_context(
    *, ca: bytes, certificate: bytes, key: bytes, verify: bool = True
) -> ssl.SSLContext:
    """A context for a client's side, of PEM texts that may be empty. Raises TlsError.

    Without `ca` the system's are trusted. Without `verify` anybody is.
    """
    context = ssl.create_default_context()
    if ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _trust(context, "ca", ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate:
        _load_certificate(context, certificate, key)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _trust(context: ssl.SSLContext, part: str, ca: bytes) -> None:
    try:
        # Outside the certificates there may be comments in any encoding.
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):  # ValueError: nothing is left
        raise TlsError(part, "holds no certificate that can be read", _PEM) from None
    # As in Go, each certificate of the file is trusted for itself, not only self-signed ones.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


_PEM = "give it as PEM, which begins with -----BEGIN"


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise TlsError("cert", "holds no certificate", _PEM)
    if b"PRIVATE KEY-----" not in key:
        raise TlsError("key", "holds no private key", _PEM)

    def no_password() -> str:
        raise TlsError(
            "key", "is encrypted", "take the password off: openssl pkey -in KEY -out NEW"
        )

    try:
        # Python reads them from files only; these are in memory.
        with _in_memory(certificate) as certificate_file, _in_memory(key) as key_file:
            context.load_cert_chain(certificate_file, key_file, password=no_password)
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED", "KEY_TYPE_MISMATCH"):
            raise TlsError("key", "does not belong to the certificate", "give both anew") from None
        reason = error.reason or "it is no valid PEM"
        raise TlsError("cert", f"or its key cannot be read: {reason.lower()}", _PEM) from None


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """The path of a file with this content that is on no disk."""
    with open(os.memfd_create("pipelined", os.MFD_CLOEXEC), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _set_cipher_suites(context: ssl.SSLContext, names: Iterable[str]) -> None:
    for name in names:
        try:
            context.set_ciphers(CIPHER_SUITES[name])
        except ssl.SSLError:
            raise TlsError("cipher_suites", f"this host's OpenSSL has no {name}") from None
    context.set_ciphers(":".join(CIPHER_SUITES[name] for name in names))


def peer_names(certificate: dict[str, Any]) -> set[str]:
    """The subject alternative names of a peer's certificate: DNS, IP, e-mail, URI."""
    found = set()
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in ("DNS", "email", "URI"):
            found.add(value)
        elif kind == "IP Address":
            found.add(ipaddress.ip_address(value.strip()).compressed)
    return found


def expiry_of(pem: bytes) -> float:
    """When the first certificate of a PEM text stops being valid, as Unix time."""
    end = pem.index(b"-----END CERTIFICATE-----") + len(b"-----END CERTIFICATE-----")
    start = pem.index(b"-----BEGIN CERTIFICATE-----")
    der = ssl.PEM_cert_to_DER_cert(pem[start:end].decode("ascii"))
    # RFC 5280: Certificate{ tbs{ [0] version?, serial, algorithm, issuer, validity{ from, to } } }
    _, certificate = next(_parts(der))
    _, signed = next(_parts(certificate))
    parts = [content for tag, content in _parts(signed) if tag != 0xA0]
    _, (tag, to) = _parts(parts[3])
    text = to.decode("ascii")
    if tag == 0x17:  # UTCTime: years from 1950 on, in two digits
        text = ("19" if text[0] >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each part of a DER text."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        yield tag, der[at : at + length]
        at += length
