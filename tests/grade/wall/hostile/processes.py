"""Hostile answers that start processes, or touch others: none may be left, none hurt."""

CASES = {
    "fork": """
        import os
        if not os.fork(): os.execvp('sleep', ['sleep', '321'])""",
    "a daemon": """
        import os, time
        if not os.fork():
            os.setsid()
            if not os.fork(): time.sleep(321)
            os._exit(0)""",
    "subprocess": "import subprocess; subprocess.Popen(['sleep', '321'], start_new_session=True)",
    "os.system": "import os; os.system(f'sleep 321 & rm -rf {bait}')",
    "os.popen": "import os; return os.popen(f'cat {bait}/secret.txt').read()",
    "posix_spawn": """
        import os
        os.posix_spawn('/bin/sleep', ['sleep', '321'], {}, setsid=True)""",
    "_posixsubprocess": """
        import _posixsubprocess as p, os
        r, w = os.pipe()
        p.fork_exec([b'sleep', b'321'], [b'/bin/sleep'], True, (w,), None, None, -1, -1, -1, -1, -1,
                    -1, r, w, False, True, -1, None, None, None, -1, None, True)""",
    "exec in place": "import os; os.execvp('sleep', ['sleep', '321'])",
    "clone by ctypes": """
        import ctypes
        if not ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0): ctypes.CDLL(None).pause()""",
    "clone3 by ctypes": """
        import ctypes, struct
        args = struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0)
        if not ctypes.CDLL(None).syscall(435, args, 64): ctypes.CDLL(None).pause()""",
    "vfork by ctypes": """
        import ctypes
        if not ctypes.CDLL(None).syscall(58): ctypes.CDLL(None)._exit(0)""",
    "multiprocessing": """
        import multiprocessing as m, time
        m.get_context('fork').Process(target=time.sleep, args=(321,)).start()""",
    "multiprocessing spawned": """
        import multiprocessing as m, time
        m.get_context('spawn').Process(target=time.sleep, args=(321,)).start()""",
    "a pool of futures": """
        from concurrent.futures import ProcessPoolExecutor
        import time
        ProcessPoolExecutor(2).submit(time.sleep, 321)""",
    "torch.multiprocessing": """
        import time, torch.multiprocessing as m
        m.spawn(time.sleep, nprocs=2, join=False)""",
    "a DataLoader's workers": """
        import torch
        return len(list(torch.utils.data.DataLoader(list(range(4)), num_workers=2)))""",
    "pty.fork": "import pty, time\nif not pty.fork()[0]: time.sleep(321)",
    "a fork bomb": """
        import os
        for _ in range(6): os.fork()
        import time; time.sleep(321)""",
    "kill": "import os, signal; os.kill(victim, signal.SIGKILL)",
    "kill of the parent": "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
    "kill of the group": "import os, signal; os.killpg(0, signal.SIGSTOP)",
    "kill of all": "import os; os.kill(-1, 0); return 'LOOT'",
    "kill by ctypes": "import ctypes; ctypes.CDLL(None).kill(victim, 9)",
    "tgkill by ctypes": "import ctypes; ctypes.CDLL(None).syscall(234, victim, victim, 9)",
    "pidfd_send_signal": """
        import os, signal
        signal.pidfd_send_signal(os.pidfd_open(victim), 9)""",
    "sigqueue": "import ctypes; ctypes.CDLL(None).sigqueue(victim, 9, 0)",
    "a signal by F_SETOWN": """
        import fcntl, os, signal
        r, w = os.pipe()
        fcntl.fcntl(r, fcntl.F_SETOWN, victim); fcntl.fcntl(r, 10, signal.SIGKILL)
        fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK); os.write(w, b'x')""",
    "ptrace": """
        import ctypes
        c = ctypes.CDLL(None); c.ptrace(16, victim, 0, 0)""",
    "process_vm_readv": """
        import ctypes
        class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]
        maps = [l for l in open(f'/proc/{victim}/maps') if 'rw-p' in l and '[heap]' in l][0]
        start = int(maps.split('-')[0], 16); buf = ctypes.create_string_buffer(8)
        n = ctypes.CDLL(None).process_vm_readv(
            victim, ctypes.byref(V(ctypes.addressof(buf), 8)), 1, ctypes.byref(V(start, 8)), 1, 0)
        return 'LOOT' if n == 8 else ''""",
    "the parent's memory": """
        import os
        open(f'/proc/{os.getppid()}/mem', 'r+b'); return 'LOOT'""",
    "the parent's environment": """
        import os
        return 'LOOT' + open(f'/proc/{os.getppid()}/environ').read()""",
    "the parent's descriptors": """
        import os
        return 'LOOT' if os.listdir(f'/proc/{os.getppid()}/fd') else ''""",
    "the victim's descriptor by pidfd_getfd": """
        import ctypes, os
        fd = ctypes.CDLL(None).syscall(438, os.pidfd_open(victim), 1, 0)
        return 'LOOT' if fd >= 0 else ''""",
    "the victim's priority": "import os; os.setpriority(os.PRIO_PROCESS, victim, 19)",
    "the victim's processors": "import os; os.sched_setaffinity(victim, {0})",
    "the victim's limits": """
        import resource
        resource.prlimit(victim, resource.RLIMIT_CPU, (0, 0))""",
    "leave the session": "import os, time; os.setsid(); time.sleep(321)",
    "another user": "import os; os.setuid(12345); return 'LOOT'",
    "a thread that goes on": """
        import threading, time
        threading.Thread(target=time.sleep, args=(321,)).start()""",
    "a clock that is set": """
        import time
        time.clock_settime(time.CLOCK_REALTIME, time.time()); return 'LOOT'""",
    "reboot": "import ctypes; ctypes.CDLL(None).syscall(169, 0, 0, 0, 0)",
    "a tracer's program (bpf)": """
        import ctypes
        return 'LOOT' if ctypes.CDLL(None).syscall(321, 0, bytes(128), 128) >= 0 else ''""",
    "perf_event_open": """
        import ctypes, struct
        a = struct.pack('IIQ', 1, 128, 0) + bytes(112)
        return 'LOOT' if ctypes.CDLL(None).syscall(298, a, victim, -1, -1, 0) >= 0 else ''""",
    "userfaultfd": "import ctypes; return 'LOOT' if ctypes.CDLL(None).syscall(323, 0) >= 0 else ''",
    "a key in the kernel's keyring": """
        import ctypes
        k = ctypes.CDLL(None).syscall(248, b'user', b'wall', b'mine', 4, -4)
        return 'LOOT' if k >= 0 else ''""",
    "the priority of a whole group": """
        import os  # the one that they have: what counts is whether it can be set
        os.setpriority(os.PRIO_PGRP, 0, os.getpriority(os.PRIO_PROCESS, 0)); return 'LOOT'""",
    "the disk priority of a whole user": """
        import ctypes
        return 'LOOT' if ctypes.CDLL(None).syscall(251, 2, 0, 4 + (2 << 13)) >= 0 else ''""",
}
