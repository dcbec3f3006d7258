/** `outpost operator init`: key shares and the initial root token, which exist only in its output. */
import { fieldsOf, type JsonFields } from '../../output/json.ts'
import { type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { flag, integer, text, UsageError } from '../../framework/options.ts'
import { type CoreAccess, coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { pgpKey, pgpKeys } from '../../input/pgp-file.ts'
import { formatOf, formatOption, printAs } from '../../core/secret-output.ts'

const NOT_INITIALIZED = 2
const SHARES = 5
const THRESHOLD = 3

const count = (help: string, defaultCount?: number) =>
  integer({
    placeholder: 'N',
    help,
    fallback: undefined,
    ...(defaultCount === undefined ? {} : { shownDefault: String(defaultCount) }),
    min: 0,
    max: 255,
  })

export const command = defineCommand({
  name: 'operator init',
  summary: 'Initialize a server with key shares and a root token',
  details: [
    'Prints the key shares and the root token once; the server cannot print them again. Distribute the shares',
    'to different people. With -pgp-keys, each share is encrypted for its holder. A server with a static seal',
    'issues recovery shares instead.',
    '',
    'A region has one secrets core. If another server has it, set server { secrets = false } on this server',
    'instead. -force creates a second core, which is required for a DR secondary in the region of its primary.',
    '',
    'Exit code with -status: 0 if initialized, 2 if not.',
    '',
    'Example: outpost operator init -key-shares=5 -key-threshold=3',
  ].join('\n'),
  options: {
    'key-shares': count('Number of key shares', SHARES),
    n: count('Alias of -key-shares'),
    'key-threshold': count('Number of key shares required to unseal', THRESHOLD),
    t: count('Alias of -key-threshold'),
    'pgp-keys': text({
      placeholder: 'FILE,...',
      help: 'Encrypt each share with a PGP public key',
      fallback: undefined,
    }),
    'root-token-pgp-key': text({
      placeholder: 'FILE',
      help: 'Encrypt the root token with a PGP public key',
      fallback: undefined,
    }),
    'recovery-shares': count('Number of recovery shares with a static seal', SHARES),
    'recovery-threshold': count('Number of recovery shares required', THRESHOLD),
    'recovery-pgp-keys': text({
      placeholder: 'FILE,...',
      help: 'Encrypt each recovery share with a PGP key',
      fallback: undefined,
    }),
    force: flag('Create a second secrets core in the region'),
    status: flag('Show whether the server is initialized'),
    ...formatOption,
    ...coreOptions,
  },
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    if (values.status) return await showStatus(core, io)
    const split = {
      shares: values['key-shares'] ?? values.n,
      threshold: values['key-threshold'] ?? values.t,
      pgpKeys: values['pgp-keys'] === undefined ? undefined : pgpKeys(values['pgp-keys']),
    }
    const recovery = {
      shares: values['recovery-shares'],
      threshold: values['recovery-threshold'],
      pgpKeys: values['recovery-pgp-keys'] === undefined ? undefined : pgpKeys(values['recovery-pgp-keys']),
    }
    const format = formatOf(values, io)
    const tokenKey = values['root-token-pgp-key']
    const { fields: seal } = await requireResponse(core, { path: 'sys/seal-status' })
    const isStatic = seal.boolean('recovery_seal')
    // -key-shares is ignored with a static seal, because instructions for other servers contain -key-shares=1.
    const wrong = isStatic ? { pgpKeys: split.pgpKeys } : recovery
    if (Object.values(wrong).some((value) => value !== undefined)) {
      const accepted = isStatic
        ? '-recovery-shares, -recovery-threshold and -recovery-pgp-keys'
        : '-key-shares, -key-threshold and -pgp-keys'
      throw new UsageError(`the seal of this server is ${seal.text('type')}: use ${accepted}`)
    }
    const settings = bodyOf(isStatic ? recovery : split, isStatic ? 'recovery' : 'secret')
    const forced = values.force ? { force: true } : {}
    const body = { ...settings, ...forced, ...(tokenKey === undefined ? {} : { root_token_pgp_key: pgpKey(tokenKey) }) }
    const { fields } = await requireResponse(core, { method: 'PUT', path: 'sys/init', body })
    const counts = { isStatic, shares: countIn(body, 'shares'), threshold: countIn(body, 'threshold') }
    printAs(format, jsonOf(fields, counts), io, () => textOf(fields, counts))
    return 0
  },
})

interface ShareSettings {
  readonly shares: number | undefined
  readonly threshold: number | undefined
  readonly pgpKeys: readonly string[] | undefined
}

function bodyOf(settings: ShareSettings, prefix: 'secret' | 'recovery'): Record<string, unknown> {
  const keys =
    settings.pgpKeys === undefined ? {} : { [prefix === 'secret' ? 'pgp_keys' : 'recovery_pgp_keys']: settings.pgpKeys }
  return {
    [`${prefix}_shares`]: settings.shares ?? SHARES,
    [`${prefix}_threshold`]: settings.threshold ?? THRESHOLD,
    ...keys,
  }
}

const countIn = (body: Readonly<Record<string, unknown>>, name: string): number =>
  Number(body[`secret_${name}`] ?? body[`recovery_${name}`])

async function showStatus(core: CoreAccess, io: CommandIo): Promise<number> {
  const { fields } = await requireResponse(core, { path: 'sys/init' })
  const isInitialized = fields.boolean('initialized')
  io.out(isInitialized ? 'The server is initialized.\n' : 'The server is not initialized.\n')
  return isInitialized ? 0 : NOT_INITIALIZED
}

interface ShareCounts {
  readonly isStatic: boolean
  readonly shares: number
  readonly threshold: number
}

/** The JSON of `vault operator init`. */
function jsonOf(fields: JsonFields, { isStatic, shares, threshold }: ShareCounts): Record<string, unknown> {
  return {
    unseal_keys_b64: fields.value('keys_base64') ?? [],
    unseal_keys_hex: fields.value('keys') ?? [],
    unseal_shares: isStatic ? 1 : shares,
    unseal_threshold: isStatic ? 1 : threshold,
    recovery_keys_b64: fields.value('recovery_keys_base64') ?? [],
    recovery_keys_hex: fields.value('recovery_keys') ?? [],
    recovery_keys_shares: isStatic ? shares : 0,
    recovery_keys_threshold: isStatic ? threshold : 0,
    root_token: fields.text('root_token'),
  }
}

function textOf(fields: JsonFields, { isStatic, shares, threshold }: ShareCounts): string {
  const keys = textsOf(fields.value(isStatic ? 'recovery_keys_base64' : 'keys_base64'))
  const kind = isStatic ? 'Recovery' : 'Unseal'
  const lines = keys.map((key, at) => `${kind} Key ${at + 1}: ${key}`)
  const advice = isStatic
    ? [
        `Success! The server is initialized with ${shares} recovery shares and a threshold of ${threshold}.`,
        'The server unseals itself. Distribute the recovery shares to different people: they can generate root tokens.',
      ]
    : [
        `Success! The server is initialized with ${shares} key ${shares === 1 ? 'share' : 'shares'} and a threshold of ${threshold}.`,
        'Distribute the shares to different people and keep none on this machine. The server cannot print them',
        `again: if fewer than ${threshold} remain, all secrets are lost. Next: outpost operator unseal`,
      ]
  return `${[...lines, '', `Initial Root Token: ${fields.text('root_token')}`, '', ...advice].join('\n')}\n`
}

function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map((item) => fieldsOf({ item }).text('item')) : []
}
