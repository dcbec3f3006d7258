/** Identifiers as the operator types them. */

const NAME_BYTES_MAX = 128

/**
 * What is wrong with a task's name, or undefined. It becomes a directory next to `alloc/` and the first part of the
 * names of log files, so it must be one path component and neither hidden nor `alloc`.
 */
export function faultOfTaskName(name: string): string | undefined {
  if (name === 'alloc') return 'is taken, name the task otherwise'
  // oxlint-disable-next-line no-control-regex -- control characters are what must not be in a name
  if (!/^[^./\u0000-\u001f\u007f][^/\u0000-\u001f\u007f]*$/.test(name)) {
    return 'must not begin with a dot or hold a slash or a control character'
  }
  return Buffer.byteLength(name) > NAME_BYTES_MAX ? `must be at most ${NAME_BYTES_MAX} bytes` : undefined
}

/** What is wrong with a name that is only shown and compared, or undefined. */
export function faultOfName(name: string): string | undefined {
  // oxlint-disable-next-line no-control-regex -- control characters are what must not be in a name
  if (/[\u0000-\u001f\u007f]/.test(name)) return 'must not hold control characters'
  return Buffer.byteLength(name) > NAME_BYTES_MAX ? `must be at most ${NAME_BYTES_MAX} bytes` : undefined
}
