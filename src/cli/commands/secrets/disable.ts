/** `outpost secrets disable` and `outpost auth disable`. */
import { type Command, defineCommand } from '../../framework/command-shape.ts'
import { confirm, confirmOptions } from '../../core/confirmation.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { AUTH, type MountKind, mountPathOf, SECRETS } from './mount-kind.ts'

function disabling(kind: MountKind): Command {
  const what = kind === SECRETS ? 'Deletes all data of the engine' : 'Revokes all tokens of the auth method'
  const effect = kind === SECRETS ? 'delete all data of the engine' : 'revoke all tokens of the auth method'
  return defineCommand({
    name: `${kind.word} disable`,
    summary: `Disable ${kind === AUTH ? 'an' : 'a'} ${kind.one}`,
    details: `${what}. Enabling it again does not restore them.\nOn a terminal it asks for confirmation.`,
    options: { ...confirmOptions, ...coreOptions },
    operands: { shown: 'PATH', min: 1, max: 1, missing: `which one? "outpost ${kind.word} list" lists them` },
    async run(values, [path = ''], io) {
      const at = mountPathOf(path, kind)
      const core = coreOf(values, io)
      await confirm(core, `disable ${at} and ${effect}`, values.yes, io)
      await askCore(core, { method: 'DELETE', path: `${kind.list}/${at}` })
      io.out(`Success! Disabled the ${kind.one} (if it existed) at: ${at}\n`)
      return 0
    },
  })
}

export const secrets = disabling(SECRETS)
export const auth = disabling(AUTH)
