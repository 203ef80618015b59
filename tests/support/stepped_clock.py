"""A wall clock that can be set for some processes only, while they run.

A shared object, preloaded, adds what a small file says to ``CLOCK_REALTIME``, for the interpreter's
own calls: a time that Python takes. Native code keeps the machine's: it hands absolute times to the
kernel, whose clock is not set.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from tests.support.parts import require

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static long *offset;
static unsigned long ranges[4][2];
static int count, begun;

/* The code of the program and of libpython, whose calls are the interpreter's. */
static int note(struct dl_phdr_info *info, size_t size, void *first) {
    (void)size;
    int program = (*(int *)first)++ == 0;
    if (!program && !strstr(info->dlpi_name, "libpython")) return 0;
    for (int i = 0; i < info->dlpi_phnum && count < 4; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        ranges[count][0] = info->dlpi_addr + part->p_vaddr;
        ranges[count++][1] = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    int objects = 0;
    const char *path = getenv("STEPPED_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    dl_iterate_phdr(note, &objects);
    if (file >= 0) {
        void *seen = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        if (seen != MAP_FAILED) offset = seen;
        close(file);
    }
    begun = 1;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    unsigned long caller = (unsigned long)__builtin_return_address(0);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (failed || clock != CLOCK_REALTIME || !begun || !offset) return failed;
    for (int i = 0; i < count; i++)
        if (caller >= ranges[i][0] && caller < ranges[i][1]) now->tv_sec += *offset;
    return failed;
}
"""


class SteppedClock:
    """The clock of all processes that run with ``environ``. Skips without a C compiler."""

    def __init__(self, folder: Path) -> None:
        self._file, self._library = folder / "clock", folder / "stepped_clock.so"
        source = folder / "stepped_clock.c"
        source.write_text(_SOURCE)
        compile_it = [require("cc"), "-shared", "-fPIC", "-O1", "-o", str(self._library)]
        subprocess.run([*compile_it, str(source), "-ldl"], check=True, timeout=60)
        self._file.write_bytes(struct.pack("l", 0))

    @property
    def environ(self) -> dict[str, str]:
        """Variables for the processes whose clock it is."""
        return {"LD_PRELOAD": str(self._library), "STEPPED_CLOCK_FILE": str(self._file)}

    def set(self, seconds: int) -> None:
        """The wall clock is so far from the machine's from now on."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("l", seconds))
