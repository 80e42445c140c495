# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of its own, in `directory`; `certificate` is what to trust.

    >>> ca = Authority(tmp_path / "ca")
    >>> ca.issue("server", "DNS:localhost", "IP:127.0.0.1").certificate
    PosixPath('…/ca/server.crt')
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.certificate = directory / "ca.crt"
        self._key = directory / "ca.key"
        _openssl(
            "req", "-x509", *_EC, "-keyout", self._key, "-out", self.certificate,
            "-days", "30", "-subj", "/CN=test authority",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip

    def issue(self, name: str, *names: str, days: int = 30) -> Pair:
        """A certificate with these subject alternative names; `days` below 0: it has expired."""
        pair = Pair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        request = self._directory / f"{name}.csr"
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(
            "basicConstraints=critical,CA:FALSE\nsubjectKeyIdentifier=hash\n"
            "authorityKeyIdentifier=keyid\n"
            + (f"subjectAltName={','.join(names)}\n" if names else "")
        )
        _openssl("req", "-new", *_EC, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
            "-out", pair.certificate, "-days", str(days), "-extfile", extensions,
        )  # fmt: skip
        return pair


_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
