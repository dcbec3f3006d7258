/**
 * What a command line says of the data of a request: `key=value`, `key=@FILE`, `key=-` (standard input), and whole JSON
 * objects as `@FILE` or `-`. Values given so are texts; those in JSON are what they are there.
 */
import { CommandError } from '../framework/command-shape.ts'
import { UsageError } from '../framework/options.ts'
import { isJsonObject, parseExact } from '../output/exact-json.ts'
import { hideArguments } from './typed-secret.ts'
import { fileText, sourceOf, standardInput } from './value-source.ts'

/** The most that a server takes. */
const BYTES_MAX = 32 * 1024 * 1024

/** In the order given, later ones over earlier ones; a key that is given twice is a list. Throws UsageError, CommandError. */
export async function readData(operands: readonly string[]): Promise<Record<string, unknown>> {
  const members = new Map<string, unknown>()
  const given = new Set<string>()
  const input = onlyOnce()
  hideArguments()
  for (const operand of operands) {
    if (operand === '-' || operand.startsWith('@')) {
      const source = operand === '-' ? 'standard input' : operand.slice(1)
      const text = operand === '-' ? await input() : fileText(operand.slice(1))
      for (const [key, value] of Object.entries(objectIn(text, source))) members.set(key, value)
      continue
    }
    const [key, value] = keyAndValue(operand)
    const source = sourceOf(value)
    const read = source.from === 'stdin' ? await input() : source.from === 'file' ? fileText(source.file) : source.value
    const before = members.get(key)
    if (!given.has(key)) members.set(key, read)
    else members.set(key, Array.isArray(before) ? [...before, read] : [before, read])
    given.add(key)
  }
  return Object.fromEntries(members)
}

/** `KEY=VALUE` as texts and nothing else, as of metadata and options. Throws UsageError. */
export function readPairs(operands: readonly string[], option: string): Record<string, string> {
  return Object.fromEntries(
    operands.map((operand) => {
      const [key, value] = keyAndValue(operand, option)
      return [key, value]
    }),
  )
}

function keyAndValue(operand: string, option = ''): [string, string] {
  const at = operand.indexOf('=')
  // Not the operand itself: it may be a secret whose key was forgotten.
  if (at <= 0) throw new UsageError(`${option === '' ? 'data' : option} is given as KEY=VALUE, and something is not`)
  return [operand.slice(0, at), operand.slice(at + 1)]
}

/** A file or, for a `-`, standard input, of which there may be `bytesMax`. Throws UsageError, CommandError. */
export async function textOf(file: string, bytesMax = BYTES_MAX): Promise<string> {
  return file === '-' ? await standardInput(bytesMax) : fileText(file)
}

function onlyOnce(): () => Promise<string> {
  let isRead = false
  return () => {
    if (isRead) throw new UsageError('standard input can be read once only')
    isRead = true
    return standardInput(BYTES_MAX)
  }
}

/** Its error says nothing of the text, which is a secret. */
function objectIn(text: string, source: string): Readonly<Record<string, unknown>> {
  let value: unknown
  try {
    value = parseExact(text)
  } catch {
    throw new CommandError(`${source} does not hold JSON`)
  }
  if (isJsonObject(value)) return value
  throw new CommandError(`${source} does not hold a JSON object`)
}
