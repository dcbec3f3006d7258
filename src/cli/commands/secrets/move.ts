/** `outpost secrets move` and `outpost auth move`. */
import { setTimeout as delay } from 'node:timers/promises'
import { type Command, CommandError, defineCommand } from '../../framework/command-shape.ts'
import { type CoreAccess, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { AUTH, type MountKind, mountPathOf, SECRETS } from './mount-kind.ts'

const POLL_MS = 500

function moving(kind: MountKind): Command {
  return defineCommand({
    name: `${kind.word} move`,
    summary: `Move ${kind === AUTH ? 'an' : 'a'} ${kind.one}, with everything in it, to another path`,
    options: { ...coreOptions },
    operands: { shown: 'FROM TO', min: 2, max: 2, missing: 'from where to where?' },
    async run(values, [from = '', to = ''], io) {
      const core = coreOf(values, io)
      const [source, target] = [mountPathOf(from, kind), mountPathOf(to, kind)]
      const body = { from: kind.prefix + source, to: kind.prefix + target }
      const { fields } = await requireCore(core, { method: 'POST', path: 'sys/remount', body })
      const id = fields.text('migration_id') || fields.under('data').text('migration_id')
      await finished(core, id)
      io.out(`Success! Moved the ${kind.one} ${source} to: ${target}\n`)
      return 0
    },
  })
}

async function finished(core: CoreAccess, id: string): Promise<void> {
  for (;;) {
    const { fields } = await requireCore(core, { path: `sys/remount/status/${id}` })
    const status = fields.under('data').under('migration_info').text('status')
    if (status === 'success') return
    if (status !== 'in-progress')
      throw new CommandError(`the move has failed (${status}), the log of the server says why`)
    await delay(POLL_MS)
  }
}

export const secrets = moving(SECRETS)
export const auth = moving(AUTH)
