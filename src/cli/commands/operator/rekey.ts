/** `outpost operator rekey`: generates new key shares for the same root key. */
import { type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { choice, flag, integer, text, UsageError } from '../../framework/options.ts'
import {
  sendRequest,
  type CoreAccess,
  type CoreResponse,
  coreOf,
  coreOptions,
  requireResponse,
} from '../../core/core-access.ts'
import { submitShares, requireStarted, withShareAccess } from '../../core/key-shares.ts'
import { pgpKeys } from '../../input/pgp-file.ts'
import { type Format, formatOf, formatOption, pairsTable, printAs } from '../../core/secret-output.ts'

const BEGIN = 'outpost operator rekey -init'
const SHARES = 5
const THRESHOLD = 3

const OPTIONS = {
  init: flag('Start a rekey'),
  status: flag('Show the progress'),
  cancel: flag('Cancel the rekey; with -verify restart the verification'),
  verify: flag('Submit a new share; with -init require verification'),
  'key-shares': integer({
    placeholder: 'N',
    help: 'Number of new key shares for -init',
    fallback: undefined,
    shownDefault: String(SHARES),
    min: 1,
    max: 255,
  }),
  n: integer({ placeholder: 'N', help: 'Alias of -key-shares', fallback: undefined, min: 1, max: 255 }),
  'key-threshold': integer({
    placeholder: 'N',
    help: 'Number of new key shares required to unseal',
    fallback: undefined,
    shownDefault: String(THRESHOLD),
    min: 1,
    max: 255,
  }),
  t: integer({ placeholder: 'N', help: 'Alias of -key-threshold', fallback: undefined, min: 1, max: 255 }),
  'pgp-keys': text({
    placeholder: 'FILE,...',
    help: 'Encrypt each new share with a PGP public key',
    fallback: undefined,
  }),
  backup: flag('Store the encrypted shares on the server'),
  'backup-retrieve': flag('Print the stored encrypted shares'),
  'backup-delete': flag('Delete the stored encrypted shares'),
  nonce: text({
    placeholder: 'NONCE',
    help: 'Nonce of the rekey',
    fallback: undefined,
  }),
  target: choice({
    placeholder: 'KIND',
    help: 'Kind of shares',
    choices: ['unseal', 'barrier', 'recovery'],
    shownDefault: 'unseal',
  }),
  ...formatOption,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator rekey',
  summary: 'Generate new key shares',
  details: [
    '-init starts the rekey. Then each holder of a current key share runs the command without options and',
    'enters the share. The last one receives the new shares. With -init -verify, the new shares take effect',
    'only after enough of them have been submitted with -verify. This finds copying errors while the old shares',
    'are still valid.',
    '',
    'Requires a token with sudo, unless the server has disable_unauthed_rekey_endpoints = false.',
    '',
    '- reads a share from standard input. Other users of this machine can read a share that is passed as an',
    'argument. Unless the share is entered at a terminal prompt, -nonce is required.',
    '',
    'Example: outpost operator rekey -init -verify -key-shares=3 -key-threshold=2',
  ].join('\n'),
  options: OPTIONS,
  operands: { shown: '[KEY|-]', min: 0, max: 1 },
  async run(values, [key], io) {
    const format = formatOf(values, io)
    const chosen = (['init', 'status', 'cancel', 'backup-retrieve', 'backup-delete'] as const).filter(
      (name) => values[name],
    )
    if (chosen.length > 1) throw new UsageError(`options -${chosen[0]} and -${chosen[1]} are mutually exclusive`)
    if (chosen.length > 0 && key !== undefined) throw new UsageError(`option -${chosen[0]} takes no key share`)
    const core = coreOf(values, io)
    const base = values.target === 'recovery' ? 'sys/rekey-recovery-key' : 'sys/rekey'
    const attempt = { core, base, path: `${base}/${values.verify ? 'verify' : 'init'}` }
    const given = { key, nonce: values.nonce, verify: values.verify }
    await withShareAccess('rekey', core, async () => {
      if (values.init) {
        show(
          await requireResponse(core, { method: 'PUT', path: `${base}/init`, body: requestBody(values) }),
          format,
          io,
        )
      } else if (values.status) show(await requireResponse(core, { path: attempt.path }), format, io)
      else if (values.cancel) await cancel(attempt, given, io)
      else if (values['backup-retrieve'] || values['backup-delete']) {
        await backup(core, values.target === 'recovery', values['backup-delete'], format, io)
      } else await submit(attempt, given, format, io)
    })
    return 0
  },
})

interface RekeyState {
  readonly core: CoreAccess
  readonly base: string
  /** Of the rekey, or of its verification. */
  readonly path: string
}

interface RekeyOptions {
  readonly 'key-shares': number | undefined
  readonly n: number | undefined
  readonly 'key-threshold': number | undefined
  readonly t: number | undefined
  readonly 'pgp-keys': string | undefined
  readonly backup: boolean
  readonly verify: boolean
}

function requestBody(values: RekeyOptions): Record<string, unknown> {
  return {
    secret_shares: values['key-shares'] ?? values.n ?? SHARES,
    secret_threshold: values['key-threshold'] ?? values.t ?? THRESHOLD,
    ...(values['pgp-keys'] === undefined ? {} : { pgp_keys: pgpKeys(values['pgp-keys']) }),
    backup: values.backup,
    require_verification: values.verify,
  }
}

/** Without a nonce, cancels the current attempt. */
async function cancel(
  { core, path }: RekeyState,
  { nonce: given, verify }: { readonly nonce: string | undefined; readonly verify: boolean },
  io: CommandIo,
): Promise<void> {
  const nonce = given ?? (await requireResponse(core, { path })).fields.text('nonce')
  await sendRequest(core, { method: 'DELETE', path, query: nonce === '' ? {} : { nonce } })
  io.out(verify ? 'Success! The verification was restarted.\n' : 'Success! The rekey was canceled.\n')
}

async function backup(
  core: CoreAccess,
  isRecovery: boolean,
  remove: boolean,
  format: Format,
  io: CommandIo,
): Promise<void> {
  const path = `sys/rekey/${isRecovery ? 'recovery-key-backup' : 'backup'}`
  const answer = await sendRequest(core, { method: remove ? 'DELETE' : 'GET', path })
  if (remove) io.out('Success! The stored shares were deleted.\n')
  else
    printAs(
      format,
      answer?.fields.value('data'),
      io,
      () => `${JSON.stringify(answer?.fields.value('data'), undefined, 2)}\n`,
    )
}

async function submit(
  { base, core, path: attemptPath }: RekeyState,
  given: { readonly key: string | undefined; readonly nonce: string | undefined; readonly verify: boolean },
  format: Format,
  io: CommandIo,
): Promise<void> {
  const status = await requireResponse(core, { path: attemptPath })
  const name = given.verify ? 'verification of new key shares' : 'rekey'
  requireStarted(status, name, given.verify ? `${BEGIN} -verify` : BEGIN)
  const path = `${base}/${given.verify ? 'verify' : 'update'}`
  const answer = await submitShares(core, { path, nonce: status.fields.text('nonce'), name }, given, io)
  if (!answer.fields.boolean('complete')) show(answer, format, io)
  else if (given.verify) printAs(format, answer.body, io, () => 'Success! The new key shares are in effect.\n')
  else printAs(format, answer.body, io, () => newShares(answer))
}

function show(answer: CoreResponse, format: Format, io: CommandIo): void {
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

function newShares({ fields }: CoreResponse): string {
  const keys = fields.value('keys_base64')
  const lines = Array.isArray(keys) ? keys.map((key, at) => `Key ${at + 1}: ${String(key)}`) : []
  const nonce = fields.text('verification_nonce')
  const advice =
    nonce === ''
      ? ['Success! The new key shares are in effect; the previous shares are invalid.']
      : [
          'The new key shares are not in effect yet: their holders must submit them with',
          `"outpost operator rekey -verify". Nonce: ${nonce}`,
        ]
  return `${[...lines, '', `Operation nonce: ${fields.text('nonce')}`, '', ...advice].join('\n')}\n`
}
