# Exchanges two names (renameat2 RENAME_EXCHANGE) in an endless loop; both names exist at all times.
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
pairs = [(a.encode(), b.encode()) for a, b in zip(sys.argv[1::2], sys.argv[2::2])]
for a, b in pairs:
    if libc.renameat2(-100, a, -100, b, 2) != 0:
        sys.exit("renameat2: errno %d" % ctypes.get_errno())
print("ready", flush=True)
while True:
    for a, b in pairs:
        libc.renameat2(-100, a, -100, b, 2)
