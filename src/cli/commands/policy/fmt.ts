/** `outpost policy fmt`: formats a policy file. */
import { statSync } from 'node:fs'
import { formatText } from '../../../config/hcl-format.ts'
import { messageOf } from '../../../platform/errors.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import { textOf } from '../../input/data-input.ts'
import { FileSink } from '../../output/file-output.ts'

export const command = defineCommand({
  name: 'policy fmt',
  summary: 'Format a policy file',
  details: 'Changes white space only. Rewrites FILE in place; - formats standard input to stdout.',
  options: {},
  operands: { shown: 'FILE|-', min: 1, max: 1 },
  async run(_values, [file = ''], io, services) {
    const before = await textOf(file)
    const checkPolicy = await services.policyChecker?.()
    const [fault] = checkPolicy?.(before) ?? []
    if (fault) throw new CommandError(`${file}:${fault.line}:${fault.column}: ${fault.message}`)
    const after = formatted(before, file)
    if (file === '-') io.out(after)
    else if (after !== before) write(file, after)
    return 0
  },
})

function formatted(text: string, file: string): string {
  let after: string | undefined
  try {
    after = formatText(text)
  } catch (error) {
    throw new CommandError(`cannot parse the policy: ${messageOf(error)}`, 1, { cause: error })
  }
  if (after !== undefined) return after
  throw new CommandError(`cannot format ${file} without changing its meaning, the file was not changed`)
}

function write(file: string, text: string): void {
  const sink = new FileSink(file, statSync(file).mode & 0o777)
  sink.write(Buffer.from(text))
  sink.finish()
}
