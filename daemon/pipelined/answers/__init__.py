# SPDX-License-Identifier: Apache-2.0
"""What the API and every `--json` answer with, as types: the one description of each key.

A class is an object, the string below a key its meaning. The functions that build the answers
return these types, so mypy finds a key that is missing on either side; `web/schema.json` (JSON
Schema) and the tables of docs/API.md are made of them by ``make api``. Keys are only ever added.
"""
