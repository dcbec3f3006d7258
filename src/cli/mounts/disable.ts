/** `outpost secrets disable` and `outpost auth disable`. */
import { type Command, defineCommand } from '../command-shape.ts'
import { askCore, coreOf, coreOptions } from '../secrets/core-access.ts'
import { AUTH, type MountKind, mountPathOf, SECRETS } from './mount-kind.ts'

function disabling(kind: MountKind): Command {
  const what = kind === SECRETS ? 'Everything that it holds is gone' : 'Tokens that it has given out end'
  return defineCommand({
    name: `${kind.word} disable`,
    summary: `Disable ${kind === AUTH ? 'an' : 'a'} ${kind.one}`,
    details: `${what}, and does not come back when it is enabled again.`,
    options: { ...coreOptions },
    operands: { shown: 'PATH', min: 1, max: 1, missing: `which one? "outpost ${kind.word} list" lists them` },
    async run(values, [path = ''], io) {
      const at = mountPathOf(path, kind)
      await askCore(coreOf(values, io), { method: 'DELETE', path: `${kind.list}/${at}` })
      io.out(`Success! Disabled the ${kind.one} (if it existed) at: ${at}\n`)
      return 0
    },
  })
}

export const secrets = disabling(SECRETS)
export const auth = disabling(AUTH)
