# SPDX-License-Identifier: Apache-2.0
"""What the options accept, from a file and from flags, and the errors for what they do not."""

from __future__ import annotations

import dataclasses
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelined.config import (
    OPTIONS,
    Address,
    Config,
    Option,
    merge,
)
from pipelined.config.toml_file import load
from pipelined.config.values import address
from pipelined.errors import UserError
from pipelined.kernel import layout


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str | bytes) -> Path:
        path = tmp_path / "pipelined.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path}:", "FILE:").replace(str(path), "FILE")


# Defaults and the table


def test_defaults_are_those_of_the_documentation() -> None:
    config = Config()

    assert config.web_listen_address == Address("127.0.0.1", 9905)
    assert (config.metrics_max_series, config.sweep_interval, config.recent_runs) == (
        10_000,
        1.0,
        100,
    )
    assert (config.max_stages, config.max_pipes) == (16384, 16384)
    assert config.show_arguments is False
    assert config.object is None


def test_every_field_is_an_option_named_after_its_flag() -> None:
    assert [option.field for option in OPTIONS] == [f.name for f in dataclasses.fields(Config)]
    assert [option.flag for option in OPTIONS][:2] == ["--web.listen-address", "--log.level"]


each_option = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)


@each_option
def test_the_default_shown_in_help_is_the_default(option: Option) -> None:
    default = getattr(Config(), option.field)

    if option.is_switch:
        assert (option.default, default) in (("off", False), ("on", True))
    elif default is None:
        assert option.default == ""
    else:
        assert option.parse(option.default) == default


@each_option
def test_the_example_of_an_option_is_accepted_in_a_file(option: Option) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(f"{option.name} = {option.example}\n")
        file.flush()
        config = load(Path(file.name))

    value = tomllib.loads(f"x = {option.example}")["x"]
    assert getattr(config, option.field) == option.parse(value)


# Files


def test_a_file_says_the_same_things_as_the_flags(write) -> None:
    config = load(
        write(
            """
            metrics.max-series = 2000
            sweep-interval = "250ms"
            show-arguments = true
            wrappers = ["timeout", "retry"]
            object = "/opt/pipelined.bpf.o"
            [web]
            listen-address = "[::1]:0"
            [log]
            level = "warn"
            """
        )
    )

    assert config == merge(
        Config(),
        metrics_max_series="2000",
        sweep_interval="0.25",
        show_arguments=True,
        wrappers="timeout, retry",
        object="/opt/pipelined.bpf.o",
        web_listen_address="[::1]:0",
        log_level="warning",
    )


def test_an_empty_file_changes_nothing(write) -> None:
    assert load(write("# nothing yet\n")) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\n# a comment\nmax-stage = 5\n",
            "FILE:3: unknown key max-stage; did you mean max-stages?",
        ),
        (
            'max_pipes = 5\nrecent-runs = "x"\n',
            "FILE:1: unknown key max_pipes; did you mean max-pipes?",
        ),
        (
            'recent-runs = 1\nlisten-address = ":1"\n',
            "FILE:2: unknown key listen-address; did you mean listen-address under [web]?",
        ),
        (
            '[web]\nlistn-address = ":1"\n',
            "FILE:2: unknown key web.listn-address; did you mean listen-address under [web]?",
        ),
        (
            '[wbe]\nlisten-address = ":1"\n',
            "FILE:1: unknown table [wbe]; did you mean [web]?",
        ),
        ("log = 3\n", "FILE:1: log is a table, not a value; write [log] and the keys under it"),
        (
            "zzz = 1\n",
            "FILE:1: unknown key zzz; the keys are those of pipelined serve --help",
        ),
        (
            'max-stages = "many"\n',
            "FILE:1: max-stages must be a whole number from 1 to 262143, "
            'not "many"; for example max-stages = 16384',
        ),
        (
            "max-stages = true\n",
            "FILE:1: max-stages must be a whole number from 1 to 262143, "
            "not true; for example max-stages = 16384",
        ),
        (
            "max-pipes = 0\n",
            "FILE:1: max-pipes must be a whole number from 1 to 262143, "
            "not 0; for example max-pipes = 16384",
        ),
        (
            "show-arguments = 1\n",
            "FILE:1: show-arguments must be true or false, not 1; "
            "for example show-arguments = true",
        ),
        (
            'interpreters = [\n  "python",\n  "/usr/bin/perl",\n]\n',
            "FILE:1: interpreters must be a list of command names without paths, arguments or "
            'blanks, not ["python", "/usr/bin/perl"]; for example interpreters = '
            '["python", "perl"]',
        ),
        (
            'job-variables = ["MY JOB"]\n',
            "FILE:1: job-variables must be a list of names of environment variables, such as "
            'SLURM_JOB_NAME, not ["MY JOB"]; for example job-variables = '
            '["PIPELINED_JOB", "SLURM_JOB_NAME"]',
        ),
        (
            "job-variables = [[]]\n",
            "FILE:1: job-variables must be a list of names of environment variables, such as "
            "SLURM_JOB_NAME, not [[]]; for example job-variables = "
            '["PIPELINED_JOB", "SLURM_JOB_NAME"]',
        ),
        (
            '[log]\n\nlevel = "loud"\n',
            "FILE:3: log.level must be one of debug, info, warning, error, "
            'not "loud"; for example level = "info"',
        ),
        (
            'wrappers = [\n  "a",\n]\nsweep-interval = "1 fortnight"\n',
            "FILE:4: sweep-interval must be a duration from 0.05 to 60 seconds such as 500ms, "
            '1s or 2m, not "1 fortnight"; for example sweep-interval = "1s"',
        ),
        (
            'web.listen-address = "localhost"\n',
            "FILE:1: web.listen-address must be HOST:PORT, [IPV6]:PORT or :PORT, "
            'not "localhost"; for example listen-address = "127.0.0.1:9905"',
        ),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(text: str, message: str, write) -> None:
    assert refusal(write(text)) == message


@pytest.mark.parametrize("text", ["sweep-interval = 1s\n", "[log]\nlevel = info\n"])
def test_text_without_quotes_is_recognised(text: str, write) -> None:
    assert refusal(write(text)).endswith("; a value that is text needs quotes")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("max-pipes = 1\nmax-pipes =\n", "FILE:2:12: not TOML: invalid value"),
        ("max-pipes = 1\nmax-pipes = 2\n", "FILE:2:"),
        ('x = """\nnever closed\n', "FILE:2: not TOML: "),
        ("x = " + "[" * 5000, "FILE: not TOML: "),
        ("x = " + "1" * 5000, "FILE: not TOML: "),
        (b"max-pipes = 1\n# caf\xe9\n", "FILE:2: not UTF-8"),
    ],
)
def test_what_is_no_toml_is_named_with_its_line(text: str | bytes, start: str, write) -> None:
    assert refusal(write(text)).startswith(start)


def test_the_line_is_right_after_a_string_with_keys_in_it(write) -> None:
    text = 'object = """\nrecent-runs = -1\n"""\r\nrecent-runs = -1\n'

    assert refusal(write(text)).startswith("FILE:4: recent-runs must be ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.toml").startswith("cannot read FILE: no such file")
    assert refusal(tmp_path).startswith("cannot read FILE: is a directory")


@given(text=st.text())
def test_any_text_is_a_config_or_one_line_of_refusal(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        assert isinstance(load(path), Config)
    except UserError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("history = 1\n", "history must be true or false, not 1"),
        ("history-max-age = 30\n", "history-max-age must be an age from 1m to 3650d such as 12h"),
        ('history-max-age = "1s"\n', "history-max-age must be an age from 1m to 3650d"),
        ('history-max-size = "256"\n', "history-max-size must be a size of 1MB or more such as"),
        ('history-max-size = "2 cows"\n', "history-max-size must be a size of 1MB or more"),
        ("history-max-size = true\n", "history-max-size must be a size of 1MB or more"),
        ('state-directory = ""\n', "state-directory must be the path of a directory"),
    ],
)
def test_a_wrong_option_of_the_history_is_named(text: str, message: str, write) -> None:
    assert refusal(write(text)).startswith(f"FILE:1: {message}")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MB", 256_000_000),
        ("2GiB", 2 << 30),
        ("1500kB", 1_500_000),
        ("1000000", 1_000_000),
        ("1TB", 10**12),
    ],
)
def test_sizes_have_units(text: str, size: int, write) -> None:
    assert load(write(f'history-max-size = "{text}"\n')).history_max_size == size


def test_ages_have_units(write) -> None:
    assert load(write('history-max-age = "12h"\n')).history_max_age == 12 * 3600
    assert load(write('history-max-age = "30d"\n')).history_max_age == 30 * 86400


# Flags


def test_flags_win_over_the_file_and_flags_not_given_do_not(write) -> None:
    config = load(write("max-stages = 20\nrecent-runs = 7\n"))

    config = merge(config, max_stages=30, recent_runs=None)

    assert (config.max_stages, config.recent_runs) == (30, 7)


def test_a_wrong_flag_is_named() -> None:
    with pytest.raises(UserError, match=r"^--sweep-interval must be a duration .*, not soon; see"):
        merge(Config(), sweep_interval="soon")


def test_a_flag_that_does_not_exist_is_a_programming_error() -> None:
    with pytest.raises(KeyError):
        merge(Config(), nonsense=1)


# Addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9905", Address("127.0.0.1", 9905)),
        ("localhost:0", Address("localhost", 0)),
        (":9905", Address("0.0.0.0", 9905)),
        ("[::1]:9905", Address("::1", 9905)),
        ("[::]:65535", Address("::", 65535)),
    ],
)
def test_listen_addresses(text: str, expected: Address) -> None:
    assert address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9905",
        "::1:9905",
        "[::1]",
        "[::1]9905",
        "[localhost]:1",
        "h:65536",
        "h:-1",
        "h:x",
        "a b:1",
    ],
)
def test_what_is_no_listen_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^HOST:PORT, \[IPV6\]:PORT or :PORT"):
        address(text)
    with pytest.raises(UserError, match=r"^--web.listen-address must be HOST:PORT, \[IPV6\]:PORT"):
        merge(Config(), web_listen_address=text)


@pytest.mark.parametrize("text", ["127.0.0.1:9905", "[::1]:9905", "[fe80::1%eth0]:1"])
def test_an_address_reads_as_it_was_written(text: str) -> None:
    assert str(address(text)) == text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("", ()),
        ("A, B_1 ,A,", ("A", "B_1")),
        (["N" * 31, "PIPELINED_JOB"], ("N" * 31, "PIPELINED_JOB")),
        (["A", *"ABCDEFGH"], tuple("ABCDEFGH")),
    ],
)
def test_variables_of_jobs_are_a_list_without_doubles(given: object, kept: tuple[str, ...]) -> None:
    assert merge(Config(), job_variables=given).job_variables == kept


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("", ()),
        ("A", ("TRACEPARENT", "TRACESTATE", "A")),
        ("A,TRACESTATE,B", ("TRACEPARENT", "TRACESTATE", "A", "B")),
    ],
)
def test_a_trace_is_read_with_variables_of_instances(given: str, kept: tuple[str, ...]) -> None:
    assert merge(Config(), instance_variables=given).kept_variables == kept


def test_all_variables_that_may_be_named_have_room_in_the_kernel_side() -> None:
    most = ",".join(f"V{n}" for n in range(22))
    assert len(merge(Config(), instance_variables=most).kept_variables) == (
        layout.MAX_INSTANCE_VARIABLES
    )
    with pytest.raises(UserError, match="variables, at most 22, not"):
        merge(Config(), instance_variables=f"{most},V22")
    assert len(Config().kept_variables) <= layout.MAX_INSTANCE_VARIABLES


@pytest.mark.parametrize("name", ["", "two words", "a\nb", "x" * 254])
def test_the_name_of_a_host_is_one_word(name: str) -> None:
    with pytest.raises(UserError, match="--host-name must be the name of a host"):
        merge(Config(), host_name=name)


@pytest.mark.parametrize(
    ("given", "must"),
    [
        ("A=B", "variables, such as SLURM_JOB_NAME"),
        ("1A", "variables, such as SLURM_JOB_NAME"),
        ("N" * 32, "variables of at most 31 letters"),
        ("A,B,C,D,E,F,G,H,I", "variables, at most 8"),
    ],
)
def test_variables_that_the_kernel_side_has_no_room_for_are_refused(given: str, must: str) -> None:
    with pytest.raises(
        UserError, match=f"--job-variables must be a list of names of .*{must}, not"
    ):
        merge(Config(), job_variables=given)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("host1, *.example.org,host1", ("host1", "*.example.org")),
        (["*"], ("*",)),
        (["my_host.example.org."], ("my_host.example.org.",)),
    ],
)
def test_hosts_are_a_list_of_names(given: object, kept: tuple[str, ...]) -> None:
    assert merge(Config(), web_allowed_hosts=given).web_allowed_hosts == kept


@pytest.mark.parametrize(
    "given", ["http://host1", "host1:9905", "a*.org", "*.", "a.*", "host 1", [1], 1, "[::1]"]
)
def test_what_is_no_name_of_a_host_is_refused(given: object) -> None:
    with pytest.raises(UserError, match=r"--web\.allowed-hosts must be a list of host names, such"):
        merge(Config(), web_allowed_hosts=given)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("grep=1, diff=1,grep=1", ("grep=1", "diff=1")),
        (["rsync=24", "g++=255"], ("rsync=24", "g++=255")),
        ("", ()),
    ],
)
def test_exit_codes_that_are_no_failures(given: object, kept: tuple[str, ...]) -> None:
    assert merge(Config(), harmless_exits=given).harmless_exits == kept


@pytest.mark.parametrize("given", ["grep", "grep=0", "grep=256", "grep=x", "/bin/grep=1", [1], 7])
def test_a_wrong_exit_code_is_refused(given: object) -> None:
    with pytest.raises(UserError, match="such as grep=1"):
        merge(Config(), harmless_exits=given)
