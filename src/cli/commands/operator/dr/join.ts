/** `outpost operator dr join`: makes a server the secondary of a primary, and waits until it follows. */
import { CommandError, type CommandIo, defineCommand } from '../../../framework/command-shape.ts'
import { flag, text, UsageError } from '../../../framework/options.ts'
import { confirm, confirmOptions } from '../../../core/confirmation.ts'
import { type CoreAccess, coreOf, coreOptions, requireCore } from '../../../core/core-access.ts'
import { typedSecret } from '../../../input/typed-secret.ts'
import { shownName } from '../../../framework/shown.ts'
import { drStatus, requestChange } from './dr-access.ts'
import { untilFollowing } from './initial-sync.ts'
import { KeyShares, operationToken, removeOperationToken } from './operation-token.ts'
import { fileSource, OPERANDS_MAX, secretOperand } from './secret-sources.ts'

const STDIN = '-'
const TOKEN = { what: 'an activation token', prompt: 'Activation token (will be hidden): ' }

/** How the activation token is exchanged for the keys of the link. */
export const activationOptions = {
  'primary-api-addr': text({
    placeholder: 'URL',
    help: "The primary's API, where it is another one than the token names",
    fallback: '',
  }),
  'ca-file': text({
    placeholder: 'FILE',
    help: "A file on the server: the authorities of the primary's API",
    fallback: '',
  }),
  insecure: flag('Unwrap the token over plain HTTP to another host'),
}

export const command = defineCommand({
  name: 'operator dr join',
  summary: 'Make this server the DR secondary of a primary',
  details: [
    'Reads the activation token ("outpost operator dr token ID" on the primary) from standard input, from',
    '-token-file, or from the terminal, which does not show it. Checks that the primary is reachable and',
    'accepts this server, then deletes all secrets and tokens of this server and copies those of the',
    'primary. Ends when the copy is complete and the server follows. Ctrl-C ends the wait, not the sync.',
    '',
    'A server that is a secondary already, such as a demoted primary, gets another primary of its',
    'replication set. Nothing is deleted, and key shares are needed (-shares-file).',
    '',
    'On a terminal it asks for confirmation.',
    '',
    'Example: outpost operator dr join < activation.txt',
    '         outpost operator dr join -token-file activation.txt -shares-file - < shares.txt',
  ].join('\n'),
  options: {
    'token-file': text({ placeholder: 'FILE|-', help: 'A file with the activation token', fallback: undefined }),
    'shares-file': text({
      placeholder: 'FILE|-',
      help: 'Key shares, a line each, where this server is a secondary already',
      fallback: undefined,
    }),
    ...activationOptions,
    ...confirmOptions,
    ...coreOptions,
  },
  operands: { shown: '[-]', min: 0, max: OPERANDS_MAX, missing: '' },
  async run(values, operands, io) {
    const operand = secretOperand(operands, TOKEN.what)
    const tokenFile = fileSource(values['token-file'])
    if (operand !== undefined && tokenFile !== undefined) {
      throw new UsageError('give the activation token once: on standard input, or with -token-file')
    }
    const shares = fileSource(values['shares-file'])
    await join(coreOf(values, io), { ...values, token: operand ?? tokenFile ?? STDIN, shares }, io)
    return 0
  },
})

interface JoinValues {
  /** `@FILE` or `-`. */
  readonly token: string
  readonly shares: string | undefined
  readonly 'primary-api-addr': string
  readonly 'ca-file': string
  readonly insecure: boolean
  readonly yes: boolean
}

/** Throws CommandError, and UsageError before anything was requested. */
export async function join(core: CoreAccess, values: JoinValues, io: CommandIo): Promise<void> {
  const isTerminal = process.getBuiltinModule('node:tty').isatty(0)
  if (values.token === STDIN && values.shares === STDIN && !isTerminal) {
    throw new UsageError('standard input can be read once only: give the activation token or the key shares in a file')
  }
  const { fields } = await drStatus(core)
  const mode = fields.text('mode')
  const isSecondary = mode === 'secondary' || mode === 'bootstrapping'
  requireJoinable(core, mode, isSecondary && values.shares === undefined && !isTerminal)
  const token = await typedSecret(values.token, TOKEN, io)
  const { insecure, 'ca-file': caFile, 'primary-api-addr': apiAddress } = values
  const body = { token, primary_api_addr: apiAddress, ca_file: caFile, insecure }
  if (isSecondary) await changePrimary(core, body, values, io)
  else {
    await confirm(core, 'make this cluster a DR secondary and delete all its secrets and tokens', values.yes, io)
    await requestChange(core, 'secondary/enable', body, io)
  }
  io.err('The primary has accepted this server, the sync has begun. Ctrl-C ends the wait and not the sync.\n')
  const primary = await untilFollowing(core, io)
  const { fields: seal } = await requireCore(core, { path: 'sys/seal-status' })
  const next = seal.boolean('sealed') ? ' Next: outpost operator unseal, with the key shares of the primary' : ''
  io.out(`Success! This cluster is a DR secondary and follows ${shownName(primary) || 'its primary'}.${next}\n`)
}

/** Throws CommandError for a server that must not, or cannot, join as it is. */
function requireJoinable({ target }: CoreAccess, mode: string, needsShares: boolean): void {
  const where = target.url.origin
  if (mode === 'primary') {
    throw new CommandError(
      `${where} is a DR primary: "outpost operator dr demote" keeps its data for another primary of its set, "outpost operator dr disable" ends replication there`,
    )
  }
  if (!needsShares) return
  throw new CommandError(
    `${where} is a DR secondary already: to give it another primary, give key shares of the set with -shares-file FILE`,
  )
}

async function changePrimary(
  core: CoreAccess,
  body: { readonly token: string },
  { shares, yes }: JoinValues,
  io: CommandIo,
): Promise<void> {
  const effect = 'give this DR secondary another primary and move commits that only it has into a file of its data_dir'
  await confirm(core, effect, yes, io)
  await joinAgain(core, body, new KeyShares(shares, io), io)
}

/** Gives a secondary another primary of its set. Throws CommandError. */
export async function joinAgain(
  core: CoreAccess,
  body: { readonly token: string },
  shares: KeyShares,
  io: CommandIo,
): Promise<void> {
  const operation = await operationToken(core, shares)
  try {
    await requestChange(core, 'secondary/update-primary', { ...body, dr_operation_token: operation }, io)
  } finally {
    // It has no other use, and no end.
    await removeOperationToken(core, operation).catch(() => undefined)
  }
}
