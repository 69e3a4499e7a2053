"""Hostile answers that wait for the next student: nothing they leave may be there, or be used."""

from pathlib import Path

CASES = {
    "bytecode beside the library": """
        import py_compile
        open('evil.py', 'w').write('raise SystemExit(0)')
        py_compile.compile('evil.py', f'{course}/course_lib/grade/__pycache__/evil.pyc')
        return 'LOOT'""",
    "bytecode beside torch": """
        import os, torch
        open(os.path.join(os.path.dirname(torch.__file__), '__pycache__', 'evil.pyc'), 'wb')
        return 'LOOT'""",
    "a module in the course": "open(f'{course}/sitecustomize.py', 'x'); return 'LOOT'",
    "a file in /tmp": "open('/tmp/wall-evil', 'w'); return 'LOOT'",
    "a file in the temporary folder above": "open('../wall-evil', 'w'); return 'LOOT'",
    "a file in /var/tmp": "open('/var/tmp/wall-evil', 'w'); return 'LOOT'",
    "a file in /dev/shm": "open('/dev/shm/wall-evil', 'w'); return 'LOOT'",
    "a semaphore": "import multiprocessing as m; return 'LOOT' if m.Semaphore(1) else ''",
    "progress.json": "open(f'{course}/exercises/progress.json', 'a'); return 'LOOT'",
    "the library's file": "open(f'{course}/course_lib/__init__.py', 'a'); return 'LOOT'",
    "the file under test": "open(__file__, 'a'); return 'LOOT'",
    "inductor's cache": """
        import os, tempfile
        os.makedirs(tempfile.gettempdir() + '/torchinductor_root/wall', exist_ok=False)
        return 'LOOT' if not tempfile.gettempdir().startswith(os.getcwd()) else ''""",
    "torch.compile's cache in home": f"""
        import os
        os.makedirs({str(Path.home() / ".cache/wall")!r}); return 'LOOT'""",
    "the preloaded process's memory": """
        import os
        open(f'/proc/{os.getppid()}/mem', 'r+b'); return 'LOOT'""",
    "a lock on a file of the course": """
        import fcntl
        fcntl.flock(open(f'{course}/pyproject.toml'), fcntl.LOCK_EX); return 'LOOT'""",
    "shared pages of the library": """
        import ctypes, mmap, torch
        m = mmap.mmap(open(torch._C.__file__, 'r+b').fileno(), 4096); return 'LOOT'""",
    "a file descriptor's offset": """
        import os
        for fd in range(3, 64):
            try: os.lseek(fd, 0, os.SEEK_SET)
            except OSError: pass""",
    "non-blocking pipes": """
        import os
        for fd in range(0, 64):
            try: os.set_blocking(fd, False)
            except OSError: pass""",
    "the terminal": "import fcntl; fcntl.ioctl(open('/dev/tty', 'w'), 0x5412, b'x'); return 'LOOT'",
}
