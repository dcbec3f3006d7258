"""Runs a command on a terminal of its own and prints what it wrote there, and then its exit code.

Arguments: columns, the text that something is typed behind (empty: never), the command. What is typed is in the
environment, TYPED; Ctrl-C without it. Of several things, with \x1e between them, each is typed behind the text's next
occurrence.
"""
import fcntl
import os
import pty
import select
import struct
import sys
import termios

columns, awaited, command = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3:]
typed = os.environ.pop("TYPED", "\x03").encode().split(b"\x1e")
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.execvp(command[0], command)
written = b""
looked = 0
while True:
    readable, _, _ = select.select([terminal], [], [], 0.05)
    if readable:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        written += piece
    if awaited and typed and awaited in written[looked:]:
        looked = len(written)
        os.write(terminal, typed.pop(0))
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(written)
sys.stdout.buffer.write(b"\nexit code %d\n" % os.waitstatus_to_exitcode(status))
