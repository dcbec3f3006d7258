/** `outpost operator rekey`: other key shares for the same secrets. */
import { type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { choice, flag, integer, text, UsageError } from '../../framework/options.ts'
import { askCore, type CoreAccess, type CoreAnswer, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { giveShares, requireStarted, withShareAccess } from '../../core/key-shares.ts'
import { pgpKeys } from '../../input/pgp-file.ts'
import { type Format, formatOf, formatOption, pairsTable, printAs } from '../../core/secret-output.ts'

const BEGIN = 'outpost operator rekey -init'
const SHARES = 5
const THRESHOLD = 3

const OPTIONS = {
  init: flag('Begin an attempt'),
  status: flag('Show how far the attempt is; with -verify the verification'),
  cancel: flag('End the attempt; with -verify begin the verification anew'),
  verify: flag('With -init: the new shares count once enough were given back. Alone: give one back'),
  'key-shares': integer({
    placeholder: 'N',
    help: `With -init: how many new shares (${SHARES})`,
    fallback: undefined,
    min: 1,
    max: 255,
  }),
  n: integer({ placeholder: 'N', help: 'The same as -key-shares', fallback: undefined, min: 1, max: 255 }),
  'key-threshold': integer({
    placeholder: 'N',
    help: `With -init: how many of them it takes (${THRESHOLD})`,
    fallback: undefined,
    min: 1,
    max: 255,
  }),
  t: integer({ placeholder: 'N', help: 'The same as -key-threshold', fallback: undefined, min: 1, max: 255 }),
  'pgp-keys': text({
    placeholder: 'FILE,...',
    help: 'With -init: a public PGP key for each share',
    fallback: undefined,
  }),
  backup: flag('With -init and -pgp-keys: the server keeps the encrypted shares'),
  'backup-retrieve': flag('Show what it has kept'),
  'backup-delete': flag('Remove what it has kept'),
  nonce: text({
    placeholder: 'NONCE',
    help: 'The attempt that a share is for, or that -cancel ends',
    fallback: undefined,
  }),
  target: choice({ placeholder: 'KIND', help: 'Which shares (unseal)', choices: ['unseal', 'barrier', 'recovery'] }),
  ...formatOption,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator rekey',
  summary: 'Give out other key shares',
  details: [
    'One begins it with -init; then enough holders of the shares of today run it without an option',
    'and type theirs; the last one gets the new shares. With -init -verify those count only when',
    'enough of their holders have given them back with -verify: what was misprinted is noticed before',
    'it matters.',
    '',
    'It needs a token that has sudo, unless the server has disable_unauthed_rekey_endpoints = false.',
    '',
    'A share is read from standard input for a -; as an argument other users of the machine can see',
    'it. A share that is not typed on a terminal needs -nonce.',
    '',
    'Example: outpost operator rekey -init -verify -key-shares=3 -key-threshold=2',
  ].join('\n'),
  options: OPTIONS,
  operands: { shown: '[KEY|-]', min: 0, max: 1, missing: '' },
  async run(values, [key], io) {
    const format = formatOf(values, io)
    const chosen = (['init', 'status', 'cancel', 'backup-retrieve', 'backup-delete'] as const).filter(
      (name) => values[name],
    )
    if (chosen.length > 1) throw new UsageError(`-${chosen[0]} and -${chosen[1]} do not go together`)
    if (chosen.length > 0 && key !== undefined) throw new UsageError(`-${chosen[0]} takes no key share`)
    const core = coreOf(values, io)
    const base = values.target === 'recovery' ? 'sys/rekey-recovery-key' : 'sys/rekey'
    const place = { core, base, attempt: `${base}/${values.verify ? 'verify' : 'init'}` }
    const given = { key, nonce: values.nonce, verify: values.verify }
    await withShareAccess('rekey', core, async () => {
      if (values.init) {
        show(await requireCore(core, { method: 'PUT', path: `${base}/init`, body: request(values) }), format, io)
      } else if (values.status) show(await requireCore(core, { path: place.attempt }), format, io)
      else if (values.cancel) await cancel(place, given, io)
      else if (values['backup-retrieve'] || values['backup-delete']) {
        await backup(core, values.target === 'recovery', values['backup-delete'], format, io)
      } else await goOn(place, given, format, io)
    })
    return 0
  },
})

interface Place {
  readonly core: CoreAccess
  readonly base: string
  /** Path of what is under way. */
  readonly attempt: string
}

interface Asked {
  readonly 'key-shares': number | undefined
  readonly n: number | undefined
  readonly 'key-threshold': number | undefined
  readonly t: number | undefined
  readonly 'pgp-keys': string | undefined
  readonly backup: boolean
  readonly verify: boolean
}

function request(values: Asked): Record<string, unknown> {
  return {
    secret_shares: values['key-shares'] ?? values.n ?? SHARES,
    secret_threshold: values['key-threshold'] ?? values.t ?? THRESHOLD,
    ...(values['pgp-keys'] === undefined ? {} : { pgp_keys: pgpKeys(values['pgp-keys']) }),
    backup: values.backup,
    require_verification: values.verify,
  }
}

/** Without the option it is the attempt that is under way at this moment. */
async function cancel(
  { attempt, core }: Place,
  { nonce: given, verify }: { readonly nonce: string | undefined; readonly verify: boolean },
  io: CommandIo,
): Promise<void> {
  const nonce = given ?? (await requireCore(core, { path: attempt })).fields.text('nonce')
  await askCore(core, { method: 'DELETE', path: attempt, query: nonce === '' ? {} : { nonce } })
  io.out(verify ? 'Success! The verification begins anew.\n' : 'Success! The rekeying was cancelled.\n')
}

async function backup(
  core: CoreAccess,
  isRecovery: boolean,
  remove: boolean,
  format: Format,
  io: CommandIo,
): Promise<void> {
  const path = `sys/rekey/${isRecovery ? 'recovery-key-backup' : 'backup'}`
  const answer = await askCore(core, { method: remove ? 'DELETE' : 'GET', path })
  if (remove) io.out('Success! The kept shares were removed.\n')
  else
    printAs(
      format,
      answer?.fields.value('data'),
      io,
      () => `${JSON.stringify(answer?.fields.value('data'), undefined, 2)}\n`,
    )
}

async function goOn(
  { attempt, base, core }: Place,
  given: { readonly key: string | undefined; readonly nonce: string | undefined; readonly verify: boolean },
  format: Format,
  io: CommandIo,
): Promise<void> {
  const status = await requireCore(core, { path: attempt })
  const name = given.verify ? 'verification of new key shares' : 'rekeying'
  requireStarted(status, name, given.verify ? `${BEGIN} -verify` : BEGIN)
  const path = `${base}/${given.verify ? 'verify' : 'update'}`
  const answer = await giveShares(core, { path, nonce: status.fields.text('nonce'), name }, given, io)
  if (!answer.fields.boolean('complete')) show(answer, format, io)
  else if (given.verify) printAs(format, answer.body, io, () => 'Success! The new key shares count from now on.\n')
  else printAs(format, answer.body, io, () => newShares(answer))
}

function show(answer: CoreAnswer, format: Format, io: CommandIo): void {
  const { fields } = answer
  const hasRequired = fields.value('required') !== undefined
  printAs(format, answer.body, io, () =>
    pairsTable([
      ['Nonce', fields.text('nonce')],
      ['Started', fields.boolean('started')],
      ['Rekey Progress', `${fields.number('progress')}/${fields.number(hasRequired ? 'required' : 't')}`],
      ['New Shares', fields.number('n')],
      ['New Threshold', fields.number('t')],
      ...(hasRequired ? ([['Verification Required', fields.boolean('verification_required')]] as const) : []),
      ...(fields.text('verification_nonce') === ''
        ? []
        : ([['Verification Nonce', fields.text('verification_nonce')]] as const)),
      ...(fields.value('pgp_fingerprints') ? ([['PGP Fingerprints', fields.value('pgp_fingerprints')]] as const) : []),
    ]),
  )
}

function newShares({ fields }: CoreAnswer): string {
  const keys = fields.value('keys_base64')
  const lines = Array.isArray(keys) ? keys.map((key, at) => `Key ${at + 1}: ${String(key)}`) : []
  const nonce = fields.text('verification_nonce')
  const advice =
    nonce === ''
      ? ['Success! The key shares were changed; those before count no longer.']
      : [
          'The new key shares do not count yet: enough of their holders give them back with',
          `"outpost operator rekey -verify". Nonce: ${nonce}`,
        ]
  return `${[...lines, '', `Operation nonce: ${fields.text('nonce')}`, '', ...advice].join('\n')}\n`
}
