/** `outpost operator generate-root`: generates a root token, or an operation token of a DR secondary, from key shares. */
import { randomInt } from 'node:crypto'
import { type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { flag, text, UsageError } from '../../framework/options.ts'
import {
  sendRequest,
  type CoreAccess,
  type CoreResponse,
  coreOf,
  coreOptions,
  requireResponse,
} from '../../core/core-access.ts'
import { submitShares, requireStarted, withShareAccess } from '../../core/key-shares.ts'
import { pgpKey } from '../../input/pgp-file.ts'
import { type Format, formatOf, formatOption, pairsTable, printAs } from '../../core/secret-output.ts'
import { readSecrets } from '../../input/secret-input.ts'

interface TokenKind {
  readonly path: string
  readonly token: string
  readonly begin: string
}

const ROOT: TokenKind = {
  path: 'sys/generate-root',
  token: 'root token',
  begin: 'outpost operator generate-root -init',
}
const OPERATION: TokenKind = {
  path: 'sys/replication/dr/secondary/generate-operation-token',
  token: 'operation token',
  begin: 'outpost operator generate-root -dr-token -init',
}
const OTP_CHARACTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

export const command = defineCommand({
  name: 'operator generate-root',
  summary: 'Generate a root token from key shares',
  details: [
    '-init starts an attempt and prints a one-time password. Then each key holder runs the command without',
    'options and enters a key share. The last one receives an encoded token. -decode decodes it with the',
    'one-time password. Neither the encoded token nor the password is useful alone.',
    '',
    'Requires a token with sudo, unless the server has disable_unauthed_generate_root_endpoints = false.',
    '',
    '-dr-token generates the operation token of a DR secondary from key shares of its primary. It requires no',
    'token.',
    '',
    '- reads a share, an encoded token or a password from standard input. Other users of this machine can read',
    'arguments. Unless the share is entered at a terminal prompt, -nonce is required.',
    '',
    'Example: outpost operator generate-root -init',
    '         outpost operator generate-root',
    '         outpost operator generate-root -decode - -otp -     (one per line of standard input)',
  ].join('\n'),
  options: {
    init: flag('Start an attempt'),
    otp: text({
      placeholder: 'OTP|-',
      help: 'One-time password of the attempt',
      fallback: undefined,
    }),
    'pgp-key': text({
      placeholder: 'FILE',
      help: 'Encrypt the token with a PGP public key instead',
      fallback: undefined,
    }),
    nonce: text({
      placeholder: 'NONCE',
      help: 'Nonce of the attempt',
      fallback: undefined,
    }),
    decode: text({ placeholder: 'TOKEN|@FILE|-', help: 'Decode an encoded token with -otp', fallback: undefined }),
    status: flag('Show the progress of the attempt'),
    cancel: flag('Cancel the attempt'),
    'generate-otp': flag('Print a new one-time password for -init'),
    'dr-token': flag('Generate the operation token of a DR secondary'),
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[KEY|-]', min: 0, max: 1 },
  async run(values, [key], io) {
    const chosen = (['init', 'decode', 'status', 'cancel', 'generate-otp'] as const).filter((name) => {
      return values[name] !== undefined && values[name] !== false
    })
    if (chosen.length > 1) throw new UsageError(`options -${chosen[0]} and -${chosen[1]} are mutually exclusive`)
    if (chosen.length > 0 && key !== undefined) throw new UsageError(`option -${chosen[0]} takes no key share`)
    const format = formatOf(values, io)
    if (values.decode !== undefined) return await decode(values.decode, values.otp, format, io)
    const attempt = { core: coreOf(values, io), kind: values['dr-token'] ? OPERATION : ROOT }
    const work = async () => {
      if (values['generate-otp']) io.out(`${newOtp((await attemptStatus(attempt)).fields.number('otp_length'))}\n`)
      else if (values.cancel) await cancel(attempt, values.nonce, io)
      else if (values.init) show(await start(attempt, values, io), format, io)
      else if (values.status) show(await attemptStatus(attempt), format, io)
      else show(await submit(attempt, key, values.nonce, io), format, io)
    }
    await (values['dr-token'] ? work() : withShareAccess('generate_root', attempt.core, work))
    return 0
  },
})

interface TokenAttempt {
  readonly core: CoreAccess
  readonly kind: TokenKind
}

function attemptStatus({ core, kind }: TokenAttempt): Promise<CoreResponse> {
  return requireResponse(core, { path: `${kind.path}/attempt` })
}

/** Without a nonce, cancels the current attempt. */
async function cancel({ core, kind }: TokenAttempt, given: string | undefined, io: CommandIo): Promise<void> {
  const nonce = given ?? (await attemptStatus({ core, kind })).fields.text('nonce')
  await sendRequest(core, { method: 'DELETE', path: `${kind.path}/attempt`, query: nonce === '' ? {} : { nonce } })
  io.out(`Success! The generation of ${withArticle(kind)} was canceled.\n`)
}

function withArticle({ token }: TokenKind): string {
  return `${/^[aeiou]/.test(token) ? 'an' : 'a'} ${token}`
}

async function start(
  { core, kind }: TokenAttempt,
  values: { readonly otp: string | undefined; readonly 'pgp-key': string | undefined },
  io: CommandIo,
): Promise<CoreResponse> {
  if (values.otp !== undefined && values['pgp-key'] !== undefined)
    throw new UsageError('options -otp and -pgp-key are mutually exclusive')
  const [otp] = values.otp === undefined ? [] : await readSecrets(values.otp, OTP, io)
  const body = {
    ...(otp === undefined ? {} : { otp }),
    ...(values['pgp-key'] === undefined ? {} : { pgp_key: pgpKey(values['pgp-key']) }),
  }
  return await requireResponse(core, { method: 'PUT', path: `${kind.path}/attempt`, body })
}

async function submit(
  { core, kind }: TokenAttempt,
  key: string | undefined,
  nonce: string | undefined,
  io: CommandIo,
): Promise<CoreResponse> {
  const status = await attemptStatus({ core, kind })
  requireStarted(status, `generation of ${withArticle(kind)}`, kind.begin)
  const attempt = { path: `${kind.path}/update`, nonce: status.fields.text('nonce'), name: kind.token }
  return await submitShares(core, attempt, { key, nonce }, io)
}

const OTP = { what: 'one-time password', prompt: 'One-time password (will be hidden): ' }
const ENCODED = { what: 'encoded token', prompt: 'Encoded token (will be hidden): ' }

/** Needs no server: the token is the encoded token XOR the password. */
async function decode(given: string, otp: string | undefined, format: Format, io: CommandIo): Promise<number> {
  const [encoded, second] = await readSecrets(given, ENCODED, io)
  const isSecond = otp === '-' && given === '-' && second !== undefined
  const [password] = isSecond ? [second] : await readSecrets(otp, OTP, io)
  const bytes = Buffer.from(encoded, 'base64')
  const key = Buffer.from(password)
  const token = Buffer.from(bytes.map((byte, at) => byte ^ (key[at] ?? 0))).toString('latin1')
  if (bytes.length !== key.length || !/^[\x21-\x7e]+$/.test(token)) {
    throw new UsageError('the encoded token and the one-time password do not belong to the same attempt')
  }
  printAs(format, { token }, io, () => `${token}\n`)
  return 0
}

function newOtp(length: number): string {
  return Array.from({ length }, () => OTP_CHARACTERS[randomInt(OTP_CHARACTERS.length)]).join('')
}

function show(answer: CoreResponse, format: Format, io: CommandIo): void {
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
    io.err('to decode the token: outpost operator generate-root -decode - -otp -\n')
  }
}
