# SPDX-License-Identifier: Apache-2.0
"""A YAML file read node by node, so that every error names the line that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from pipelined.errors import ConfigurationError, nearest, why

__all__ = ["Material", "Nodes"]

_LET_IT_READ = "let this user read it, as docs/INSTALL.md (private files) does for the service"


@dataclass(frozen=True, slots=True)
class Material:
    """A certificate, a key, a list of CAs or a password: a file, or the text itself."""

    key: str
    """What it is called in the file."""
    line: int
    path: Path | None
    text: str

    def read(self, config: Path) -> bytes:
        """What it holds: PEM, or a password. Raises ConfigurationError."""
        if self.path is None:
            return self.text.encode()
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"{config}:{self.line}: cannot read {self.key} {self.path}: {why(error)}",
                _LET_IT_READ
                if isinstance(error, PermissionError)
                else "a path that does not begin with / begins where this file is",
            ) from None


class Nodes:
    """One file. Each method raises ConfigurationError with the line of what is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def root(self, hint: str) -> yaml.Node | None:
        """The node of the whole file; `hint` is for a file that cannot be read."""
        path = self.path
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {why(error)}", hint) from None
        try:
            return yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ConfigurationError(
                f"{path}:{line}: not UTF-8", "save the file as UTF-8"
            ) from None
        except yaml.MarkedYAMLError as error:
            at = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
            reason = error.problem or error.context or ""
            raise ConfigurationError(
                f"{path}{at}: not YAML: {reason}", "indent with spaces" if "'\\t'" in reason else ""
            ) from None
        except (yaml.YAMLError, RecursionError) as error:
            raise ConfigurationError(f"{path}: not YAML: {' '.join(str(error).split())}") from None

    def wrong(self, node: yaml.Node, message: str, hint: str = "") -> ConfigurationError:
        """The error to raise about `node`."""
        return ConfigurationError(f"{self.path}:{node.start_mark.line + 1}: {message}", hint)

    def mapping(
        self, node: yaml.Node | None, where: str, known: Iterable[str] | None
    ) -> dict[str, yaml.Node]:
        """Keys, all of them known, and their nodes; keys without a value are left out."""
        if node is None or _is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise self.wrong(node, f"{where} must be keys and values")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if known is not None and name not in known:
                raise self.wrong(key, f"unknown key {name} in {where}", nearest(name, known))
            if name in found:
                raise self.wrong(key, f"{name} is given twice")
            found[name] = value
        if known is None:
            return found
        return {name: value for name, value in found.items() if not _is_null(value)}

    def text(self, keys: Mapping[str, yaml.Node], name: str) -> str:
        """The text of a key; empty if it is not there."""
        node = keys.get(name)
        if node is None or _is_null(node):
            return ""
        if not isinstance(node, yaml.ScalarNode):
            raise self.wrong(node, f"{name} must be a text")
        return str(node.value)

    def texts(self, keys: Mapping[str, yaml.Node], name: str) -> tuple[str, ...]:
        """The texts of a key; none if it is not there."""
        node = keys.get(name)
        if node is None:
            return ()
        if isinstance(node, yaml.SequenceNode) and all(
            isinstance(one, yaml.ScalarNode) for one in node.value
        ):
            return tuple(one.value for one in node.value)
        raise self.wrong(node, f"{name} must be a list of texts")

    def flag(self, keys: Mapping[str, yaml.Node], name: str, default: bool) -> bool:
        """Whether a key is true; `default` if it is not there."""
        node = keys.get(name)
        if node is None:
            return default
        if node.tag != "tag:yaml.org,2002:bool":
            raise self.wrong(node, f"{name} must be true or false")
        return node.value.lower() in ("true", "yes", "on")

    def known(self, node: yaml.Node, name: str, value: str, known: Iterable[str]) -> None:
        """Nothing, if `value` is one of `known`."""
        if value not in known:
            raise self.wrong(node, f"{name}: there is no {value}", nearest(value, known))

    def material(self, keys: Mapping[str, yaml.Node], name: str) -> Material | None:
        """What the key `name` holds, or the file that `name`_file names."""
        text, file = self.text(keys, name), self.text(keys, f"{name}_file")
        if text and file:
            raise self.wrong(keys[name], f"{name} and {name}_file are both given", "keep one")
        if "\0" in file:
            raise self.wrong(keys[f"{name}_file"], f"{name}_file must be the path of a file")
        if file:
            line = keys[f"{name}_file"].start_mark.line + 1
            return Material(f"{name}_file", line, self.path.parent / file, "")
        if text:
            return Material(name, keys[name].start_mark.line + 1, None, text)
        return None


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")
