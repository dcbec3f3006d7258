/** `outpost operator init`: key shares and the first root token, which exist only in its output. */
import { fieldsOf, type Answer } from '../../output/answer.ts'
import { type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { flag, integer, text, UsageError } from '../../framework/options.ts'
import { type CoreAccess, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { pgpKey, pgpKeys } from '../../input/pgp-file.ts'
import { formatOf, formatOption, printAs } from '../../core/secret-output.ts'

const NOT_INITIALISED = 2
const SHARES = 5
const THRESHOLD = 3

const count = (help: string, shown?: number) =>
  integer({
    placeholder: 'N',
    help: shown === undefined ? help : `${help} (${shown})`,
    fallback: undefined,
    min: 0,
    max: 255,
  })

export const command = defineCommand({
  name: 'operator init',
  summary: 'Make the keys of a new secrets core, and the first root token',
  details: [
    'Prints the key shares and the root token once; nothing that the server keeps can print them again.',
    'Give each share to another person. With -pgp-keys each comes encrypted for its holder.',
    'A core that its machine opens by itself gives recovery shares instead.',
    '',
    'A region has one secrets core. Where another server has it, set server { secrets = false } here',
    'instead. -force creates a second core, as a DR secondary in the region of its primary needs.',
    '',
    'With -status: exit code 0 when it is initialised, 2 when it is not.',
    '',
    'Example: outpost operator init -key-shares=5 -key-threshold=3',
  ].join('\n'),
  options: {
    'key-shares': count('Into how many shares the key is divided', SHARES),
    n: count('The same as -key-shares'),
    'key-threshold': count('How many of them open the core', THRESHOLD),
    t: count('The same as -key-threshold'),
    'pgp-keys': text({ placeholder: 'FILE,...', help: 'A public PGP key for each share', fallback: undefined }),
    'root-token-pgp-key': text({
      placeholder: 'FILE',
      help: 'PGP key of who gets the root token',
      fallback: undefined,
    }),
    'recovery-shares': count('The same for a core that its machine opens', SHARES),
    'recovery-threshold': count('How many of those it takes', THRESHOLD),
    'recovery-pgp-keys': text({ placeholder: 'FILE,...', help: 'A PGP key for each of those', fallback: undefined }),
    force: flag('Also where another server of the region has a core'),
    status: flag('Only say whether it is initialised'),
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
    const { fields: seal } = await requireCore(core, { path: 'sys/seal-status' })
    const isOwn = seal.boolean('recovery_seal')
    const wrong = isOwn ? ownSplit(split) : recovery
    if (Object.values(wrong).some((value) => value !== undefined)) {
      const meant = isOwn ? 'its machine opens it: give -recovery-shares and -recovery-threshold' : 'key shares open it'
      throw new UsageError(`this core's seal is ${seal.text('type')}, ${meant}`)
    }
    const meant = bodyOf(isOwn ? recovery : split, isOwn ? 'recovery' : 'secret')
    const forced = values.force ? { force: true } : {}
    const body = { ...meant, ...forced, ...(tokenKey === undefined ? {} : { root_token_pgp_key: pgpKey(tokenKey) }) }
    const { fields } = await requireCore(core, { method: 'PUT', path: 'sys/init', body })
    const numbers = { isOwn, shares: amount(body, 'shares'), threshold: amount(body, 'threshold') }
    printAs(format, machineForm(fields, numbers), io, () => peopleForm(fields, numbers))
    return 0
  },
})

interface Split {
  readonly shares: number | undefined
  readonly threshold: number | undefined
  readonly pgpKeys: readonly string[] | undefined
}

/** What may not be given where the machine has the key; -key-shares=1 is what the field's instructions say there. */
function ownSplit({ pgpKeys: keys }: Split) {
  return { keys }
}

function bodyOf(split: Split, prefix: 'secret' | 'recovery'): Record<string, unknown> {
  const keys =
    split.pgpKeys === undefined ? {} : { [prefix === 'secret' ? 'pgp_keys' : 'recovery_pgp_keys']: split.pgpKeys }
  return {
    [`${prefix}_shares`]: split.shares ?? SHARES,
    [`${prefix}_threshold`]: split.threshold ?? THRESHOLD,
    ...keys,
  }
}

const amount = (body: Readonly<Record<string, unknown>>, name: string): number =>
  Number(body[`secret_${name}`] ?? body[`recovery_${name}`])

async function showStatus(core: CoreAccess, io: CommandIo): Promise<number> {
  const { fields } = await requireCore(core, { path: 'sys/init' })
  const initialised = fields.boolean('initialized')
  io.out(initialised ? 'The secrets core is initialised.\n' : 'The secrets core is not initialised.\n')
  return initialised ? 0 : NOT_INITIALISED
}

interface Numbers {
  readonly isOwn: boolean
  readonly shares: number
  readonly threshold: number
}

/** As the field's tools have it for programs. */
function machineForm(fields: Answer, { isOwn, shares, threshold }: Numbers): Record<string, unknown> {
  return {
    unseal_keys_b64: fields.value('keys_base64') ?? [],
    unseal_keys_hex: fields.value('keys') ?? [],
    unseal_shares: isOwn ? 1 : shares,
    unseal_threshold: isOwn ? 1 : threshold,
    recovery_keys_b64: fields.value('recovery_keys_base64') ?? [],
    recovery_keys_hex: fields.value('recovery_keys') ?? [],
    recovery_keys_shares: isOwn ? shares : 0,
    recovery_keys_threshold: isOwn ? threshold : 0,
    root_token: fields.text('root_token'),
  }
}

function peopleForm(fields: Answer, { isOwn, shares, threshold }: Numbers): string {
  const keys = textsOf(fields.value(isOwn ? 'recovery_keys_base64' : 'keys_base64'))
  const kind = isOwn ? 'Recovery' : 'Unseal'
  const lines = keys.map((key, at) => `${kind} Key ${at + 1}: ${key}`)
  const advice = isOwn
    ? [
        `Success! The secrets core is initialised: ${shares} recovery shares, of which ${threshold} are needed.`,
        'It opens by itself. Give each recovery share to another person: they make root tokens.',
      ]
    : [
        `Success! The secrets core is initialised: ${shares} key shares, of which ${threshold} open it.`,
        'Give each share to another person, and keep none on this machine. Without enough of them',
        'everything in it is lost; the server cannot print them again. Next: outpost operator unseal',
      ]
  return `${[...lines, '', `Initial Root Token: ${fields.text('root_token')}`, '', ...advice].join('\n')}\n`
}

function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map((item) => fieldsOf({ item }).text('item')) : []
}
