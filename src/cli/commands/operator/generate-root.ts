/** `outpost operator generate-root`: a root token from key shares, or the operation token of a DR secondary. */
import { randomInt } from 'node:crypto'
import { type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { flag, text, UsageError } from '../../framework/options.ts'
import { askCore, type CoreAccess, type CoreAnswer, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { giveShares, requireStarted, withShareAccess } from '../../core/key-shares.ts'
import { pgpKey } from '../../input/pgp-file.ts'
import { type Format, formatOf, formatOption, pairsTable, printAs } from '../../core/secret-output.ts'
import { typedSecrets } from '../../input/typed-secret.ts'

/** Which token is made, and where. */
interface Family {
  readonly path: string
  readonly token: string
  readonly begin: string
}

const ROOT: Family = { path: 'sys/generate-root', token: 'root token', begin: 'outpost operator generate-root -init' }
const OPERATION: Family = {
  path: 'sys/replication/dr/secondary/generate-operation-token',
  token: 'operation token',
  begin: 'outpost operator generate-root -dr-token -init',
}
const OTP_SIGNS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

export const command = defineCommand({
  name: 'operator generate-root',
  summary: 'Make a root token from key shares',
  details: [
    'One begins it with -init and gets a one-time password; then enough holders of shares run it',
    'without an option and type theirs; the last one gets an encoded token, which -decode with the',
    'password turns into the token. So whoever sees only one of the two has nothing.',
    '',
    'It needs a token that has sudo, unless the server has',
    'disable_unauthed_generate_root_endpoints = false.',
    '',
    'With -dr-token it is the operation token of a DR secondary, from shares of its primary; that',
    'needs no token.',
    '',
    'A share, an encoded token and a password are read from standard input for a -: as arguments',
    'other users of the machine can see them. A share that is not typed on a terminal needs -nonce.',
    '',
    'Example: outpost operator generate-root -init',
    '         outpost operator generate-root',
    '         outpost operator generate-root -decode - -otp -     (each in a line of standard input)',
  ].join('\n'),
  options: {
    init: flag('Begin an attempt'),
    otp: text({
      placeholder: 'OTP|-',
      help: 'With -init a one-time password of your own; with -decode the one of the attempt',
      fallback: undefined,
    }),
    'pgp-key': text({
      placeholder: 'FILE',
      help: 'With -init: a PGP key for whose owner the token is, instead',
      fallback: undefined,
    }),
    nonce: text({
      placeholder: 'NONCE',
      help: 'The attempt that a share is for, or that -cancel ends',
      fallback: undefined,
    }),
    decode: text({ placeholder: 'TOKEN|@FILE|-', help: 'Decode an encoded token, with -otp', fallback: undefined }),
    status: flag('Show how far the attempt is'),
    cancel: flag('End the attempt'),
    'generate-otp': flag('Print a one-time password for -init'),
    'dr-token': flag('Make the operation token of a DR secondary'),
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[KEY|-]', min: 0, max: 1, missing: '' },
  async run(values, [key], io) {
    const chosen = (['init', 'decode', 'status', 'cancel', 'generate-otp'] as const).filter((name) => {
      return values[name] !== undefined && values[name] !== false
    })
    if (chosen.length > 1) throw new UsageError(`-${chosen[0]} and -${chosen[1]} do not go together`)
    if (chosen.length > 0 && key !== undefined) throw new UsageError(`-${chosen[0]} takes no key share`)
    const format = formatOf(values, io)
    if (values.decode !== undefined) return await decode(values.decode, values.otp, format, io)
    const attempt = { core: coreOf(values, io), family: values['dr-token'] ? OPERATION : ROOT }
    const work = async () => {
      if (values['generate-otp']) io.out(`${newOtp((await now(attempt)).fields.number('otp_length'))}\n`)
      else if (values.cancel) await cancel(attempt, values.nonce, io)
      else if (values.init) show(await begin(attempt, values, io), format, io)
      else if (values.status) show(await now(attempt), format, io)
      else show(await goOn(attempt, key, values.nonce, io), format, io)
    }
    await (values['dr-token'] ? work() : withShareAccess('generate_root', attempt.core, work))
    return 0
  },
})

interface Attempting {
  readonly core: CoreAccess
  readonly family: Family
}

function now({ core, family }: Attempting): Promise<CoreAnswer> {
  return requireCore(core, { path: `${family.path}/attempt` })
}

/** Without a nonce it is the attempt that is under way at this moment. */
async function cancel({ core, family }: Attempting, given: string | undefined, io: CommandIo): Promise<void> {
  const nonce = given ?? (await now({ core, family })).fields.text('nonce')
  await askCore(core, { method: 'DELETE', path: `${family.path}/attempt`, query: nonce === '' ? {} : { nonce } })
  io.out(`Success! The attempt to make ${article(family)} was cancelled.\n`)
}

function article({ token }: Family): string {
  return `${/^[aeiou]/.test(token) ? 'an' : 'a'} ${token}`
}

async function begin(
  { core, family }: Attempting,
  values: { readonly otp: string | undefined; readonly 'pgp-key': string | undefined },
  io: CommandIo,
): Promise<CoreAnswer> {
  if (values.otp !== undefined && values['pgp-key'] !== undefined)
    throw new UsageError('give -otp or -pgp-key, not both')
  const [otp] = values.otp === undefined ? [] : await typedSecrets(values.otp, OTP, io)
  const body = {
    ...(otp === undefined ? {} : { otp }),
    ...(values['pgp-key'] === undefined ? {} : { pgp_key: pgpKey(values['pgp-key']) }),
  }
  return await requireCore(core, { method: 'PUT', path: `${family.path}/attempt`, body })
}

async function goOn(
  { core, family }: Attempting,
  key: string | undefined,
  nonce: string | undefined,
  io: CommandIo,
): Promise<CoreAnswer> {
  const status = await now({ core, family })
  requireStarted(status, `attempt to make ${article(family)}`, family.begin)
  const attempt = { path: `${family.path}/update`, nonce: status.fields.text('nonce'), name: family.token }
  return await giveShares(core, attempt, { key, nonce }, io)
}

const OTP = { what: 'the one-time password', prompt: 'One-time password (will be hidden): ' }
const ENCODED = { what: 'the encoded token', prompt: 'Encoded token (will be hidden): ' }

/** Needs no server: the token is the encoded one with the password taken off. */
async function decode(given: string, otp: string | undefined, format: Format, io: CommandIo): Promise<number> {
  const [encoded, second] = await typedSecrets(given, ENCODED, io)
  const isSecond = otp === '-' && given === '-' && second !== undefined
  const [password] = isSecond ? [second] : await typedSecrets(otp, OTP, io)
  const bytes = Buffer.from(encoded, 'base64')
  const key = Buffer.from(password)
  const token = Buffer.from(bytes.map((byte, at) => byte ^ (key[at] ?? 0))).toString('latin1')
  if (bytes.length !== key.length || !/^[\x21-\x7e]+$/.test(token)) {
    throw new UsageError('the encoded token and the one-time password are not of one attempt')
  }
  printAs(format, { token }, io, () => `${token}\n`)
  return 0
}

function newOtp(length: number): string {
  return Array.from({ length }, () => OTP_SIGNS[randomInt(OTP_SIGNS.length)]).join('')
}

function show(answer: CoreAnswer, format: Format, io: CommandIo): void {
  const { fields } = answer
  const encoded = fields.text('encoded_token') || fields.text('encoded_root_token')
  const isComplete = fields.boolean('complete')
  printAs(format, answer.body, io, () =>
    pairsTable([
      ['Nonce', fields.text('nonce')],
      ['Started', fields.boolean('started')],
      ['Progress', `${fields.number('progress')}/${fields.number('required')}`],
      ['Complete', isComplete],
      ...(fields.text('otp') === '' ? [] : ([['OTP', fields.text('otp')]] as const)),
      ...(fields.text('pgp_fingerprint') === ''
        ? []
        : ([['PGP Fingerprint', fields.text('pgp_fingerprint')]] as const)),
      ...(encoded === '' ? [] : ([['Encoded Token', encoded]] as const)),
    ]),
  )
  if (isComplete && fields.text('pgp_fingerprint') === '') {
    io.err('decode it with "outpost operator generate-root -decode - -otp -"\n')
  }
}
