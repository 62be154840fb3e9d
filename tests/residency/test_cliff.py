"""The cliff: less is kept as soon as memory runs short, more again when there is plenty, never more than was asked for."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from optaned.residency.cliff import Memory, look, next_step

GB = 1 << 30


def test_a_budget_that_fits_stays() -> None:
    assert next_step(10 * GB, 10 * GB, 4 * GB, Memory(8 * GB, 32 * GB, 0)) is None


def test_what_is_not_there_yet_must_fit_too() -> None:
    step = next_step(10 * GB, 10 * GB, 4 * GB, Memory(5 * GB, 32 * GB, 0))
    assert step is not None
    assert 4 * GB < step.budget_bytes < 9 * GB
    assert "would leave too little memory" in step.reason


def test_swapped_weights_are_given_up() -> None:
    step = next_step(10 * GB, 10 * GB, 10 * GB, Memory(3 * GB, 32 * GB, 2 * GB))
    assert step is not None
    assert step.budget_bytes == 8 * GB
    assert "swapped" in step.reason


def test_free_memory_is_used_again_bit_by_bit() -> None:
    memory = Memory(8 * GB, 32 * GB, 0)
    first = next_step(4 * GB, 10 * GB, 4 * GB, memory)
    assert first is not None
    assert 4 * GB < first.budget_bytes < 8 * GB
    assert "free again" in first.reason


@given(
    budget=st.integers(0, 1 << 40),
    asked=st.integers(0, 1 << 40),
    held_share=st.floats(0, 1.1),
    available=st.integers(0, 1 << 40),
    total=st.integers(1 << 20, 1 << 40),
    swapped=st.integers(0, 1 << 34),
)
def test_a_step_never_passes_what_was_asked_and_leaves_the_margin(
    budget: int, asked: int, held_share: float, available: int, total: int, swapped: int
) -> None:
    asked = max(asked, budget)
    held = int(budget * held_share)
    memory = Memory(available, total, swapped)
    step = next_step(budget, asked, held, memory)
    if step is not None:
        assert 0 <= step.budget_bytes <= asked
        assert step.budget_bytes != budget
        if step.budget_bytes > budget:
            assert step.budget_bytes - held <= available - memory.margin_bytes


def test_the_tightest_group_counts(tmp_path: Path) -> None:
    machine(tmp_path, "0::/a/b\n")
    group(tmp_path / "sys/fs/cgroup/a/b", "memory.max", "max", "memory.current", 5 << 20)
    group(tmp_path / "sys/fs/cgroup/a", "memory.max", "1000000", "memory.current", 600_000, inactive_file=100_000)
    memory = look(tmp_path)
    assert memory == Memory(500_000, 1_000_000, 3 << 10)


def test_groups_of_the_first_version_count_with_all_below_them(tmp_path: Path) -> None:
    machine(tmp_path, "7:cpu:/x\n5:memory:/x\n")
    folder = tmp_path / "sys/fs/cgroup/memory/x"
    group(folder, "memory.limit_in_bytes", "900", "memory.usage_in_bytes", 800, total_active_file=300)
    assert look(tmp_path) == Memory(400, 900, 3 << 10)


def test_a_machine_that_says_nothing_limits_nothing(tmp_path: Path) -> None:
    assert look(tmp_path) is None


def test_this_machine_says_something_plausible() -> None:
    memory = look()
    assert memory is None or 0 <= memory.available_bytes <= memory.total_bytes


def machine(root: Path, groups: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 8192 kB\nMemAvailable: 4096 kB\nHugePages_Total: 0\n")
    (root / "proc/self/status").write_text("Name:\tx\nVmSwap:\t 3 kB\n")
    (root / "proc/self/cgroup").write_text(groups)


def group(folder: Path, limit: str, most: str, usage: str, used: int, **stat: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limit).write_text(most)
    (folder / usage).write_text(str(used))
    (folder / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in stat.items()))
