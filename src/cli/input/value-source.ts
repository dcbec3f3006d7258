/**
 * Where a value on the command line comes from, the same for every command: `@FILE` is the content of a file, `-` is standard
 * input, `\@TEXT` is the text `@TEXT`, and everything else is the value itself.
 *
 * Data of a request (`data-input.ts`) takes the content as it is, as the field's commands do: a secret may be a file that ends
 * with a newline. Credentials (`typed-secret.ts`) lose the line terminator, because editors and `echo` append one.
 */
import { readFileSync } from 'node:fs'
import { messageOf } from '../../platform/errors.ts'
import { CommandError } from '../framework/command-shape.ts'
import { UsageError } from '../framework/options.ts'

export type ValueSource =
  | { readonly from: 'file'; readonly file: string }
  | { readonly from: 'stdin' }
  | { readonly from: 'argument'; readonly value: string }

export function sourceOf(given: string): ValueSource {
  if (given === '-') return { from: 'stdin' }
  if (given.startsWith('@')) return { from: 'file', file: given.slice(1) }
  return { from: 'argument', value: given.startsWith('\\@') ? given.slice(1) : given }
}

/** The content of a file in UTF-8; a pipe is read to its end. Throws UsageError, which names the file. */
export function fileText(file: string): string {
  if (file === '') throw new UsageError('the name of a file is missing after @')
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new UsageError(`the file ${file} cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

/** All of standard input. Throws CommandError when it is more than `bytesMax`. */
export async function standardInput(bytesMax: number): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > bytesMax) throw new CommandError(`standard input holds more than ${bytesMax} bytes`)
  }
  return Buffer.concat(chunks).toString('utf8')
}
