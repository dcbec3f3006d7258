/** `outpost secrets tune` and `outpost auth tune`. */
import { type Command, defineCommand } from '../../framework/command-shape.ts'
import { optionalFlag, text, UsageError } from '../../framework/options.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { readPairs } from '../../input/data-input.ts'
import { printWarnings } from '../../core/secret-output.ts'
import { AUTH, type MountKind, mountPathOf, SECRETS } from './mount-kind.ts'
import { rareSettings, settingOptions } from './mount-options.ts'

function tuning(kind: MountKind): Command {
  return defineCommand({
    name: `${kind.word} tune`,
    summary: `Change settings of ${kind === AUTH ? 'an' : 'a'} ${kind.one}`,
    details: 'What is not given stays as it is.',
    options: {
      version: text({
        placeholder: 'N',
        help: 'Version of the engine: 2 makes a store of secrets versioned',
        fallback: undefined,
      }),
      'force-no-cache': optionalFlag('Kept for scripts that set it; nothing is cached'),
      ...settingOptions,
      ...coreOptions,
    },
    operands: { shown: 'PATH', min: 1, max: 1, missing: `which one? "outpost ${kind.word} list" lists them` },
    async run(values, [path = ''], io) {
      const at = mountPathOf(path, kind)
      const options = {
        ...readPairs(values.options, '-options'),
        ...(values.version === undefined ? {} : { version: values.version }),
      }
      const given: Record<string, unknown> = {
        description: values.description,
        default_lease_ttl: values['default-lease-ttl'],
        max_lease_ttl: values['max-lease-ttl'],
        force_no_cache: values['force-no-cache'],
        ...rareSettings(values),
        ...(Object.keys(options).length === 0 ? {} : { options }),
      }
      if (Object.values(given).every((value) => value === undefined)) {
        throw new UsageError('what shall change? give a setting, as in -description=TEXT')
      }
      const request = { method: 'POST', path: `sys/mounts/${kind.prefix}${at}tune`, body: given } as const
      const answer = await askCore(coreOf(values, io), request)
      io.out(`Success! Tuned the ${kind.one} at: ${at}\n`)
      if (answer) printWarnings(answer, io)
      return 0
    },
  })
}

export const secrets = tuning(SECRETS)
export const auth = tuning(AUTH)
