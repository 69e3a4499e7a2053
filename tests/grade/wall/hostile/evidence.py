"""Hostile answers that would be believed: a wrong result must stay wrong, whatever is patched."""

# `forged` is what the judge must not take for the answer's result; it comes back only if the
# machinery between the answer's process and the judge was turned.
CASES = {
    "writes to every descriptor": """
        import os
        for fd in range(3, 256):
            for said in (b'{"result": "LOOT"}\\n', bytes(8), b'\\xff' * 64):
                try: os.write(fd, said)
                except OSError: pass
        return 1""",
    "closes every descriptor": "import os; os.closerange(3, 256); return 1",
    "swaps descriptors": """
        import os
        for a in range(3, 32):
            try: os.dup2(1, a)
            except OSError: pass
        return 1""",
    "patches the packing": """
        import sys
        p = sys.modules['course_lib.grade.rank.payload']
        for n in dir(p):
            if callable(getattr(p, n)): setattr(p, n, lambda *a, **k: b'LOOT')
        return 1""",
    "patches json": "import json; json.dumps = lambda *a, **k: '\"LOOT\"'; return 1",
    "patches the driver's frame": """
        import ctypes, sys
        f = sys._getframe(1)
        f.f_locals.update(result='LOOT')
        return 1""",
    "replaces code of the process's functions": """
        import gc, types
        def lie(*a, **k): return 'LOOT'
        for o in gc.get_objects():
            if isinstance(o, types.FunctionType) and 'course_lib/grade' in o.__code__.co_filename:
                try: o.__code__ = lie.__code__
                except ValueError: pass
        return 1""",
    "an import hook": """
        import sys
        class Hook:
            def find_spec(self, name, *a): raise SystemExit(0)
        sys.meta_path.insert(0, Hook()); return 1""",
    "a trace function": """
        import sys, threading
        sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None); return 1""",
    "excepthook and exit": """
        import sys, os
        sys.excepthook = lambda *a: os._exit(0); raise KeyError('x')""",
    "an exception that lies about itself": """
        class Lie(Exception):
            def __str__(self): raise SystemExit(0)
            __repr__ = __str__
        raise Lie""",
    "a BaseException": "raise BaseException('x')",
    "GeneratorExit": "raise GeneratorExit",
    "a result with a lying class": """
        class Yes(int):
            def __eq__(self, o): return True
            __hash__ = int.__hash__
        return Yes(7)""",
    "a tensor with a lying class": """
        import torch
        class Yes(torch.Tensor):
            @classmethod
            def __torch_function__(cls, f, t, a=(), k=None): return True
        return torch.ones(2).as_subclass(Yes)""",
    "a result that never ends": """
        class Long(list):
            def __iter__(self):
                while True: yield 1
        return Long([1])""",
    "a result in itself": "x = []; x.append(x); return x",
    "a result of a gigabyte": "return 'x' * (1 << 30)",
    "a result deep in lists": "x = []\n        for _ in range(100000): x = [x]\n        return x",
    "a quantized tensor": """
        import torch
        return torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8)""",
    "a quantized dtype": "import torch; return [torch.qint8, torch.quint4x2]",
    "a dtype that ends torch, told by hand": """
        import gc, time
        for o in gc.get_objects():
            if type(o).__name__ == 'Rank':
                o._channel.send({'say': 'done', 'output': {'tensor': ['qint8', [4], 0, 4]},
                                 'ledger': {}, 'calls': [], 'threads': []}, bytes(4))
        time.sleep(1)""",
    "a tensor of a size that its bytes do not have": """
        import gc, time
        for o in gc.get_objects():
            if type(o).__name__ == 'Rank':
                o._channel.send({'say': 'done', 'output': {'tensor': ['int8', [1 << 40], 0, 0]},
                                 'ledger': {}, 'calls': [], 'threads': []})
        time.sleep(1)""",
}
