/** `outpost login`: keeps a token for the commands that follow: one that there is, or one that a login gives. */
import type { AgentTarget } from '../client/agent-target.ts'
import { CommandError, type CommandIo, defineCommand } from '../framework/command-shape.ts'
import { choice, flag, text, UsageError } from '../framework/options.ts'
import { type CoreAccess, type CoreAnswer, coreOf, coreOptions, requireCore } from '../core/core-access.ts'
import { fieldsOf } from '../output/answer.ts'
import { RefusedByAgent } from '../client/http-client.ts'
import { requireTokenField } from '../output/field-names.ts'
import { fieldOption, formatOption, printField, printSecret } from '../core/secret-output.ts'
import { typedSecret } from '../input/typed-secret.ts'
import { finishedLogin, needsCode } from './token/login-code.ts'
import { type LoginMethod, loginRequest } from './token/login-method.ts'
import { storeToken } from '../client/token-file.ts'

export const command = defineCommand({
  name: 'login',
  summary: 'Log in, or check a token, and keep the token for the commands that follow',
  details: [
    'Asks for the token on the terminal and does not show it; - reads it from standard input, @FILE from',
    'a file.',
    'It is kept in ~/.outpost-token, readable by you only, and used at OUTPOST_ADDR, or the default',
    'address, where no variable has a token for that.',
    '',
    '-method=userpass username=NAME [password=-] logs in with a password,',
    '-method=approle role_id=ID [secret_id=-] as a program. Passwords and secret IDs are asked for,',
    'read from standard input with -, or from a file with @FILE. A code that the server asks for is asked',
    'for, too; -mfa METHOD:CODE sends it with the login.',
    '',
    'Example: outpost login - < token',
    'Example: outpost login -method=userpass username=alice',
  ].join('\n'),
  options: {
    method: choice({ placeholder: 'METHOD', help: 'How to log in', choices: ['token', 'userpass', 'approle'] }),
    path: text({ placeholder: 'PATH', help: 'Where the method is mounted below auth/', fallback: undefined }),
    'no-store': flag('Only check the token'),
    'no-print': flag('Print nothing'),
    'token-only': flag('Print the token only, and do not keep it'),
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-|KEY=VALUE...]', min: 0, max: 4, missing: '' },
  async run(values, operands, io) {
    const { method } = values
    requireTokenField(values.field)
    const core = coreOf(values, io)
    const answer =
      method === 'userpass' || method === 'approle'
        ? await byMethod(method, withoutToken(core), { operands, path: values.path }, io)
        : await ofToken(core, operands, io)
    const token = answer.fields.under('auth').text('client_token')
    if (token === '') throw new CommandError('the server gave no token')
    if (values['token-only']) {
      printField('token', token, 'table', io)
      return 0
    }
    if (!values['no-store']) keep(token, core.target, io)
    if (!values['no-print']) printSecret(answer, values, io)
    return 0
  },
})

interface Given {
  readonly path: string | undefined
  readonly operands: readonly string[]
}

/** With the second step, where the server asks for a code. */
async function byMethod(method: LoginMethod, core: CoreAccess, given: Given, io: CommandIo): Promise<CoreAnswer> {
  const request = await loginRequest(method, given.path, given.operands, io)
  const answer = await requireCore(core, request).catch((error: unknown) => {
    throw isForbidden(error) ? new CommandError(refusedLogin(core), error.exitCode, { cause: error }) : error
  })
  return needsCode(answer) ? finishedLogin(core, answer, io) : answer
}

function isForbidden(error: unknown): error is RefusedByAgent {
  return error instanceof RefusedByAgent && error.status === 403
}

/** The server says no more than that, so that a right password cannot be told from a wrong one. */
function refusedLogin({ headers }: CoreAccess): string {
  const code = 'X-Vault-MFA' in headers ? 'the code was not accepted (each is good once), ' : ''
  return `the login was refused: ${code}the name is locked after wrong passwords, or it may not log in from here (HTTP 403)`
}

/** A login needs none, and one that has expired is in the way. */
function withoutToken(core: CoreAccess): CoreAccess {
  return { ...core, target: { ...core.target, token: undefined, tokenFrom: undefined } }
}

async function ofToken(core: CoreAccess, operands: readonly string[], io: CommandIo): Promise<CoreAnswer> {
  const [given, more] = operands
  if (more !== undefined) throw new UsageError('one token is enough')
  const wanted = { what: 'the token', prompt: 'Token (will be hidden): ' }
  const token = await typedSecret(given?.replace(/^token=/, ''), wanted, io)
  if (/[^\x21-\x7e]/.test(token)) throw new UsageError('that is no token: it has a sign that none has')
  const self = await requireCore(
    { ...core, target: { ...core.target, token, tokenFrom: undefined } },
    { path: 'auth/token/lookup-self' },
  )
  return asLogin(self, token)
}

function keep(token: string, { from, tokenFrom }: AgentTarget, io: CommandIo): void {
  const file = storeToken(token, io.env)
  io.err(`the token is kept in ${file}\n`)
  if (from === 'NOMAD_ADDR' || from === 'VAULT_ADDR') {
    io.err(`warning: the kept token is not sent to ${from}: set OUTPOST_ADDR to that address\n`)
  }
  if (tokenFrom !== undefined && tokenFrom !== file) {
    io.err(`warning: ${tokenFrom} is set and outranks it: unset ${tokenFrom}\n`)
  }
}

/** As if the token had just been given out: with the block that a login has. */
function asLogin({ fields, status }: CoreAnswer, token: string): CoreAnswer {
  const data = fields.under('data')
  if (data.text('id') === '') throw new CommandError('the server does not know the token')
  const auth = {
    client_token: token,
    accessor: data.value('accessor'),
    policies: data.value('policies') ?? [],
    token_policies: data.value('policies') ?? [],
    identity_policies: data.value('identity_policies') ?? [],
    metadata: data.value('meta') ?? null,
    lease_duration: data.number('ttl'),
    renewable: data.boolean('renewable'),
  }
  const body = { request_id: '', lease_id: '', lease_duration: 0, renewable: false, data: null, warnings: null, auth }
  return { status, body, fields: fieldsOf(body), isRepeatable: true }
}
