"""Numbers of Linux's system calls, for the two processors whose numbers the filter knows."""

from __future__ import annotations

import platform

# What the kernel calls the processor in a filter, and the column of its numbers below.
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# name, number on x86_64, number on aarch64 (- where it has none); asm/unistd_64.h, asm-generic
TABLE = """
fork 57 -               vfork 58 -               clone 56 220             clone3 435 435
execve 59 221           execveat 322 281         kill 62 129              tkill 200 130
tgkill 234 131          rt_sigqueueinfo 129 138  rt_tgsigqueueinfo 297 240
pidfd_open 434 434      pidfd_send_signal 424 424                         pidfd_getfd 438 438
ptrace 101 117          process_vm_readv 310 270 process_vm_writev 311 271
process_madvise 440 440 process_mrelease 448 448 kcmp 312 272             prlimit64 302 261
setpriority 141 140     sched_setaffinity 203 122                         ioprio_set 251 30
sched_setscheduler 144 119                       sched_setparam 142 118   sched_setattr 314 274
migrate_pages 256 238   move_pages 279 239       setsid 112 157          setpgid 109 154
prctl 157 167           fcntl 72 25              ioctl 16 29              capset 126 91
socket 41 198           socketpair 53 199        connect 42 203           bind 49 200
listen 50 201           io_uring_setup 425 425   io_uring_enter 426 426
io_uring_register 427 427                        shmget 29 194            shmat 30 196
shmctl 31 195           msgget 68 186            msgsnd 69 189            msgrcv 70 188
msgctl 71 187           semget 64 190            semop 65 193             semctl 66 191
semtimedop 220 192      mq_open 240 180          mq_unlink 241 181        memfd_create 319 279
memfd_secret 447 447    chmod 90 -               fchmod 91 52             fchmodat 268 53
fchmodat2 452 452       chown 92 -               lchown 94 -              fchown 93 55
fchownat 260 54         setxattr 188 5           lsetxattr 189 6          fsetxattr 190 7
setxattrat 463 463      removexattr 197 14       lremovexattr 198 15      fremovexattr 199 16
removexattrat 466 466   utime 132 -              utimes 235 -             futimesat 261 -
utimensat 280 88        mount 165 40             umount2 166 39           pivot_root 155 41
chroot 161 51           move_mount 429 429       open_tree 428 428        fsopen 430 430
fsconfig 431 431        fsmount 432 432          fspick 433 433           mount_setattr 442 442
setns 308 268           unshare 272 97           swapon 167 224           swapoff 168 225
name_to_handle_at 303 264                        open_by_handle_at 304 265
bpf 321 280             perf_event_open 298 241  userfaultfd 323 282      add_key 248 217
request_key 249 218     keyctl 250 219           clock_settime 227 112    settimeofday 164 170
adjtimex 159 171        clock_adjtime 305 266    reboot 169 142           kexec_load 246 104
kexec_file_load 320 294 init_module 175 105      finit_module 313 273     delete_module 176 106
acct 163 89             quotactl 179 60          quotactl_fd 443 443      syslog 103 116
sethostname 170 161     setdomainname 171 162    fanotify_init 300 262    ioperm 173 -
iopl 172 -              vhangup 153 58           setuid 105 146           setgid 106 144
setreuid 113 145        setregid 114 143         setresuid 117 147        setresgid 119 149
setfsuid 122 151        setfsgid 123 152         setgroups 116 159
flock 73 32             inotify_init 253 -       inotify_init1 294 26
futex 202 98            getpriority 140 141      ioprio_get 252 31
sched_getaffinity 204 123                        sched_getattr 315 275
sched_getscheduler 145 120                       sched_getparam 143 121
sched_rr_get_interval 148 127                    fallocate 285 47
io_setup 206 0          setsockopt 54 208        sendmsg 46 211          sendmmsg 307 269
"""


def _numbers() -> dict[str, int]:
    if platform.machine() not in ARCHITECTURES:
        return {}
    _, column = ARCHITECTURES[platform.machine()]
    words = iter(TABLE.split())
    rows = zip(words, words, words, strict=True)
    return {name: int(both[column]) for name, *both in rows if both[column] != "-"}


# What the kernel has got since Linux 6.5 has the same number on both.
FIRST_OF_THE_NEWER = 451
NUMBERS = _numbers()  # each call's number on this processor; {} if its numbers are not known
