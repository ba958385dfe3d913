"""Memory and CPUs that the system leaves to this process, from trees of files and environments of many systems."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from gpukpca import KernelPCA
from gpukpca.backend import parallel as tiles
from gpukpca.backend.device import host_free_bytes
from gpukpca.backend.limits import blas_variables, cpu_quotas, free_memory, task_cpus
from gpukpca.backend.parallel import usable_cpus, worker_count

MIB = 2**20
AVAILABLE = 50_000 * 1024
V2 = "25 20 0:22 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "30 20 0:25 {root} /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "31 20 0:26 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)
OTHER_MOUNTS = (
    "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n33 20 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
)
V1_GROUPS = "9:name=systemd:/a\n5:cpu,cpuacct:{path}\n4:memory:{path}\n"


def system(folder: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    """A tree of files as a system shows them to this process."""
    contents = {
        "proc/meminfo": "MemTotal: 99000 kB\nMemAvailable: 50000 kB\n",
        "proc/self/status": "Name:\tpython\nVmRSS:\t    1024 kB\n",
        "proc/self/cgroup": groups,
        "proc/self/mountinfo": OTHER_MOUNTS + mounts,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def v2(group: str, files: dict[str, str], mounted: str = "/") -> tuple[str, str, dict[str, str]]:
    """A process in a group of version 2."""
    return f"0::{group}\n", V2.format(root=mounted), files


def v1(group: str, files: dict[str, str], mounted: str = "/") -> tuple[str, str, dict[str, str]]:
    """A process in groups of version 1."""
    return V1_GROUPS.format(path=group), V1.format(root=mounted), files


def limited(folder: str, limit: object, used: int, cache: int = 0) -> dict[str, str]:
    """Files of a memory limit of version 2."""
    return {
        f"{folder}memory.max": f"{limit}\n",
        f"{folder}memory.current": f"{used}\n",
        f"{folder}memory.stat": f"anon 1\nfile 77\ninactive_file {cache}\n",
    }


def limited_v1(folder: str, limit: int, used: int, cache: int = 0) -> dict[str, str]:
    """Files of a memory limit of version 1, whose own page cache is not that of the groups below it."""
    return {
        f"memory/{folder}memory.limit_in_bytes": f"{limit}\n",
        f"memory/{folder}memory.usage_in_bytes": f"{used}\n",
        f"memory/{folder}memory.stat": f"cache 1\ninactive_file 7\ntotal_inactive_file {cache}\n",
    }


MEMORY: dict[str, tuple[tuple[str, str, dict[str, str]], int]] = {
    "no group": (("", "", {}), AVAILABLE),
    "no limit": (v2("/", limited("", "max", 5)), AVAILABLE),
    "the root's limit": (v2("/", limited("", 9_000_000, 2_000_000)), 7_000_000),
    "a cache": (v2("/", limited("", 9_000_000, 8_000_000, 3_000_000)), 4_000_000),
    "used up": (v2("/", limited("", 9000, 9500)), 0),
    "beyond the system": (v2("/", limited("", 10**17, 1)), AVAILABLE),
    "own group": (v2("/a/b", limited("a/b/", 6_000_000, 1_000_000) | limited("a/", "max", 9)), 5_000_000),
    "parent": (v2("/a/b", limited("a/b/", "max", 1) | limited("a/", 8_000_000, 2_000_000)), 6_000_000),
    "grandparent": (v2("/a/b/c", limited("a/", 8_000_000, 2_000_000) | limited("a/b/", 9_000_000, 1)), 6_000_000),
    "the least of all": (v2("/a/b", limited("a/b/", 9_000_000, 1000) | limited("a/", 9_000_000, 7_000_000)), 2_000_000),
    "a neighbor": (v2("/a/b", limited("a/c/", 1000, 1)), AVAILABLE),
    "high": (v2("/a", limited("a/", "max", 1_000_000) | {"a/memory.high": "3000000\n"}), 2_000_000),
    "no statistics": (v2("/", {"memory.max": "9000000\n", "memory.current": "2000000\n"}), 7_000_000),
    "namespace": (v2("/", limited("", 4_000_000, 0), mounted="/docker/1f"), 4_000_000),
    "host's names": (v2("/docker/1f/x", limited("x/", 4_000_000, 0), mounted="/docker/1f"), 4_000_000),
    "outside the namespace": (v2("/../other", limited("", 4_000_000, 0)), 4_000_000),
    "version 1": (v1("/", limited_v1("", 8_000_000, 3_000_000, 500_000)), 5_500_000),
    "version 1 nested": (
        v1("/job/step", limited_v1("job/", 8_000_000, 3_000_000) | limited_v1("job/step/", 2**63 - 4096, 1)),
        5_000_000,
    ),
    "version 1 of a host": (v1("/docker/1f", limited_v1("", 8_000_000, 3_000_000)), 5_000_000),
    "both versions": (
        (
            V1_GROUPS.format(path="/a") + "0::/a\n",
            V1.format(root="/") + V2.format(root="/").replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "),
            limited_v1("a/", 8_000_000, 3_000_000),
        ),
        5_000_000,
    ),
}


@pytest.mark.parametrize("case", MEMORY)
def test_the_least_free_memory_of_all_control_groups_counts(case: str, tmp_path: Path) -> None:
    files, free = MEMORY[case]
    assert free_memory(system(tmp_path, *files), {}) == free


JOBS: dict[str, tuple[dict[str, str], int]] = {
    "none": ({}, AVAILABLE),
    "node": ({"SLURM_MEM_PER_NODE": "9"}, 8 * MIB),
    "all of the node": ({"SLURM_MEM_PER_NODE": "0"}, AVAILABLE),
    "CPUs of a node": ({"SLURM_MEM_PER_CPU": "5", "SLURM_CPUS_ON_NODE": "3"}, 14 * MIB),
    "CPUs of a task": ({"SLURM_MEM_PER_CPU": "5", "SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "2"}, 9 * MIB),
    "one CPU": ({"SLURM_MEM_PER_CPU": "5"}, 4 * MIB),
    "less than is held": ({"SLURM_MEM_PER_CPU": "1"}, 0),
    "the smaller one": ({"SLURM_MEM_PER_NODE": "20", "SLURM_MEM_PER_CPU": "5", "SLURM_CPUS_ON_NODE": "2"}, 9 * MIB),
    "more than the system has": ({"SLURM_MEM_PER_NODE": "999999"}, AVAILABLE),
    "unreadable": ({"SLURM_MEM_PER_NODE": "much", "SLURM_MEM_PER_CPU": ""}, AVAILABLE),
    "one GPU": ({"SLURM_MEM_PER_GPU": "5"}, 4 * MIB),
    "GPUs of a node": ({"SLURM_MEM_PER_GPU": "5", "SLURM_GPUS_ON_NODE": "4"}, 19 * MIB),
    "tasks of a node": ({"SLURM_MEM_PER_NODE": "40", "SLURM_STEP_TASKS_PER_NODE": "4"}, 9 * MIB),
    "tasks of equal nodes": ({"SLURM_MEM_PER_NODE": "40", "SLURM_STEP_TASKS_PER_NODE": "4(x3)"}, 9 * MIB),
    "tasks of this node": (
        {"SLURM_MEM_PER_NODE": "40", "SLURM_STEP_TASKS_PER_NODE": "8(x2),2(x3),1", "SLURM_NODEID": "4"},
        19 * MIB,
    ),
    "tasks of the last node": (
        {"SLURM_MEM_PER_NODE": "40", "SLURM_STEP_TASKS_PER_NODE": "8(x2),2(x3),1", "SLURM_NODEID": "5"},
        39 * MIB,
    ),
    "tasks of some node": ({"SLURM_MEM_PER_NODE": "40", "SLURM_STEP_TASKS_PER_NODE": "1,8,2"}, 4 * MIB),
    # A batch script is one process, however many tasks its steps will have.
    "tasks of a script": ({"SLURM_MEM_PER_NODE": "40", "SLURM_TASKS_PER_NODE": "4", "SLURM_NTASKS": "4"}, 39 * MIB),
    "tasks with CPUs": (
        {"SLURM_MEM_PER_CPU": "5", "SLURM_CPUS_ON_NODE": "12", "SLURM_STEP_TASKS_PER_NODE": "4"},
        14 * MIB,
    ),
    "tasks with GPUs": (
        {"SLURM_MEM_PER_GPU": "8", "SLURM_GPUS_ON_NODE": "4", "SLURM_STEP_TASKS_PER_NODE": "4"},
        7 * MIB,
    ),
    "tasks of a whole node": ({"SLURM_MEM_PER_NODE": "0", "SLURM_STEP_TASKS_PER_NODE": "4"}, 99000 * 256 - MIB),
    "unreadable tasks": ({"SLURM_MEM_PER_NODE": "40", "SLURM_STEP_TASKS_PER_NODE": "4(x"}, 39 * MIB),
}


@pytest.mark.parametrize("case", JOBS)
def test_the_memory_of_a_batch_job_bounds_what_is_free(case: str, tmp_path: Path) -> None:
    environ, free = JOBS[case]
    assert free_memory(system(tmp_path, "", "", {}), environ) == free


def test_a_group_within_a_batch_job_counts_too(tmp_path: Path) -> None:
    files, free = MEMORY["parent"]
    assert free_memory(system(tmp_path, *files), {"SLURM_MEM_PER_NODE": "20"}) == free
    assert free_memory(tmp_path, {"SLURM_MEM_PER_NODE": "3"}) == 2 * MIB


def test_tasks_share_the_limit_of_a_group(tmp_path: Path) -> None:
    """What is left counts, and no more than a share of the limit less what this process holds."""
    root, step = system(tmp_path, *v2("/", limited("", 80 * MIB, 3 * MIB))), {"SLURM_STEP_TASKS_PER_NODE": "4"}
    assert free_memory(root, {}) == AVAILABLE
    assert free_memory(root, step) == 19 * MIB
    system(tmp_path, *v2("/", limited("", 80 * MIB, 70 * MIB)))
    assert free_memory(root, step) == 10 * MIB


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max data size             {data:20} unlimited            bytes
Max stack size            8388608              unlimited            bytes
Max address space         {space:20} unlimited            bytes
"""


def test_the_limits_of_the_process_count_less_what_it_reserved(tmp_path: Path) -> None:
    root = system(tmp_path, "", "", {})
    status = "VmSize:\t    4096 kB\nVmRSS:\t    1024 kB\nVmData:\t    2048 kB\n"
    (root / "proc/self/status").write_text(status, encoding="utf-8")
    for space, data, free in (
        ("unlimited", "unlimited", AVAILABLE),
        (str(9 * MIB), "unlimited", 5 * MIB),
        ("unlimited", str(9 * MIB), 7 * MIB),
        (str(9 * MIB), str(6 * MIB), 4 * MIB),
        (str(MIB), "unlimited", 0),
    ):
        (root / "proc/self/limits").write_text(LIMITS.format(space=space, data=data), encoding="utf-8")
        assert free_memory(root, {}) == free, (space, data)
        assert free_memory(root, {"SLURM_MEM_PER_NODE": "4"}) == min(free, 3 * MIB)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_AS")
def test_a_fit_keeps_to_ulimit() -> None:
    script = """
import resource
from gpukpca.backend.device import host_free_bytes
before = host_free_bytes()
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**27, resource.RLIM_INFINITY))
assert 2**26 < host_free_bytes() <= 2**27 < before, (before, host_free_bytes())
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_the_files_of_linux_psutil_says_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(available=123_456))
    monkeypatch.setitem(sys.modules, "psutil", fake)
    assert free_memory(tmp_path, {}) == 123_456
    assert free_memory(system(tmp_path, "", "", {}), {}) == AVAILABLE


def test_without_psutil_half_of_the_memory_counts_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__, raising=False)
    assert free_memory(tmp_path, {}) == 2_048_000
    monkeypatch.delattr(os, "sysconf")
    assert free_memory(tmp_path, {}) == 4 * 2**30


def test_what_is_free_here_is_a_sensible_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MIB < host_free_bytes() < 2**50
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1")
    assert host_free_bytes() == 0


# -- CPUs --------------------------------------------------------------------------------------------------------------

QUOTAS: dict[str, tuple[tuple[str, str, dict[str, str]], list[int]]] = {
    "no group": (("", "", {}), []),
    "no quota": (v2("/a", {"a/cpu.max": "max 100000\n"}), []),
    "whole": (v2("/a", {"a/cpu.max": "200000 100000\n"}), [2]),
    "rounded up": (v2("/a", {"a/cpu.max": "150000 100000\n"}), [2]),
    "less than one": (v2("/a", {"a/cpu.max": "5000 100000\n"}), [1]),
    "nested": (
        v2("/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n", "cpu.max": "800000 100000"}),
        [3, 8],
    ),
    "version 1": (
        v1("/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": "400000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}),
        [4],
    ),
    "version 1 nested": (
        v1(
            "/a/b",
            {
                "cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
                "cpu,cpuacct/a/cpu.cfs_period_us": "20000\n",
            },
        ),
        [3],
    ),
}


@pytest.mark.parametrize("case", QUOTAS)
def test_quotas_of_all_control_groups_are_found(case: str, tmp_path: Path) -> None:
    files, quotas = QUOTAS[case]
    assert list(cpu_quotas(system(tmp_path, *files))) == quotas


def test_settings_of_the_environment_are_numbers_or_nothing() -> None:
    assert list(task_cpus({"SLURM_CPUS_PER_TASK": "6"})) == [6]
    assert list(task_cpus({"SLURM_CPUS_PER_TASK": "0"})) == list(task_cpus({"SLURM_CPUS_PER_TASK": "x"})) == []
    for environ, cpus in (
        ({"SLURM_CPUS_PER_TASK": "3", "SLURM_CPUS_ON_NODE": "12", "SLURM_STEP_TASKS_PER_NODE": "2"}, [3]),
        ({"SLURM_CPUS_ON_NODE": "12", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, [3]),
        ({"SLURM_CPUS_ON_NODE": "3", "SLURM_STEP_TASKS_PER_NODE": "4"}, [1]),
        ({"SLURM_CPUS_ON_NODE": "12", "SLURM_STEP_TASKS_PER_NODE": "1"}, []),
        ({"PBS_JOBID": "1.server", "NCPUS": "6"}, [6]),
        ({"PBS_JOBID": "1.server", "PBS_NUM_PPN": "5"}, [5]),
        ({"NCPUS": "6"}, []),
        ({"NSLOTS": "7"}, [7]),
        ({"NSLOTS": "24", "NHOSTS": "2"}, [12]),
        ({"NSLOTS": "1", "NHOSTS": "2"}, [1]),
        ({"LSB_MCPU_HOSTS": "host1 16 host2 8 "}, [16]),
        ({"LSB_MCPU_HOSTS": "host1 4", "LSB_DJOB_NUMPROC": "4"}, [4]),
        ({"LSB_DJOB_NUMPROC": "9"}, [9]),
        ({"LSB_MCPU_HOSTS": "host1", "LSB_DJOB_NUMPROC": "x", "NSLOTS": "0"}, []),
    ):
        assert list(task_cpus(environ)) == cpus, environ
    assert list(blas_variables({"OMP_NUM_THREADS": "3", "VECLIB_MAXIMUM_THREADS": "2"})) == [2, 3]
    assert list(blas_variables({"OMP_NUM_THREADS": "4,2"})) == list(blas_variables({})) == []


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight CPUs, no quota and no batch system, whose BLAS threadpoolctl does not know."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(tiles, "_cpu_quotas", tuple)
    monkeypatch.setattr(tiles, "_blas", lambda: ThreadpoolController().select(user_api="unknown"))
    batch = ("SLURM_CPUS_PER_TASK", "SLURM_STEP_TASKS_PER_NODE", "PBS_JOBID", "NSLOTS", "LSB_MCPU_HOSTS")
    for name in (*batch, "LSB_DJOB_NUMPROC", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


X = np.ones((2, 2))


@pytest.mark.usefixtures("eight_cpus")
def test_an_unknown_blas_makes_nothing_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_count(X) == usable_cpus() == 8
    with tiles.single_threaded_blas():
        assert worker_count(X) == 8
    monkeypatch.setenv("VECLIB_MAXIMUM_THREADS", "1")  # as in a worker of joblib
    assert worker_count(X) == 1
    assert worker_count(X, 3) == 3


@pytest.mark.usefixtures("eight_cpus", "threads_for_little")
def test_a_fit_under_an_unknown_blas_gives_the_same() -> None:
    data = np.random.default_rng(0).standard_normal((300, 4))
    model = KernelPCA(3, kernel="rbf").fit(data)
    assert model.plan_.storage.workers == 8
    one = KernelPCA(3, kernel="rbf", n_jobs=1).fit(data)
    np.testing.assert_allclose(model.eigenvalues_, one.eigenvalues_, rtol=1e-11)


@pytest.mark.usefixtures("eight_cpus")
def test_a_quota_bounds_every_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_cpu_quotas", lambda: (5, 3))
    assert usable_cpus() == worker_count(X) == worker_count(X, -1) == worker_count(X, 8) == 3
    assert worker_count(X, -2) == 2


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize(("cpus", "workers"), [("2", 2), ("64", 8), ("", 8)])
def test_a_task_of_a_batch_job_bounds_the_default(cpus: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", cpus)
    assert (worker_count(X), worker_count(X, 6), worker_count(X, -1)) == (workers, 6, 8)


CONFIGS: dict[str, tuple[dict[str, Any], int]] = {
    "two": ({"n_jobs": 2}, 2),
    "all but one": ({"n_jobs": -2}, 7),
    "more than there are": ({"n_jobs": 99}, 8),
    "threads": ({"n_jobs": 3, "backend": "threading"}, 3),
    "no number": ({"backend": "threading"}, 8),
}


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize("case", CONFIGS)
def test_the_parallel_config_of_joblib_bounds_the_default(case: str) -> None:
    config, workers = CONFIGS[case]
    with joblib.parallel_config(**config):
        assert (worker_count(X), worker_count(X, 6)) == (workers, 6)
    assert worker_count(X) == 8
