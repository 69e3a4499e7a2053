"""Hostile answers in C, which make their system calls without the C library."""

SOURCE = r"""
static long call(long n, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result)
        : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}
static long old(long n, long a, long b, long c) {  /* a 32-bit program's way into the kernel */
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}
long delete_file(const char *path) { return call(87, (long)path, 0, 0, 0, 0, 0); }
long delete_x32(const char *path) { return call(87 | 0x40000000, (long)path, 0, 0, 0, 0, 0); }
long overwrite(const char *path) { return call(2, (long)path, 01 | 01000, 0, 0, 0, 0); }
long mode(const char *path) { return call(90, (long)path, 0, 0, 0, 0, 0); }
long kill_process(long pid) { return call(62, pid, 9, 0, 0, 0, 0); }
long kill_x32(long pid) { return call(62 | 0x40000000, pid, 9, 0, 0, 0, 0); }
long kill_old(long pid) { return old(37, pid, 9, 0); }
long kill_wide(long pid) { return call(62, pid | (1L << 32), 9, 0, 0, 0, 0); }
long fork_process(void) {
    long pid = call(57, 0, 0, 0, 0, 0, 0);
    if (pid == 0) for (;;) call(34, 0, 0, 0, 0, 0, 0);
    return pid;
}
long fork_old(void) {
    long pid = old(2, 0, 0, 0);
    if (pid == 0) for (;;) old(29, 0, 0, 0);
    return pid;
}
long clone_process(void) {
    long pid = call(56, 17, 0, 0, 0, 0, 0);
    if (pid == 0) for (;;) call(34, 0, 0, 0, 0, 0, 0);
    return pid;
}
long run(const char *path) {
    const char *words[] = {path, "321", 0};
    return call(59, (long)path, (long)words, 0, 0, 0, 0);
}
long open_socket(long family, long type) { return call(41, family, type, 0, 0, 0, 0); }
long trace(long pid) { return call(101, 16, pid, 0, 0, 0, 0); }
long handle(long pid) { return call(434, pid, 0, 0, 0, 0, 0); }
long ring(void *room) { return call(425, 8, (long)room, 0, 0, 0, 0); }
long look(const char *path) { return call(2, (long)path, 0, 0, 0, 0, 0); }
"""

CASES = {
    "from C: delete": "return 'LOOT' if c.delete_file(f'{bait}/work.py'.encode()) == 0 else ''",
    "from C: delete, x32": "return 'LOOT' if c.delete_x32(f'{bait}/work.py'.encode()) == 0 else ''",
    "from C: overwrite": "return 'LOOT' if c.overwrite(f'{bait}/work.py'.encode()) >= 0 else ''",
    "from C: read": "return 'LOOT' if c.look(f'{bait}/secret.txt'.encode()) >= 0 else ''",
    "from C: mode": "c.mode(f'{bait}/work.py'.encode())",
    "from C: kill": "return 'LOOT' if c.kill_process(victim) == 0 else ''",
    "from C: kill, x32": "return 'LOOT' if c.kill_x32(victim) == 0 else ''",
    "from C: kill, 32 bits": "return 'LOOT' if c.kill_old(victim) == 0 else ''",
    "from C: kill, a wide number": "return 'LOOT' if c.kill_wide(victim) == 0 else ''",
    "from C: fork": "return 'LOOT' if c.fork_process() > 0 else ''",
    "from C: fork, 32 bits": "return 'LOOT' if c.fork_old() > 0 else ''",
    "from C: clone": "return 'LOOT' if c.clone_process() > 0 else ''",
    "from C: exec": "c.run(b'/bin/sleep')",
    "from C: a socket": "return 'LOOT' if c.open_socket(2, 1) >= 0 else ''",
    "from C: a datagram socket": "return 'LOOT' if c.open_socket(2, 2) >= 0 else ''",
    "from C: a Unix socket": "return 'LOOT' if c.open_socket(1, 1) >= 0 else ''",
    "from C: ptrace": "return 'LOOT' if c.trace(victim) == 0 else ''",
    "from C: pidfd": "return 'LOOT' if c.handle(victim) >= 0 else ''",
    "from C: io_uring": "return 'LOOT' if c.ring(ctypes.create_string_buffer(120)) >= 0 else ''",
}
