/** `outpost policy fmt`. */
import { statSync } from 'node:fs'
import { type ObjectNode, parseText } from '../../../config/hcl.ts'
import { messageOf } from '../../../platform/errors.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { FileSink } from '../../output/file-sink.ts'
import { textOf } from '../../input/data-input.ts'
import { laidOut } from './hcl-layout.ts'

export const command = defineCommand({
  name: 'policy fmt',
  summary: 'Lay a policy file out evenly',
  details: 'Only white space changes. The file is written anew; with - standard input is, to stdout.',
  options: {},
  operands: { shown: 'FILE|-', min: 1, max: 1, missing: 'which file?' },
  async run(_values, [file = ''], io, parts) {
    const before = await textOf(file)
    const checkPolicy = await parts.policyChecker?.()
    const [fault] = checkPolicy?.(before) ?? []
    if (fault) throw new CommandError(`${file}:${fault.line}:${fault.column}: ${fault.message}`)
    const isJson = /^\uFEFF?\s*\{/.test(before)
    const after = isJson ? before : laidOut(before)
    if (!isSame(before, after)) throw new CommandError(`${file} would not mean the same, so it is left as it is`)
    if (file === '-') io.out(after)
    else if (after !== before) write(file, after)
    return 0
  },
})

/** The layout knows less of the language than the reader: what that would read otherwise is not written. */
function isSame(before: string, after: string): boolean {
  try {
    return JSON.stringify(bare(parseText(before))) === JSON.stringify(bare(parseText(after)))
  } catch (error) {
    throw new CommandError(`it cannot be read: ${messageOf(error)}`, 1, { cause: error })
  }
}

const PLACES = new Set(['at', 'keyAt', 'bodyAt'])

/** Without the places in the text. */
function bare(node: ObjectNode): unknown {
  return JSON.parse(JSON.stringify(node, (key, value: unknown) => (PLACES.has(key) ? undefined : value)))
}

function write(file: string, text: string): void {
  const sink = new FileSink(file, statSync(file).mode & 0o777)
  sink.write(Buffer.from(text))
  sink.finish()
}
