"""Limits on memory and CPUs that the system states: control groups (versions 1 and 2), `ulimit`, and batch systems.

Variables of the environment are those that the manuals of the batch systems name:

- Slurm, srun(1) and sbatch(1), «output environment variables». SLURM_STEP_TASKS_PER_NODE is set in steps alone, so a
  batch script without srun, which is one process, has all of its node.
- PBS Professional User's Guide: NCPUS, the threads of a process. TORQUE, «Exported batch environment variables»:
  PBS_NUM_PPN. Neither states memory; they set the limits of the process (pmem, pvmem).
- Grid Engine, submit(1): NSLOTS, NHOSTS. Memory (h_vmem) is a limit of the process, queue_conf(5).
- IBM Spectrum LSF, «Environment variables set for job execution»: LSB_MCPU_HOSTS, LSB_DJOB_NUMPROC. Memory (bsub -M) is
  a limit of the process or a control group.

Each function depends on the root folder of the system's files and on the environment alone, so that tests build both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

# The one table of shares of memory.
#
# | share           | of                     | for                                                                     |
# |-----------------|------------------------|-------------------------------------------------------------------------|
# | SHARE_OF_FREE   | free memory            | all that a fit without `memory_limit` allocates                         |
# | SHARE_FOR_TILES | free memory            | its cached tiles: more buys little; a card without other programs: all  |
# | SHARE_FOR_ROWS  | the limit of a fit     | prepared rows of a memory map; beyond it every pass reads them          |
# | SHARE_ALONE     | free memory            | cached tiles of a `TiledGram` without a plan                            |
# | SHARE_OF_WORKER | a Dask worker's memory | its rows and tiles: Dask spills at 60 % and pauses at 80 %              |
SHARE_OF_FREE = 0.85
SHARE_FOR_TILES = 0.6
SHARE_FOR_ROWS = 0.25
SHARE_ALONE = 0.5
SHARE_OF_WORKER = 0.5

MIB = 2**20
# The memory where the system states none.
UNKNOWN_MEMORY = 4 * 2**30
# Of memory beyond the limit "high" of a control group of version 2 the kernel takes back what it can.
MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.high", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
# Limits of the process in proc/self/limits, and what it holds of them in proc/self/status, in KiB. Memory that is
# reserved counts, also where it is not used.
PROCESS_LIMITS = (("Max address space", "VmSize"), ("Max data size", "VmData"))
TASKS_OF_NODES = re.compile(r"([1-9][0-9]{0,8})(?:\(x([1-9][0-9]{0,8})\))?")
# Limits of threads that BLAS libraries read which threadpoolctl does not know; joblib sets them in its workers.
BLAS_VARIABLES = ("VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")


# -- memory ------------------------------------------------------------------------------------------------------------


def free_memory(root: Path, environ: Mapping[str, str]) -> int:
    """Return the bytes that can be allocated: the least that the system, its limits and the batch system leave.

    What several tasks of a job share on this machine is divided evenly among them.
    """
    tasks, groups = _tasks_here(environ), list(_group_memory(root))
    batch = list(_batch_memory(environ, tasks))
    free = [_system_memory(root), *_left_by_process(root), *(left for left, _ in groups)]
    if batch or tasks > 1:
        held, shared = process_memory(root, "VmRSS"), [_installed_memory(root), *(whole for _, whole in groups)]
        free += [limit - held for limit in batch] + [whole // tasks - held for whole in shared if tasks > 1]
    return max(0, min(free))


def _system_memory(root: Path) -> int:
    """Return the bytes that can be had without swapping; half of what is installed where the system does not say."""
    available = _value(root / "proc/meminfo", "MemAvailable")
    if available is not None:
        return available * 1024
    try:  # no file on macOS and Windows
        import psutil

        return int(psutil.virtual_memory().available)
    except ImportError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return UNKNOWN_MEMORY


def _installed_memory(root: Path) -> int:
    """Return the bytes that are installed; what is free where the system does not say."""
    total = _value(root / "proc/meminfo", "MemTotal")
    return _system_memory(root) if total is None else total * 1024


def _group_memory(root: Path) -> Iterator[tuple[int, int]]:
    """Yield what each memory limit of the process's control groups leaves, with page cache as free, and the limit."""
    for folder in _group_folders(root, "memory"):
        limits = [(limit, usage) for file, usage in MEMORY_FILES if (limit := _number(folder / file)) is not None]
        cache = (_value(folder / "memory.stat", "total_inactive_file", "inactive_file") or 0) if limits else 0
        for limit, usage_file in limits:
            yield limit - (_number(folder / usage_file) or 0) + cache, limit


def _left_by_process(root: Path) -> Iterator[int]:
    """Yield what the limits of this process, those of `ulimit -v` and `ulimit -d`, leave."""
    for line in _lines(root / "proc/self/limits"):
        for name, key in PROCESS_LIMITS:
            limit = line.removeprefix(name).split()[:1] if line.startswith(name) else []
            if limit and limit[0].isdecimal():  # or "unlimited"
                yield int(limit[0]) - process_memory(root, key)


def process_memory(root: Path, key: str) -> int:
    """Return the bytes of a line of this process's status; 0 where the system has none."""
    return (_value(root / "proc/self/status", key) or 0) * 1024


def _batch_memory(environ: Mapping[str, str], tasks: int) -> Iterator[int]:
    """Yield the memory limits of a task of a Slurm job, stated in MiB for a node, a CPU or a GPU."""
    cpus = _setting(environ, "SLURM_CPUS_PER_TASK") or max(1, (_setting(environ, "SLURM_CPUS_ON_NODE") or 1) // tasks)
    gpus = _setting(environ, "SLURM_GPUS_ON_NODE") or 1
    for name, count, sharing in (
        ("SLURM_MEM_PER_NODE", 1, tasks),
        ("SLURM_MEM_PER_CPU", cpus, 1),
        ("SLURM_MEM_PER_GPU", gpus, tasks),
    ):
        limit = _setting(environ, name)
        if limit:  # 0: all memory of the node
            yield limit * count * MIB // sharing


def _tasks_here(environ: Mapping[str, str]) -> int:
    """Return the tasks of this step of a Slurm job on this machine; 1 elsewhere.

    The variable lists the tasks of all nodes in order, those of equal ones once: "2(x3),1". The largest number counts
    where the place of this node is not known.
    """
    node, most, before = _setting(environ, "SLURM_NODEID"), 1, 0
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        match = TASKS_OF_NODES.fullmatch(part.strip())
        if match is None:
            return 1
        tasks, nodes = int(match[1]), int(match[2] or 1)
        if node is not None and before <= node < before + nodes:
            return tasks
        most, before = max(most, tasks), before + nodes
    return most


# -- CPUs --------------------------------------------------------------------------------------------------------------


def cpu_quotas(root: Path) -> Iterator[int]:
    """Yield the quotas of CPU time of the process's control groups in CPUs, rounded up."""
    for folder in _group_folders(root, "cpu"):
        quota, period = _number(folder / "cpu.max"), _number(folder / "cpu.max", 1)
        if quota is None:
            quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota and period:
            yield -(-quota // period)


def task_cpus(environ: Mapping[str, str]) -> Iterator[int]:
    """Yield the CPUs of a task of a job of Slurm, PBS, Grid Engine or LSF."""
    a_task, tasks = _setting(environ, "SLURM_CPUS_PER_TASK"), _tasks_here(environ)
    if a_task:
        yield a_task
    elif tasks > 1 and (cpus := _setting(environ, "SLURM_CPUS_ON_NODE")):
        yield max(1, cpus // tasks)
    if "PBS_JOBID" in environ:  # other programs use the name NCPUS too
        yield from filter(None, (_setting(environ, name) for name in ("NCPUS", "PBS_NUM_PPN")))
    if slots := _setting(environ, "NSLOTS"):  # of all hosts of a job of Grid Engine
        yield max(1, slots // (_setting(environ, "NHOSTS") or 1))
    # "host1 16 host2 8". Which is this machine is not looked up: the largest number counts.
    on_hosts = [int(word) for word in environ.get("LSB_MCPU_HOSTS", "").split()[1::2] if word.isdecimal()]
    slots = max(on_hosts, default=0) or _setting(environ, "LSB_DJOB_NUMPROC")
    if slots:
        yield slots


def blas_variables(environ: Mapping[str, str]) -> Iterator[int]:
    """Yield the limits of threads set for BLAS libraries in the environment."""
    for threads in (_setting(environ, name) for name in BLAS_VARIABLES):
        if threads:
            yield threads


# -- files and variables -----------------------------------------------------------------------------------------------


def _group_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the process's control groups, from its own up to the root, of every hierarchy.

    Version 1 mounts a hierarchy for one or more controllers, version 2 one for all. Folders may be missing: inside a
    container the file that names the groups may name those of the host.
    """
    groups = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup") if line.count(":") >= 2]
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, kind = line.partition(" - ")
        system, *options = kind.split() or [""]
        if system == "cgroup2":
            name = ""
        elif system == "cgroup" and controller in options[-1].split(","):
            name = controller
        else:
            continue
        mounted, point = mount.split()[3:5]
        for _, controllers, path in groups:
            if name in controllers.split(","):
                group = PurePosixPath(path)
                inside = group.is_relative_to(mounted) and ".." not in group.parts
                group = group.relative_to(mounted) if inside else PurePosixPath()
                for folder in (group, *group.parents):
                    yield root / point.lstrip("/") / folder


def _lines(file: Path) -> list[str]:
    """Return the lines of a file of the system; none where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _number(file: Path, place: int = 0) -> int | None:
    """Return the number in this place of a file's first line; None where it is no number, as "max" and "-1"."""
    fields = " ".join(_lines(file)[:1]).split()
    return int(fields[place]) if len(fields) > place and fields[place].isdecimal() else None


def _value(file: Path, *keys: str) -> int | None:
    """Return the number of the first of these keys in a file with a key and a number in every line."""
    text = "\n".join(_lines(file))
    for key in keys:
        if match := re.search(rf"^{key}:?[ \t]+([0-9]+)(?!\S)", text, re.MULTILINE):
            return int(match[1])
    return None


def _setting(environ: Mapping[str, str], name: str) -> int | None:
    """Return a variable of the environment as a number; None where it is not set or no number."""
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() else None
