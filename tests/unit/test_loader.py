# SPDX-License-Identifier: Apache-2.0
"""Which optional programs a loader goes without, which loader comes next, and that it ends."""

from __future__ import annotations

import ctypes
import errno
import logging
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelined.errors import NotPermittedError, UserError
from pipelined.kernel import bcc_compiler, bcc_loader, hooks, libbpf, libbpf_loader, loader
from pipelined.kernel.bcc_loader import BccPrograms
from pipelined.kernel.hooks import Program
from pipelined.kernel.libbpf import FORBIDDEN, REFUSED, Libbpf, failure, line_that_matters, verdict
from pipelined.kernel.libbpf_loader import LibbpfPrograms


def wanted_programs(**tiers: bool) -> tuple[dict[str, Program], dict[str, tuple[Program, str]]]:
    """The optional programs of the `functions` tier, unless other tiers are given."""
    given = {"functions": True, "readahead": False, "trace_exec_failures": False} | tiers
    return hooks.optional_programs(**given)


@pytest.mark.parametrize("trace_exec_failures", [False, True])
@pytest.mark.parametrize("functions", [False, True])
@pytest.mark.parametrize("readahead", [False, True])
@pytest.mark.parametrize("kprobes", [False, True])
def test_where_every_optional_program_is_forbidden_libbpf_tries_none_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trace_exec_failures: bool,
    functions: bool,
    readahead: bool,
    kprobes: bool,
) -> None:
    tried: list[frozenset[str]] = []

    def refuse(self: object, programs: Mapping[str, Any], sizes: object = None) -> None:
        if programs == hooks.REQUIRED:
            return
        assert frozenset(programs) not in tried, "tried before, in vain"
        tried.append(frozenset(programs))
        raise libbpf_loader._OptionalRefused("on_switch", "not permitted", forbidden=True)

    monkeypatch.setattr(LibbpfPrograms, "_load", refuse)
    monkeypatch.setattr(hooks, "_KPROBES", tmp_path if kprobes else tmp_path / "none")
    built = tmp_path / "pipelined.bpf.o"
    built.touch()
    wanted, _ = hooks.optional_programs(
        trace_exec_failures=trace_exec_failures, functions=functions, readahead=readahead
    )
    loaded, refused = just_required(built).load_optional(wanted)
    assert (loaded, refused.keys()) == ({}, wanted.keys())


def test_where_a_required_program_is_forbidden_libbpf_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Mapping[str, Any]] = []

    def refuse(self: object, programs: Mapping[str, Any], sizes: object = None) -> None:
        tried.append(programs)
        raise UserError("not permitted")

    monkeypatch.setattr(LibbpfPrograms, "_load", refuse)
    built = tmp_path / "pipelined.bpf.o"
    built.touch()
    with pytest.raises(UserError, match="not permitted"):
        loader.load({}, loader="libbpf", path=built)
    # without messages, then with them, for the reason
    assert tried == [hooks.REQUIRED] * 2


def just_required(built: Path) -> LibbpfPrograms:
    """What has loaded the required programs, as far as anybody can tell without a kernel."""
    programs = LibbpfPrograms.__new__(LibbpfPrograms)
    programs._path = built
    return programs


def test_what_fails_at_the_optional_programs_leaves_the_required_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_open(*_: object) -> None:
        raise UserError("the object is gone")

    monkeypatch.setattr(LibbpfPrograms, "_load", fail_to_open)
    wanted, _ = wanted_programs()
    loaded, refused = just_required(tmp_path).load_optional(wanted)
    assert (loaded, {reason for _, reason in refused.values()}) == ({}, {"the object is gone"})


def test_a_file_that_is_no_bpf_object_is_said_to_be_none() -> None:
    with pytest.raises(UserError, match=r"^/bin/true is not a BPF object; leave out --object, "):
        loader.load({}, loader="libbpf", path=Path("/bin/true"))


def test_a_bpf_object_of_something_else_is_said_to_be_one(tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text('__attribute__((section("raw_tp"))) int other(void *at) { return 0; }\n')
    built = source.with_suffix(".o")
    subprocess.run(["clang", "-O2", "-target", "bpf", "-c", source, "-o", built], check=True)
    with pytest.raises(
        UserError, match=r"other\.o is not a BPF object of this version.*no map stages"
    ):
        loader.load({"stages": 2}, loader="libbpf", path=built)


class FakeChild:
    """Refuses the programs of these methods, and notes what it was asked."""

    def __init__(self, refused: Mapping[str, int]) -> None:
        self.refused = refused
        self.asked: list[str] = []
        self.closed = False

    def ask(self, request: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[int]]:
        if "load" in request:
            self.asked.append(request["load"])
            if request["method"] in self.refused:
                code = self.refused[request["method"]]
                error = failure("refused", code)
                raise bcc_loader._Forbidden(error.message) if code == errno.EPERM else error
        return {}, []

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def with_bcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bcc").mkdir()
    (tmp_path / "pipelined.bpf.c").touch()
    monkeypatch.setattr(bcc_loader, "_DIST_PACKAGES", tmp_path)
    monkeypatch.setattr(bcc_loader, "_SOURCE", tmp_path)


@pytest.mark.parametrize("kprobes", [False, True])
def test_bcc_goes_without_what_the_host_forbids_after_one_try(
    with_bcc: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kprobes: bool
) -> None:
    child = FakeChild({"fentry": errno.EPERM, "fexit": errno.EPERM})
    monkeypatch.setattr(bcc_loader, "_Child", lambda: child)
    monkeypatch.setattr(hooks, "_KPROBES", tmp_path if kprobes else tmp_path / "none")
    wanted, _ = wanted_programs()
    accepted, refused = BccPrograms({}, ()).load_optional(wanted)
    by_kprobe = ["on_pipe_write_kprobe"] if kprobes else []
    allowed = ["on_signal", *by_kprobe]
    forbidden = set(wanted) - set(allowed)
    assert child.asked == [*hooks.REQUIRED, "on_execve_exit", *allowed]
    assert list(accepted) == allowed
    assert {reason for _, reason in refused.values()} == {FORBIDDEN}
    assert set(refused) == forbidden


def test_bcc_goes_without_one_that_the_verifier_refuses(
    with_bcc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = FakeChild({"fentry": errno.EINVAL})
    monkeypatch.setattr(bcc_loader, "_Child", lambda: child)
    wanted, _ = wanted_programs()
    accepted, refused = BccPrograms({}, ()).load_optional(wanted)
    assert set(refused) == {"on_pipe_write", "on_file_read"}
    assert "on_splice" in accepted


def test_bcc_lets_everything_go_when_a_required_program_is_refused(
    with_bcc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = FakeChild({"tp_btf": errno.EINVAL})
    monkeypatch.setattr(bcc_loader, "_Child", lambda: child)
    with pytest.raises(UserError, match="refused"):
        BccPrograms({}, ())
    assert child.closed


def fail(error: UserError) -> Any:
    def failing(*_: object) -> None:
        raise error

    return failing


def test_auto_asks_bcc_where_libbpf_fails(
    with_bcc: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = SimpleNamespace(maps={}, programs={}, refused={}, close=lambda: None)
    monkeypatch.setattr(loader, "LibbpfPrograms", fail(UserError("the object is broken")))
    monkeypatch.setattr(loader, "BccPrograms", lambda *_: fake)
    with caplog.at_level(logging.WARNING):
        assert loader.load({}).loader == "bcc"
    assert "the object is broken" in caplog.text


def test_when_both_fail_both_say_why(with_bcc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "LibbpfPrograms", fail(UserError("no object", "build it")))
    monkeypatch.setattr(loader, "BccPrograms", fail(UserError("no compiler")))
    with pytest.raises(UserError) as caught:
        loader.load({})
    assert str(caught.value) == "no object; with bcc: no compiler; build it"


@pytest.mark.parametrize(
    ("which", "error"), [("libbpf", UserError("no")), ("auto", NotPermittedError("no"))]
)
def test_bcc_is_not_asked_when_it_would_not_help(
    with_bcc: None, monkeypatch: pytest.MonkeyPatch, which: str, error: UserError
) -> None:
    monkeypatch.setattr(loader, "LibbpfPrograms", fail(error))
    monkeypatch.setattr(loader, "BccPrograms", fail(UserError("asked all the same")))
    with pytest.raises(UserError, match=r"^no$"):
        loader.load({}, loader=which)


def test_without_bcc_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcc_loader, "_DIST_PACKAGES", tmp_path)
    with pytest.raises(UserError, match="apt-get install python3-bpfcc"):
        loader.load({}, loader="bcc")


def test_an_object_is_of_no_use_to_bcc(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--loader=bcc"):
        loader.load({}, loader="bcc", path=tmp_path / "my.bpf.o")


class FakePrograms:
    """Attaches all but those hooks."""

    maps: Mapping[str, int] = {}

    def __init__(self, *gone: str) -> None:
        self.gone = gone

    def load_optional(
        self, optional: Mapping[str, Program]
    ) -> tuple[dict[str, Program], dict[str, tuple[Program, str]]]:
        return dict(optional), {}

    def attach(self, name: str, program: hooks.Program) -> tuple[int, int]:
        if program.hook in self.gone or f"{program.method} {program.hook}" in self.gone:
            raise UserError(f"cannot attach to {program.hook}")
        return 1, 2

    def all_attached(self) -> None:
        pass

    def close(self) -> None:
        pass


def loaded(programs: FakePrograms) -> loader.Loaded:
    wanted = loader.Wanted(functions=True, readahead=False, trace_exec_failures=False)
    return loader.Loaded(Libbpf(), "libbpf", programs, wanted)


def test_an_optional_hook_that_vanishes_is_done_without() -> None:
    hooks_found = loaded(FakePrograms("do_splice")).attach_optional()
    assert [(h.name, h.reason) for h in hooks_found if not h.attached] == [
        ("do_splice", "cannot attach to do_splice")
    ]
    assert len(hooks_found) == len(loaded(FakePrograms()).attach_optional())


def test_a_kprobe_is_attached_only_where_its_function_refuses_fentry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_KPROBES", tmp_path)
    write = wanted_programs()[0]["on_pipe_write"]

    def methods(programs: FakePrograms) -> list[tuple[str, bool]]:
        found = loaded(programs).attach_optional()
        at_entry = [hook for hook in found if hook.name == write.hook and hook.method != "fexit"]
        return [(hook.method, hook.attached) for hook in at_entry]

    assert methods(FakePrograms()) == [("fentry", True)]
    # the kprobe gives what fentry would: nothing is off
    assert methods(FakePrograms(f"fentry {write.hook}")) == [("kprobe", True)]


def test_a_required_hook_that_vanishes_is_an_error() -> None:
    with pytest.raises(UserError, match="sched_process_exec"):
        loaded(FakePrograms("sched_process_exec")).attach()


@pytest.mark.parametrize("trace_exec_failures", [False, True])
def test_every_optional_hook_says_what_it_gives(trace_exec_failures: bool) -> None:
    hooks_to_come = hooks.optional_hooks(
        functions=True, readahead=True, trace_exec_failures=trace_exec_failures
    )
    there, missing = wanted_programs(
        functions=True, readahead=True, trace_exec_failures=trace_exec_failures
    )
    tried = [*there.values(), *(program for program, _ in missing.values())]
    assert [one.name for one in hooks_to_come if not one.gives] == []
    assert [one.hook for one in tried if not one.gives] == []


def test_the_hooks_to_come_are_those_that_will_be_tried() -> None:
    observed = loaded(FakePrograms())
    pending, tried = observed.pending(), observed.attach_optional()
    assert all(hook.pending and not hook.attached for hook in pending)
    assert not any(hook.pending for hook in tried)
    assert sorted((h.tier, h.name.removeprefix("anon_"), h.method) for h in tried) == sorted(
        (h.tier, h.name, h.method) for h in pending
    )


FILEMAP = ("mm_filemap_add_to_page_cache", "mm_filemap_get_pages", "mm_filemap_fault")


def with_names(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A kernel that has these functions and tracepoints, and one that is in every kernel."""
    known = ["", *names, "btf_trace_sched_process_exit", ""]
    monkeypatch.setattr(hooks, "_kernel_names", lambda: "\0".join(known).encode())


def tier(programs: Mapping[str, Program]) -> dict[str, tuple[str, str]]:
    return {n: (p.method, p.hook) for n, p in programs.items() if p.tier == "readahead"}


def test_readahead_is_told_by_tracepoints_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_names(monkeypatch, *(f"btf_trace_{name}" for name in FILEMAP), "filemap_get_pages")
    there, missing = wanted_programs(functions=False, readahead=True)
    assert tier(there) == {
        "on_page_added": ("tp_btf", "mm_filemap_add_to_page_cache"),
        "on_pages_got": ("tp_btf", "mm_filemap_get_pages"),
        "on_file_fault": ("tp_btf", "mm_filemap_fault"),
        "on_reader_exit": ("tp_btf", "sched_process_exit"),
    }
    assert missing["on_direct_io"][1] == "no such tracepoint"


@pytest.mark.parametrize("kprobes", [False, True])
def test_readahead_is_told_by_functions_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kprobes: bool
) -> None:
    monkeypatch.setattr(hooks, "_KPROBES", tmp_path if kprobes else tmp_path / "none")
    with_names(monkeypatch, f"btf_trace_{FILEMAP[0]}", "filemap_get_pages", "filemap_fault")
    there = tier(wanted_programs(functions=False, readahead=True)[0])
    assert there["on_get_pages"] == ("fentry", "filemap_get_pages")
    assert there["on_filemap_fault"] == ("fentry", "filemap_fault")
    assert ("on_get_pages_kprobe" in there) == kprobes
    assert "on_pages_got" not in there


def test_readahead_counts_pages_of_4_kib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda _: 65536)
    there, missing = wanted_programs(functions=False, readahead=True)
    assert not tier(there)
    assert {why for p, why in missing.values() if p.tier == "readahead"} == {
        "the kernel's pages are not of 4 KiB"
    }


VERIFIER_LOG = """\
libbpf: prog 'on_switch': BPF program load failed: Permission denied
libbpf: prog 'on_switch': -- BEGIN PROG LOAD LOG --
0: (79) r1 = *(u64 *)(r1 +8)
; return p->pid; @ a.c:3
1: (61) r0 = *(u32 *)(r1 +99999)
access beyond struct task_struct at off 99999 size 4
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
-- END PROG LOAD LOG --
"""


def test_the_verifiers_verdict_is_the_line_that_matters() -> None:
    last_word = "access beyond struct task_struct at off 99999 size 4"
    assert verdict(VERIFIER_LOG) == last_word
    assert line_that_matters([VERIFIER_LOG]) == f"program on_switch: {last_word}"
    error = failure("refused", -errno.EACCES, f"program on_switch: {last_word}")
    assert "run as root" not in str(error) and not isinstance(error, NotPermittedError)


def test_a_program_that_is_too_large_for_the_verifier_is_no_matter_of_sizes_of_maps() -> None:
    said = "program on_switch: BPF program is too large. Processed 1000001 insn"
    assert "--max-stages" not in str(failure(REFUSED, -errno.E2BIG, said))
    assert "--max-stages" in str(failure("cannot create the map stages", -errno.E2BIG))


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES])
def test_a_user_who_may_load_nothing_reads_that_and_not_libbpfs_words(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(libbpf, "_STATUS", Path("/none"))  # whoever runs this
    words = "Error in bpf_object__probe_loading(): Couldn't load trivial BPF program."
    error = failure(REFUSED, -code, words)
    assert isinstance(error, NotPermittedError)
    assert str(error).startswith(
        "this user may not load BPF programs; run as root, or with CAP_BPF"
    )


_BPF, _PERFMON = 1 << 39, 1 << 38


@pytest.mark.parametrize(
    ("held", "named"),
    [
        (0, "CAP_BPF and CAP_PERFMON"),
        (_BPF, "CAP_PERFMON, which is missing"),
        (_PERFMON, "CAP_BPF, which is missing"),
        (_BPF | _PERFMON, None),
        (1 << 21, None),
        (None, "CAP_BPF and CAP_PERFMON"),
    ],
)
@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES])
def test_a_capability_that_alone_is_missing_is_named_and_else_what_may_forbid_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, held: int | None, named: str | None
) -> None:
    status = tmp_path / "status"
    if held is not None:
        status.write_text(f"CapPrm:\t{0:016x}\nCapEff:\t{held:016x}\n")
    monkeypatch.setattr(libbpf, "_STATUS", status)
    said = f"run as root, or with {named}; `pipelined doctor` says more"
    if named is None:
        said = (
            "it has the capabilities: a user namespace, a security module or a filter of system"
            " calls forbids it; `pipelined doctor` says more"
        )
    assert failure(REFUSED, -code).hint == said
    assert failure("cannot share the map", -code).hint == said


def test_names_that_the_kernel_has_too_are_found() -> None:
    """Linux 6.1 has a struct fault, say; under bcc both would be declared in one file."""
    declared = "struct fault {\n\tint a;\n};\n\nenum e {\n\tNO_RUN = 0,\n\tOTHER = -1,\n};\n"
    assert bcc_compiler._also_in_kernel({"fault", "stall", "NO_RUN"}, declared) == [
        "NO_RUN",
        "fault",
    ]
    source = bcc_compiler._Source(Path(__file__).parents[2] / "bpf")
    assert {"fault", "run_kind", "NO_RUN", "PAGE_WARM"} <= source.names
    assert not {"task_struct", "inode"} & source.names


def on_a_kernel_with(
    monkeypatch: pytest.MonkeyPatch, names: Iterable[str], programs: FakePrograms
) -> tuple[loader.Loaded, list[hooks.Hook]]:
    """What becomes of all optional programs if its BTF has these names."""
    btf = b"".join(f"\0{name}\0".encode() for name in names)
    monkeypatch.setattr(hooks, "_kernel_names", lambda: btf)
    monkeypatch.setattr(hooks, "_KPROBES", Path("/"))
    wanted = loader.Wanted(functions=True, readahead=True, trace_exec_failures=False)
    loaded = loader.Loaded(Libbpf(), "libbpf", programs, wanted)
    return loaded, list(loaded.attach_optional())


#: As Linux 6.1 has them on arm64.
_OF_6_1 = (
    "pipe_write",
    "pipe_read",
    "vfs_read",
    "filemap_get_pages",
    "filemap_fault",
    "btf_trace_mm_filemap_add_to_page_cache",
    "btf_trace_sched_process_exit",
)


def test_a_hook_that_a_kprobe_stands_in_for_is_not_reported_as_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = [f"{method} {name}" for method in ("fentry", "fexit") for name in _OF_6_1]
    loaded, found = on_a_kernel_with(monkeypatch, _OF_6_1, FakePrograms(*refused))

    of = {name: [(h.method, h.attached) for h in found if h.name == name] for name in _OF_6_1}
    assert of["filemap_get_pages"] == of["filemap_fault"] == [("kprobe", True)]
    assert of["pipe_write"] == [("kprobe", True), ("fexit", False)]
    assert loaded.has_readahead


def test_without_a_hook_that_the_tier_needs_its_others_are_not_attached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = "btf_trace_mm_filemap_add_to_page_cache"
    names = [name for name in _OF_6_1 if name != missing]
    loaded, found = on_a_kernel_with(monkeypatch, names, FakePrograms())

    of_tier = {h.name: h.reason for h in found if h.tier == "readahead"}
    assert not any(h.attached for h in found if h.tier == "readahead")
    assert of_tier["mm_filemap_add_to_page_cache"] == "no such tracepoint"
    assert of_tier["filemap_fault"] == "of no use without mm_filemap_add_to_page_cache"
    assert not loaded.has_readahead
    assert loaded.has_functions


def test_a_kernel_that_cannot_attach_to_functions_says_so_in_words(tmp_path: Path) -> None:
    built = tmp_path / "pipelined.bpf.o"
    built.touch()
    programs = LibbpfPrograms.__new__(LibbpfPrograms)
    library = SimpleNamespace(messages=[], bpf_program__attach=lambda found: None)
    programs._lib, programs._owner = library, {"on_tee": 1}  # type: ignore[assignment]
    programs._find = lambda kind, opened, name: 1  # type: ignore[method-assign]
    ctypes.set_errno(524)
    with pytest.raises(UserError, match=r"^the kernel cannot attach fentry and fexit programs"):
        programs.attach("on_tee", Program("do_tee", "functions", "fexit"))
