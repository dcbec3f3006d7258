/** Entries that are read often and change seldom are decoded once: as long as one is the same buffer, it is the same value. */

/** `decode`, which is not asked again about a buffer that is known. What it returns is shared: nobody may change it. */
export function decodedOnce<T extends object>(decode: (bytes: Buffer) => T): (bytes: Buffer) => T {
  const known = new WeakMap<Buffer, T>()
  return (bytes) => {
    let value = known.get(bytes)
    if (value === undefined) known.set(bytes, (value = decode(bytes)))
    return value
  }
}
