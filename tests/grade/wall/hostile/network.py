"""Hostile answers that talk to others: no packet leaves, and no listener is reached."""

CASES = {
    "TCP": "import socket; socket.create_connection(('127.0.0.1', port)).send(b'loot')",
    "UDP": """
        import socket
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'loot', ('127.0.0.1', port))""",
    "UDP over IPv6": """
        import socket
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'loot', ('::1', port))""",
    "a raw socket": """
        import socket
        s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP); return 'LOOT'""",
    "a packet socket": "import socket; socket.socket(17, socket.SOCK_RAW); return 'LOOT'",
    "a netlink socket": "import socket; socket.socket(16, socket.SOCK_RAW); return 'LOOT'",
    "a Unix socket": """
        import socket
        s = socket.socket(socket.AF_UNIX); s.connect(f'{bait}/listener'); s.send(b'loot')""",
    "a Unix datagram": """
        import socket
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.sendto(b'loot', f'{bait}/datagrams')""",
    "an abstract socket": """
        import socket
        s = socket.socket(socket.AF_UNIX); s.connect('\\0' + abstract); s.send(b'loot')""",
    "AF_ALG": "import socket; socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET); return 'LOOT'",
    "vsock": "import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); return 'LOOT'",
    "a socket by ctypes": """
        import ctypes
        return 'LOOT' if ctypes.CDLL(None).socket(2, 1, 0) >= 0 else ''""",
    "TCPStore as a client": """
        import datetime, torch.distributed as d
        d.TCPStore('127.0.0.1', port, is_master=False, timeout=datetime.timedelta(seconds=1))""",
    "TCPStore as a server": """
        import torch.distributed as d
        d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False); return 'LOOT'""",
    "urllib": "import urllib.request as u; u.urlopen(f'http://127.0.0.1:{port}/', timeout=1)",
    "asyncio": """
        import asyncio
        async def go(): (await asyncio.open_connection('127.0.0.1', port))[1].write(b'loot')
        asyncio.run(go())""",
    "torch.hub": """
        import torch
        torch.hub.download_url_to_file(f'http://127.0.0.1:{port}/', 'x', progress=False)""",
    "a name looked up": "import socket; socket.gethostbyname('localhost.localdomain')",
    "a server of its own": """
        import socket
        s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); return 'LOOT'""",
    "a process group of its own": """
        import torch.distributed as d
        d.init_process_group('gloo', init_method='tcp://127.0.0.1:0', rank=0, world_size=1)
        return 'LOOT'""",
    "rpc": """
        import torch.distributed.rpc as r
        r.init_rpc('x', rank=0, world_size=1); return 'LOOT'""",
    "a descriptor handed by SCM_RIGHTS": """
        import socket
        for fd in range(3, 64):
            try: s = socket.socket(fileno=fd)
            except OSError: continue
            socket.send_fds(s, [b'x'], [0])""",
    "an open file that is on its way to itself": """
        import socket
        (there, here), file = socket.socketpair(), open('f', 'w')
        socket.send_fds(there, [b'x'], [file.fileno()]); return 'LOOT'""",
    "a message queue of the machine": """
        import ctypes
        return 'LOOT' if ctypes.CDLL(None).syscall(68, 4711, 0o1600) >= 0 else ''""",
    "a System V segment": """
        import ctypes
        return 'LOOT' if ctypes.CDLL(None).shmget(4711, 4096, 0o1600) >= 0 else ''""",
    "a POSIX queue": """
        import ctypes
        return 'LOOT' if ctypes.CDLL(None).mq_open(b'/wall', 0o102, 0o600, None) >= 0 else ''""",
}
