"""Hostile answers that look for what they should not know: expected values, secrets."""

CASES = {
    "the suite's text": "return 'LOOT' + open(suite).read()",
    "the solution's text": """
        return 'LOOT' + open(f'{course}/solutions/00_ranks/sum_orders.py').read()""",
    "the reference's text": """
        import os
        return 'LOOT' if os.listdir(f'{course}/grading/references') else ''""",
    "the suite by import": "import grading.references.attention.causal; return 'LOOT'",
    "the judge by import": "import importlib; "
    "importlib._bootstrap._gcd_import('course_lib.grade.judge.trial'); return 'LOOT'",
    "suites in sys.modules": """
        import sys
        return ' '.join('LOOT' + m for m in sys.modules if m.startswith(('grading', 'solutions'))
                        or 'grade.suite' in m or 'grade.judge' in m or 'grade.teach' in m)""",
    "checks among all objects": """
        import gc
        return ' '.join('LOOT' for o in gc.get_objects() if type(o).__name__ in
                        ('Check', 'Exercise', 'Card', 'Bench', 'Trial', 'Secret'))""",
    "functions named check_": """
        import gc, types
        return ' '.join('LOOT' + o.__name__ for o in gc.get_objects()
                        if isinstance(o, types.FunctionType) and o.__name__.startswith('check_')
                        and 'suites' in o.__code__.co_filename)""",
    "own memory": """
        found = 0
        with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
            for line in maps:
                a, b = (int(x, 16) for x in line.split()[0].split('-'))
                try:
                    memory.seek(a)
                    here = memory.read(b - a)
                except (OSError, ValueError, OverflowError): continue
                found += any(w[:7] + b'-' + w[7:] in here for w in (needle, secret))
        return 'LOOT' * found""",
    "frames above": """
        import sys
        f = sys._getframe(); seen = ''
        f = f.f_back
        while f:
            seen += ' '.join([*f.f_locals, *f.f_globals, f.f_code.co_filename]) + ' '
            f = f.f_back
        found = ('check_', 'expected', 'seed ', 'judge/', 'suite/')
        return ' '.join('LOOT' + word for word in found if word in seen)""",
    "the environment": """
        import os
        return ' '.join(os.environ.values())""",
    "the environment in memory": "return open('/proc/self/environ').read()",
    "the command line of all": """
        import glob
        return ' '.join('LOOT' for p in glob.glob('/proc/[0-9]*/cmdline')
                        if str(victim) in p and open(p).read())""",
    "the seed": """
        import gc
        return 'LOOT' if any(isinstance(o, dict) and o.get('seed') == seed + 1
                             for o in gc.get_objects()) else ''""",
    "others' temporary folders": """
        import os, tempfile
        return ' '.join(['LOOT', *os.listdir(tempfile.gettempdir()), *os.listdir('..')])""",
    "the other rank's memory": """
        import glob, os
        for p in glob.glob('/proc/[0-9]*/mem'):
            if p != f'/proc/{os.getpid()}/mem':
                try: open(p, 'rb'); return 'LOOT'
                except OSError: pass""",
    "home": "import os; return 'LOOT' if os.listdir(os.path.expanduser('~root')) else ''",
    "the users": "return 'LOOT' + open('/etc/shadow').read()",
    "bytecode in the course": """
        import glob
        return 'LOOT' if glob.glob(f'{course}/grading/**/*.pyc', recursive=True) else ''""",
    "git's objects": "import os; return 'LOOT' if os.listdir(f'{course}/.git') else ''",
    "an exception's text": "raise ValueError(open(f'{bait}/secret.txt').read())",
    "a warning's source line": """
        import traceback, warnings
        return warnings.formatwarning('x', Warning, f'{bait}/secret.txt', 1)""",
    "a lock on a file that all may read": """
        import fcntl, os, torch
        fcntl.flock(os.open(torch.__file__, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return 'LOOT'""",
    "a lease on a file that all may read": """
        import fcntl, os, torch
        fcntl.fcntl(os.open(torch.__file__, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return 'LOOT'""",
    "who reads a file that all may read": """
        import ctypes
        return 'LOOT' if ctypes.CDLL(None).inotify_init1(0) >= 0 else ''""",
    "a word of a file that all may read": """
        import ctypes, mmap, os, torch
        m = mmap.mmap(os.open(torch.__file__, os.O_RDONLY), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
        word = torch.frombuffer(m, dtype=torch.uint8).data_ptr()
        c = ctypes.CDLL(None)
        one = ctypes.c_void_p(word)
        def wait(): c.syscall(202 if os.uname().machine == 'x86_64' else 98, one, 0,
                              ctypes.c_uint32.from_address(word).value, bytes(16), None, 0)
        import threading, time
        threading.Thread(target=wait, daemon=True).start(); time.sleep(0.2)
        wakes = [c.syscall(202 if os.uname().machine == 'x86_64' else 98, one, 1, 1, None, None, 0)
                 for _ in range(9)]
        return 'LOOT' if any(w > 0 for w in wakes) else ''""",
    "another's priority": "import os; os.getpriority(os.PRIO_PROCESS, victim); return 'LOOT'",
    "another's processors": "import os; os.sched_getaffinity(victim); return 'LOOT'",
    "a rank's folder by its number": """
        import os
        return 'LOOT' if len(os.path.basename(os.getcwd())) < 9 else ''""",
}
