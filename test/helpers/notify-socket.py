"""Plays systemd's notify socket: prints each message as one JSON line. argv: the path, or @name in the abstract space."""
import json
import socket
import sys

name = sys.argv[1]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind("\0" + name[1:] if name.startswith("@") else name)
print(json.dumps("bound"), flush=True)
while True:
    # Descriptors that come along are dropped with their message; systemd-notify waits for that after each of its own.
    message = listener.recv(65536).decode()
    if message != "BARRIER=1":
        print(json.dumps(message), flush=True)
