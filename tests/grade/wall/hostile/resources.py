"""Hostile answers that take all of something: there is a verdict all the same."""

CASES = {
    "all memory": "x = []\n        while True: x.append(bytearray(1 << 26))",
    "memory that is mapped": """
        import mmap
        x = [mmap.mmap(-1, 1 << 40) for _ in range(999)]; return 'LOOT'""",
    "a tensor of a terabyte": "import torch; torch.ones(1 << 40); return 'LOOT'",
    "all descriptors": "x = [open('f%d' % i, 'w') for i in range(100_000)]; return 'LOOT'",
    "all pipes": "import os\n        while True: os.pipe()",
    "all threads": """
        import threading, time
        for _ in range(100_000): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
        return 'LOOT'""",
    "a file without end": """
        f = open('big', 'wb')
        while True: f.write(bytes(1 << 24)); f.flush()""",
    "a sparse file": "f = open('big', 'wb'); f.truncate(1 << 50); return 'LOOT'",
    "fallocate": """
        import os
        os.posix_fallocate(os.open('big', os.O_RDWR | os.O_CREAT), 0, 1 << 38); return 'LOOT'""",
    "a million files": "for i in range(10**6): open('n%d' % i, 'w').close()",
    "memfd": """
        import os
        fd = os.memfd_create('x')
        while True: os.write(fd, bytes(1 << 24))""",
    "a flood of output": "while True: print('x' * 99999)",
    "a flood on descriptor 2": "import os\n        while True: os.write(2, b'x' * 65536)",
    "a loop": "while True: pass",
    "a loop in C": "sum(range(10**14))",
    "a sleep": "import time; time.sleep(10**6)",
    "a read of a FIFO": "import os; os.mkfifo('p'); open('p')",
    "a stopped process": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "signals ignored": """
        import signal, time
        for s in range(1, 65):
            try: signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: time.sleep(1)""",
    "a folder that nobody can delete": """
        import os
        for _ in range(2000): os.mkdir('d'); os.chdir('d')""",
    "names that are no text": "import os; os.mkdir(b'\\xff\\xfe'); open(b'\\xff\\xfe/x', 'w')",
    "a folder without rights": "import os; os.makedirs('a/b'); os.chmod('a', 0)",
    "a deep recursion": """
        import sys
        sys.setrecursionlimit(10**9)
        def f(): f()
        f()""",
    "a segmentation fault": "import ctypes; ctypes.string_at(0)",
    "abort": "import os; os.abort()",
    "exit with success": "import os; os._exit(0)",
    "a regular expression": "import re; re.match('(a+)+$', 'a' * 64 + 'b')",
    "an integer's text": "import sys; sys.set_int_max_str_digits(0); str(1 << 40_000_000)",
    "marks without end": """
        import gc, json, struct
        told = json.dumps(['m' * 1_000_000, 0]).encode()
        [link] = [o for o in gc.get_objects() if type(o).__name__ == 'Link']
        while True: link._sock.sendall(struct.pack('<I', len(told)) + told)""",
    "a hundred thousand folders": """
        import os
        for n in range(100_000): os.mkdir(str(n))
        return 'LOOT'""",
    "lists for a judge's memory": "return [[] for _ in range(20_000_000)]",
    "files without a name": """
        import os
        for n in range(4):
            file = os.open('f', os.O_RDWR | os.O_CREAT); os.unlink('f')
            for _ in range(63): os.write(file, bytes(1 << 24))
        return 'LOOT'""",
    "fallocate, again and again": """
        import os
        for n in range(9): os.posix_fallocate(os.open(str(n), os.O_RDWR | os.O_CREAT), 0, 1 << 30)
        return 'LOOT'""",
    "small threads": """
        import threading, time
        threading.stack_size(1 << 15)
        for _ in range(2000): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
        time.sleep(1); return 'LOOT'""",
    "large buffers of sockets": """
        import socket
        socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        return 'LOOT'""",
    "short marks without end": """
        import gc, json, struct
        told = json.dumps(['', 0]).encode()
        [link] = [o for o in gc.get_objects() if type(o).__name__ == 'Link']
        while True: link._sock.sendall((struct.pack('<I', len(told)) + told) * 9999)""",
}
