/** `outpost secrets enable` and `outpost auth enable`. */
import { type Command, defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { readPairs } from '../../input/data-input.ts'
import { printWarnings } from '../../core/secret-output.ts'
import { AUTH, type MountKind, mountPathOf, SECRETS } from './mount-kind.ts'
import { enableOptions, rareSettings, settingOptions } from './mount-options.ts'

function enabling(kind: MountKind): Command {
  return defineCommand({
    name: `${kind.word} enable`,
    summary: `Enable ${kind.one === 'auth method' ? 'an' : 'a'} ${kind.one}`,
    details: `It is at the path that its type is called, or at -path. Example: outpost ${kind.word} enable -path=team ${kind === AUTH ? 'TYPE' : 'kv'}`,
    options: { ...enableOptions, ...settingOptions, ...coreOptions },
    operands: { shown: 'TYPE', min: 1, max: 1, missing: `which type of ${kind.one}?` },
    async run(values, [type = ''], io) {
      const at = mountPathOf(values.path ?? type, kind)
      const options = {
        ...readPairs(values.options, '-options'),
        ...(values.version === undefined ? {} : { version: values.version }),
      }
      const body = {
        type: type.trim(),
        description: values.description ?? '',
        config: {
          options: null,
          default_lease_ttl: values['default-lease-ttl'] ?? '0s',
          max_lease_ttl: values['max-lease-ttl'] ?? '0s',
          force_no_cache: values['force-no-cache'] ?? false,
          ...rareSettings(values),
        },
        local: values.local,
        seal_wrap: values['seal-wrap'],
        external_entropy_access: false,
        options: Object.keys(options).length === 0 ? null : options,
      }
      const answer = await askCore(coreOf(values, io), { method: 'POST', path: `${kind.list}/${at}`, body })
      io.out(`Success! Enabled the ${type.trim()} ${kind.one} at: ${at}\n`)
      if (answer) printWarnings(answer, io)
      return 0
    },
  })
}

export const secrets = enabling(SECRETS)
export const auth = enabling(AUTH)
