# SPDX-License-Identifier: Apache-2.0
"""`pipelined hash-password`: what `basic_auth_users` in the file of `--web.config.file` takes."""

from __future__ import annotations

import sys

import click

from pipelined.errors import UserError

__all__ = ["hash_password"]


@click.command(
    "hash-password",
    epilog="""\b
Examples:
  pipelined hash-password
  openssl rand -base64 20 | tee password | pipelined hash-password

At a terminal it asks for the password, twice. Otherwise it takes the first line of its input.""",
)
@click.option(
    "--cost",
    type=click.IntRange(4, 31),
    default=10,
    show_default=True,
    help="Of bcrypt: each step doubles the time that a login takes.",
)
def hash_password(cost: int) -> None:
    """Print the bcrypt hash of a password, for basic_auth_users in --web.config.file."""
    import bcrypt

    from pipelined.http_port.basic_auth import PASSWORD_BYTES

    if sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        password = text.encode()
    else:
        password = sys.stdin.buffer.readline().rstrip(b"\r\n")
    if not password:
        raise UserError("the password is empty", "give it as the first line of the input")
    if b"\0" in password:
        raise UserError("the password has a byte 0, which bcrypt cannot take", "choose another")
    if len(password) > PASSWORD_BYTES:
        raise UserError(
            f"the password has {len(password)} bytes, and bcrypt takes {PASSWORD_BYTES}",
            "choose a shorter one",
        )
    click.echo(bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode())
