"""Hostile answers that reach for files: what lies outside must neither be read nor change."""

CASES = {
    "rmtree of the learner's exercises": "import shutil; shutil.rmtree(bait)",
    "open for writing": "open(f'{bait}/work.py', 'w').write('gone')",
    "append": "open(f'{bait}/work.py', 'a').write('more')",
    "os.remove": "import os; os.remove(f'{bait}/work.py')",
    "os.unlink by a folder's descriptor": """
        import os
        os.unlink('work.py', dir_fd=os.open(bait, os.O_PATH))""",
    "rename out of the way": "import os; os.rename(f'{bait}/work.py', f'{bait}/x')",
    "rename into the run's folder": "import os; os.rename(f'{bait}/work.py', 'mine')",
    "replace by an own file": """
        import os
        open('mine', 'w').write('gone')
        os.replace('mine', f'{bait}/work.py')""",
    "truncate": "import os; os.truncate(f'{bait}/work.py', 0)",
    "truncate by ctypes": """
        import ctypes
        ctypes.CDLL(None).truncate(f'{bait}/work.py'.encode(), 0)""",
    "the system call itself": """
        import ctypes
        ctypes.CDLL(None).syscall(87, f'{bait}/work.py'.encode())  # unlink on x86-64
        ctypes.CDLL(None).syscall(35, -100, f'{bait}/work.py'.encode(), 0)  # unlinkat on arm64""",
    "a path with dots": "open(f'{bait}/../{bait.split(\"/\")[-1]}/work.py', 'w').write('gone')",
    "a bytes path": "open(f'{bait}/work.py'.encode(), 'w').write('gone')",
    "a str that lies to whoever compares it": """
        class Mine(str):
            def startswith(self, *a): return True
            def __fspath__(self): return f'{bait}/work.py'
        open(Mine('fine'), 'w').write('gone')""",
    "a symbolic link from inside": """
        import os
        os.symlink(f'{bait}/work.py', 'link')
        open('link', 'w').write('gone')""",
    "a symbolic link to read": """
        import os
        os.symlink(f'{bait}/secret.txt', 'link')
        return open('link').read()""",
    "a hard link": """
        import os
        os.link(f'{bait}/work.py', 'hard')
        open('hard', 'w').write('gone')""",
    "a hard link to read": """
        import os
        os.link(f'{bait}/secret.txt', 'hard')
        return open('hard').read()""",
    "chmod": "import os; os.chmod(f'{bait}/work.py', 0)",
    "utime": "import os; os.utime(f'{bait}/work.py', (0, 0))",
    "xattr": "import os; os.setxattr(f'{bait}/work.py', 'user.mine', b'1')",
    "chown": "import os; os.chown(f'{bait}/work.py', 12345, 12345)",
    "mkdir": "import os; os.makedirs(f'{bait}/new/deep')",
    "rmdir": "import os; os.rmdir(f'{bait}/empty')",
    "mkfifo": "import os; os.mkfifo(f'{bait}/pipe')",
    "mknod": "import os; os.mknod(f'{bait}/node')",
    "a git hook": "open(f'{bait}/.git/hooks/pre-commit', 'w').write('#!/bin/sh')",
    "a .pth among the packages": "open(f'{bait}/site-packages/x.pth', 'w').write('import os')",
    "a shell's start-up file": "open(f'{bait}/.bashrc', 'a').write('echo mine')",
    "shared memory of the machine": "open(f'{shm}', 'w').write('gone')",
    "POSIX shared memory": """
        from multiprocessing import shared_memory
        shared_memory.SharedMemory(shm.split('/')[-1]).buf[:4] = b'gone'""",
    "shm_open by ctypes": """
        import ctypes, os
        fd = ctypes.CDLL(None).shm_open(('/' + shm.split('/')[-1]).encode(), os.O_RDWR, 0o600)
        os.write(fd, b'gone')""",
    "sqlite writes": """
        import sqlite3
        c = sqlite3.connect(f'{bait}/new.db'); c.execute('create table t(x)'); c.commit()""",
    "sqlite attaches": """
        import sqlite3
        c = sqlite3.connect(':memory:'); c.execute(f"attach '{bait}/new.db' as d")
        c.execute('create table d.t(x)'); c.commit()""",
    "mmap": """
        import mmap
        with open(f'{bait}/work.py', 'r+b') as f: mmap.mmap(f.fileno(), 0)[:4] = b'gone'""",
    "numpy's memmap": """
        import numpy
        numpy.memmap(f'{bait}/work.py', mode='r+', dtype='u1')[:4] = 0""",
    "torch.from_file writes": """
        import torch
        torch.from_file(f'{bait}/work.py', shared=True, size=4, dtype=torch.uint8).fill_(0)""",
    "torch.from_file reads": """
        import torch
        t = torch.from_file(f'{bait}/secret.txt', size=17, dtype=torch.uint8)
        return bytes(t.tolist()).decode(errors='replace')""",
    "torch.save": "import torch; torch.save(torch.ones(2), f'{bait}/work.py')",
    "torch's C++ file writer": """
        import torch
        torch._C.PyTorchFileWriter(f'{bait}/work.py')""",
    "a scripted module": """
        import torch
        class M(torch.nn.Module):
            def forward(self, x): return x
        torch.jit.trace(M(), torch.ones(1)).save(f'{bait}/work.py')""",
    "C++'s own ofstream by a profiler's trace": """
        import torch
        with torch.profiler.profile() as p: torch.ones(1)
        p.export_chrome_trace(f'{bait}/work.py')""",
    "logging to a file": """
        import logging
        logging.FileHandler(f'{bait}/work.py').emit(logging.makeLogRecord({'msg': 'x'}))""",
    "faulthandler": """
        import faulthandler, os
        faulthandler.dump_traceback(os.open(f'{bait}/work.py', os.O_WRONLY))""",
    "a tar with dots in its names": """
        import io, tarfile
        with tarfile.open('t.tar', 'w') as t:
            i = tarfile.TarInfo(f'{bait}/work.py'); i.size = 4; t.addfile(i, io.BytesIO(b'gone'))
        tarfile.open('t.tar').extractall('/', filter='fully_trusted')""",
    "copies a file out": """
        import shutil
        return open(shutil.copy(f'{bait}/secret.txt', 'c')).read()""",
    "sendfile": """
        import os
        out = os.open('out', os.O_RDWR | os.O_CREAT)
        os.sendfile(out, os.open(f'{bait}/secret.txt', os.O_RDONLY), 0, 99)
        return open('out').read()""",
    "lists names outside": "import os; return ' '.join(os.listdir(f'{bait}/names'))",
    "globs names outside": "import glob; return ' '.join(glob.glob(f'{bait}/names/*'))",
    "linecache": "import linecache; return linecache.getline(f'{bait}/secret.txt', 1)",
    "runpy": """
        import runpy
        return runpy.run_path(f'{bait}/secret.py')['x']""",
    "an import from outside": """
        import sys
        sys.path.insert(0, bait); import secret; return secret.x""",
    "a loader of the import system": """
        from importlib.machinery import SourceFileLoader
        return SourceFileLoader('s', f'{bait}/secret.py').get_data(f'{bait}/secret.py').decode()""",
    "through /proc/self/root": "return open(f'/proc/self/root{bait}/secret.txt').read()",
    "writes through /proc/self/root": "open(f'/proc/self/root{bait}/work.py', 'w').write('gone')",
    "through /proc/self/cwd": "open('/proc/self/cwd/../../' + bait + '/work.py', 'w').write('g')",
    "descriptors that are open already": """
        import os
        loot = b''
        for fd in range(3, 256):
            try: loot += os.pread(fd, 4096, 0)
            except OSError: pass
            for name in ('work.py', 'secret.txt'):
                try: os.unlink(name, dir_fd=fd)
                except OSError: pass
        return loot.decode(errors='replace')""",
    "descriptors opened again by /proc/self/fd": """
        import os
        loot = ''
        for fd in os.listdir('/proc/self/fd'):
            try: loot += os.readlink(f'/proc/self/fd/{fd}') + ' '
            except OSError: pass
        for fd in range(256):
            try: open(f'/proc/self/fd/{fd}/../work.py', 'w').write('gone')
            except OSError: pass""",
    "mount over": """
        import ctypes
        ctypes.CDLL(None).mount(b'.', bait.encode(), None, 4096, None)""",
    "chroot": "import os; os.chroot(bait); return open('/secret.txt').read()",
    "a user namespace of its own": """
        import ctypes, os
        ctypes.CDLL(None).unshare(0x10020000)
        open(f'{bait}/work.py', 'w').write('gone')""",
    "open_by_handle_at": """
        import ctypes, os, struct
        c = ctypes.CDLL(None, use_errno=True)
        handle = ctypes.create_string_buffer(struct.pack('Ii', 120, 0) + bytes(120))
        m, name = ctypes.c_int(), f'{bait}/secret.txt'.encode()
        assert not c.name_to_handle_at(-100, name, handle, ctypes.byref(m), 0)
        mount = os.open('/', os.O_RDONLY)
        fd = c.open_by_handle_at(mount, handle, os.O_RDONLY)
        return os.read(fd, 99).decode()""",
    "io_uring": """
        import ctypes
        fd = ctypes.CDLL(None, use_errno=True).syscall(425, 8, bytes(120))
        return 'LOOT' if fd >= 0 else ''""",
    "from a thread of its own": """
        import threading, shutil
        t = threading.Thread(target=shutil.rmtree, args=(bait,)); t.start(); t.join()""",
    "when the process ends": "import atexit, shutil; atexit.register(shutil.rmtree, bait)",
    "when the object dies": """
        import shutil, sys
        class Last:
            def __del__(self, rm=shutil.rmtree, b=bait): rm(b)
        sys.mine = Last()""",
    "when a signal comes": """
        import shutil, signal
        signal.signal(signal.SIGALRM, lambda *_: shutil.rmtree(bait))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.pause()""",
    "a core dump's pattern": "open('/proc/sys/kernel/core_pattern', 'r+'); return 'LOOT'",
    "its own priority": "open('/proc/self/oom_score_adj', 'w').write('9'); return 'LOOT'",
    "flags of a file that all may read": """
        import fcntl, os, struct, torch
        file = os.open(torch.__file__, os.O_RDONLY)
        fcntl.ioctl(file, 0x40086602, struct.pack('q', 0x40)); return 'LOOT'  # FS_NODUMP_FL""",
    "flags by a newer call": """
        import ctypes
        flags = bytes([0x80]) + bytes(23)  # FS_XFLAG_NODUMP
        done = ctypes.CDLL(None).syscall(469, -100, f'{bait}/work.py'.encode(), flags, 24, 0)
        return 'LOOT' if done == 0 else ''""",
}
