/** `outpost operator dr join`: makes a server the secondary of a primary and waits until it follows. */
import { CommandError, type CommandIo, defineCommand } from '../../../framework/define-command.ts'
import { flag, text, UsageError } from '../../../framework/options.ts'
import { confirm, confirmOptions } from '../../../core/confirmation.ts'
import { type CoreAccess, coreOf, coreOptions, requireResponse } from '../../../core/core-access.ts'
import { OPERANDS_MAX, readSecret, secretOperand } from '../../../input/secret-input.ts'
import { escapeLine } from '../../../framework/terminal-escapes.ts'
import { drStatus, fileSource, requestChange } from './dr-access.ts'
import { untilFollowing } from './progress.ts'
import { KeyShares, operationToken, deleteOperationToken } from './operation-token.ts'

const STDIN = '-'
const TOKEN = { what: 'activation token', prompt: 'Activation token (will be hidden): ' }

/** Options of the exchange of the activation token for the keys of the link. */
export const activationOptions = {
  'primary-api-addr': text({
    placeholder: 'URL',
    help: 'API address of the primary; overrides the activation token',
    fallback: '',
  }),
  'ca-file': text({
    placeholder: 'FILE',
    help: 'CA file on the addressed server for the primary',
    fallback: '',
  }),
  insecure: flag('Allow plain HTTP to the API of the primary'),
}

export const command = defineCommand({
  name: 'operator dr join',
  summary: 'Join a DR primary as a secondary',
  details: [
    'Reads the activation token ("outpost operator dr token ID" on the primary) from standard input, from',
    '-token-file, or from the terminal without echo. Checks that the primary is reachable and accepts this',
    'server, deletes all secrets and tokens of this server, and copies those of the primary. Returns when the',
    'copy is complete and the server replicates. Ctrl-C ends the command; the sync continues.',
    '',
    'A server that is already a secondary, such as a demoted primary, joins another primary of its replication',
    'set without deleting its data. This requires key shares (-shares-file).',
    '',
    'Asks for confirmation on a terminal.',
    '',
    'Example: outpost operator dr join < activation.txt',
    '         outpost operator dr join -token-file activation.txt -shares-file - < shares.txt',
  ].join('\n'),
  options: {
    'token-file': text({ placeholder: 'FILE|-', help: 'File with the activation token', fallback: undefined }),
    'shares-file': text({
      placeholder: 'FILE|-',
      help: 'File with key shares of the replication set',
      fallback: undefined,
    }),
    ...activationOptions,
    ...confirmOptions,
    ...coreOptions,
  },
  operands: { shown: '[-]', min: 0, max: OPERANDS_MAX },
  async run(values, operands, io) {
    const operand = secretOperand(operands, TOKEN.what)
    const tokenFile = fileSource(values['token-file'])
    if (operand !== undefined && tokenFile !== undefined) {
      throw new UsageError('pass the activation token only once: on standard input, or with -token-file')
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

/** Throws CommandError, and UsageError before the first request. */
export async function join(core: CoreAccess, values: JoinValues, io: CommandIo): Promise<void> {
  const isTerminal = process.getBuiltinModule('node:tty').isatty(0)
  if (values.token === STDIN && values.shares === STDIN && !isTerminal) {
    throw new UsageError('standard input can be read only once: pass the activation token or the key shares in a file')
  }
  const { fields } = await drStatus(core)
  const mode = fields.text('mode')
  const isSecondary = mode === 'secondary' || mode === 'bootstrapping'
  requireJoinable(core, mode, isSecondary && values.shares === undefined && !isTerminal)
  const token = await readSecret(values.token, TOKEN, io)
  const { insecure, 'ca-file': caFile, 'primary-api-addr': apiAddress } = values
  const body = { token, primary_api_addr: apiAddress, ca_file: caFile, insecure }
  if (isSecondary) await changePrimary(core, body, values, io)
  else {
    await confirm(core, 'make this cluster a DR secondary and delete all its secrets and tokens', values.yes, io)
    await requestChange(core, 'secondary/enable', body, io)
  }
  io.err('The primary has accepted this server and the sync has started. Ctrl-C ends this command, not the sync.\n')
  const primary = await untilFollowing(core, io)
  const { fields: seal } = await requireResponse(core, { path: 'sys/seal-status' })
  const next = seal.boolean('sealed') ? ' Next: outpost operator unseal, with the key shares of the primary' : ''
  io.out(`Success! This cluster is a DR secondary and follows ${escapeLine(primary) || 'its primary'}.${next}\n`)
}

/** Throws CommandError for a server that cannot join. */
function requireJoinable({ target }: CoreAccess, mode: string, needsShares: boolean): void {
  const where = target.url.origin
  if (mode === 'primary') {
    throw new CommandError(
      `${where} is a DR primary: run "outpost operator dr demote" to join another primary of its set, or "outpost operator dr disable" first`,
    )
  }
  if (!needsShares) return
  throw new CommandError(
    `${where} is already a DR secondary: to change its primary, pass key shares with -shares-file FILE`,
  )
}

async function changePrimary(
  core: CoreAccess,
  body: { readonly token: string },
  { shares, yes }: JoinValues,
  io: CommandIo,
): Promise<void> {
  const effect = 'change the primary of this DR secondary and move commits that only it has to a file in its data_dir'
  await confirm(core, effect, yes, io)
  await joinAgain(core, body, new KeyShares(shares, io), io)
}

/** Changes the primary of a secondary. Throws CommandError. */
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
    // The token does not expire and has no other use.
    await deleteOperationToken(core, operation).catch(() => undefined)
  }
}
