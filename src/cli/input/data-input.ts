/**
 * Request data on the command line: `key=value`, `key=@FILE`, `key=-` (standard input), and JSON objects as `@FILE` or `-`. Values are
 * strings, except for those in JSON objects.
 */
import { CommandError } from '../framework/define-command.ts'
import { UsageError } from '../framework/options.ts'
import { isJsonObject, parseExact } from '../output/json.ts'
import { fileText, hideArguments, sourceOf, standardInput } from './secret-input.ts'

/** Limit of a server. */
const BYTES_MAX = 32 * 1024 * 1024

/** Later operands override earlier ones; a key that is given twice becomes a list. Throws UsageError, CommandError. */
export async function readData(operands: readonly string[]): Promise<Record<string, unknown>> {
  const members = new Map<string, unknown>()
  const seen = new Set<string>()
  const input = inputReader()
  hideArguments()
  for (const [index, operand] of operands.entries()) {
    if (operand === '-' || operand.startsWith('@')) {
      const source = operand === '-' ? 'standard input' : operand.slice(1)
      const text = operand === '-' ? await input() : fileText(operand.slice(1))
      for (const [key, value] of Object.entries(objectIn(text, source))) members.set(key, value)
      continue
    }
    const [key, value] = keyAndValue(operand, `argument ${index + 1}`)
    const source = sourceOf(value)
    const read = source.from === 'stdin' ? await input() : source.from === 'file' ? fileText(source.file) : source.value
    const before = members.get(key)
    if (!seen.has(key)) members.set(key, read)
    else members.set(key, Array.isArray(before) ? [...before, read] : [before, read])
    seen.add(key)
  }
  return Object.fromEntries(members)
}

/** `KEY=VALUE` with literal values, for metadata and options. `option`: the name of the option that contains the pairs. Throws UsageError. */
export function readPairs(pairs: readonly string[], option = ''): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair, index) => keyAndValue(pair, option === '' ? `argument ${index + 1}` : `option ${option}`)),
  )
}

/** `where` names the position: the text may be a secret whose key was forgotten, so it is not in the message. */
function keyAndValue(text: string, where: string): [string, string] {
  const at = text.indexOf('=')
  if (at <= 0) throw new UsageError(`${where} is not KEY=VALUE`)
  return [text.slice(0, at), text.slice(at + 1)]
}

/** The content of a file, or of standard input (at most `bytesMax`) for `-`. Throws UsageError, CommandError. */
export async function textOf(file: string, bytesMax = BYTES_MAX): Promise<string> {
  return file === '-' ? await standardInput(bytesMax) : fileText(file)
}

function inputReader(): () => Promise<string> {
  let isRead = false
  return () => {
    if (isRead) throw new UsageError('standard input can be read only once')
    isRead = true
    return standardInput(BYTES_MAX)
  }
}

/** The error does not contain the text, which is a secret. */
function objectIn(text: string, source: string): Readonly<Record<string, unknown>> {
  let value: unknown
  try {
    value = parseExact(text)
  } catch {
    throw new CommandError(`${source} is not valid JSON`)
  }
  if (isJsonObject(value)) return value
  throw new CommandError(`${source} is not a JSON object`)
}
