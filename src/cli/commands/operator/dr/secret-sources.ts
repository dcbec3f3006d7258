/** Where commands of replication read tokens and key shares from: never from an argument, which other users can read. */
import { UsageError } from '../../../framework/options.ts'
import { hideArguments } from '../../../input/typed-secret.ts'
import { sourceOf } from '../../../input/value-source.ts'

/** Too many operands are refused by `secretOperand`: the usual error would show the secret. */
export const OPERANDS_MAX = Number.MAX_SAFE_INTEGER

/** The operand that names a source, `@FILE` or `-`; undefined without one. Throws UsageError, which does not contain the operands. */
export function secretOperand(operands: readonly string[], what: string): string | undefined {
  const [given, ...more] = operands
  if (given === undefined) return undefined
  if (more.length === 0 && sourceOf(given).from !== 'argument') return given
  hideArguments()
  throw new UsageError(
    `${what} is not accepted as an argument, which other users of this machine can read: give it on standard input (-), or in a file`,
  )
}

/** The same for the value of an option with a file. */
export function fileSource(file: string | undefined): string | undefined {
  return file === undefined || file === '-' ? file : `@${file}`
}
