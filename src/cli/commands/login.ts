/** `outpost login`: logs in with an auth method or a token, and stores the token for later commands. */
import { type AgentTarget, storeToken } from '../client/agent-target.ts'
import { AgentRefusal } from '../client/http-client.ts'
import {
  cleanPath,
  type CoreAccess,
  type CoreResponse,
  coreOf,
  coreOptions,
  type CoreRequest,
  requireResponse,
} from '../core/core-access.ts'
import { fieldOption, formatOption, printField, printSecret } from '../core/secret-output.ts'
import { CommandError, type CommandIo, defineCommand } from '../framework/define-command.ts'
import { choice, flag, text, UsageError } from '../framework/options.ts'
import { readSecret } from '../input/secret-input.ts'
import { requireTokenField } from '../output/field-names.ts'
import { type JsonFields, fieldsOf } from '../output/json.ts'

export const command = defineCommand({
  name: 'login',
  summary: 'Log in and store the token',
  details: [
    'Without -method, prompts for a token without echo; - reads it from standard input, @FILE from a file. The',
    'token is checked and stored in ~/.outpost-token (mode 0600). It is sent to OUTPOST_ADDR, or to the default',
    'address, unless an environment variable sets a token for that address.',
    '',
    '-method=userpass username=NAME logs in with a password, -method=approle role_id=ID with an AppRole.',
    'Passwords and secret IDs are prompted for. To read them from standard input or a file, add password=- or',
    'password=@FILE (secret_id= for an AppRole). MFA codes are prompted for; -mfa METHOD:CODE sends a code with',
    'the login.',
    '',
    'Examples:',
    '  outpost login - < token',
    '  outpost login -method=userpass username=alice',
  ].join('\n'),
  options: {
    method: choice({
      placeholder: 'METHOD',
      help: 'Login method',
      choices: ['token', 'userpass', 'approle'],
      shownDefault: 'token',
    }),
    path: text({ placeholder: 'PATH', help: 'Mount path of the auth method', fallback: undefined }),
    'no-store': flag('Check the token without storing it'),
    'no-print': flag('Print nothing'),
    'token-only': flag('Print the token without storing it'),
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-|KEY=VALUE...]', min: 0, max: 4 },
  async run(values, operands, io) {
    const { method } = values
    requireTokenField(values.field)
    const core = coreOf(values, io)
    const answer =
      method === 'userpass' || method === 'approle'
        ? await byMethod(method, withoutToken(core), { operands, path: values.path }, io)
        : await byToken(core, operands, io)
    const token = answer.fields.under('auth').text('client_token')
    if (token === '') throw new CommandError('the server returned no token')
    if (values['token-only']) {
      printField('token', token, 'table', io)
      return 0
    }
    if (!values['no-store']) store(token, core.target, io)
    if (!values['no-print']) printSecret(answer, values, io)
    return 0
  },
})

interface LoginOperands {
  readonly path: string | undefined
  readonly operands: readonly string[]
}

/** Includes the second step if the server requires a code. */
async function byMethod(
  method: LoginMethod,
  core: CoreAccess,
  given: LoginOperands,
  io: CommandIo,
): Promise<CoreResponse> {
  const request = await loginRequest(method, given.path, given.operands, io)
  const answer = await requireResponse(core, request).catch((error: unknown) => {
    throw isForbidden(error) ? new CommandError(refusalText(core), error.exitCode, { cause: error }) : error
  })
  return needsCode(answer) ? finishLogin(core, answer, io) : answer
}

function isForbidden(error: unknown): error is AgentRefusal {
  return error instanceof AgentRefusal && error.status === 403
}

/** The server does not report the cause, so that a correct password cannot be distinguished from a wrong one. */
function refusalText({ headers }: CoreAccess): string {
  const code = 'X-Vault-MFA' in headers ? 'invalid or used MFA code, ' : ''
  return `login refused: ${code}locked user, or login not allowed from this address (HTTP 403)`
}

/** A login needs no token, and the server would refuse an expired one. */
function withoutToken(core: CoreAccess): CoreAccess {
  return { ...core, target: { ...core.target, token: undefined, tokenFrom: undefined } }
}

async function byToken(core: CoreAccess, operands: readonly string[], io: CommandIo): Promise<CoreResponse> {
  const [given, extra] = operands
  if (extra !== undefined) throw new UsageError('expected one token, got several arguments')
  const prompt = { what: 'token', prompt: 'Token (will be hidden): ' }
  const token = await readSecret(given?.replace(/^token=/, ''), prompt, io)
  if (/[^\x21-\x7e]/.test(token))
    throw new UsageError('malformed token: it contains a character that tokens do not have')
  const self = await requireResponse(
    { ...core, target: { ...core.target, token, tokenFrom: undefined } },
    { path: 'auth/token/lookup-self' },
  )
  return asLoginResponse(self, token)
}

function store(token: string, { from, tokenFrom }: AgentTarget, io: CommandIo): void {
  const file = storeToken(token, io.env)
  io.err(`stored the token in ${file}\n`)
  if (from === 'NOMAD_ADDR' || from === 'VAULT_ADDR') {
    io.err(`warning: the stored token is not sent to ${from}: set OUTPOST_ADDR to that address\n`)
  }
  if (tokenFrom !== undefined && tokenFrom !== file) {
    io.err(`warning: ${tokenFrom} overrides the stored token: unset ${tokenFrom}\n`)
  }
}

/** A response like that of a login, with an `auth` block. */
function asLoginResponse({ fields, status }: CoreResponse, token: string): CoreResponse {
  const data = fields.under('data')
  if (data.text('id') === '') throw new CommandError('unknown token')
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

type LoginMethod = 'userpass' | 'approle'

/** The request of a login. `path`: mount path of the method; its type unless given. */
function loginRequest(
  method: LoginMethod,
  path: string | undefined,
  operands: readonly string[],
  io: CommandIo,
): Promise<CoreRequest> {
  const mount = cleanPath(path ?? method).replace(/^auth\//, '')
  const given = loginPairs(operands)
  return method === 'userpass' ? byPassword(mount, given, io) : byRole(mount, given, io)
}

async function byPassword(mount: string, given: ReadonlyMap<string, string>, io: CommandIo): Promise<CoreRequest> {
  const { username, password } = knownPairs(given, ['username', 'password'])
  if (username === undefined) throw new UsageError('missing username=NAME')
  requireOneInput([username, password])
  const name = await readSecret(username, { what: 'user name', prompt: 'User name (will be hidden): ' }, io)
  const prompt = { what: 'password', prompt: 'Password (will be hidden): ', keepsSpaces: true }
  const secret = await readSecret(password, prompt, io)
  return { method: 'PUT', path: `auth/${mount}/login/${name}`, body: { password: secret } }
}

async function byRole(mount: string, given: ReadonlyMap<string, string>, io: CommandIo): Promise<CoreRequest> {
  const { role_id: role, secret_id: secret } = knownPairs(given, ['role_id', 'secret_id'])
  if (role === undefined) throw new UsageError('missing role_id=ID')
  requireOneInput([role, secret])
  const roleId = await readSecret(role, { what: 'role ID', prompt: 'Role ID (will be hidden): ' }, io)
  const prompt = { what: 'secret ID', prompt: 'Secret ID (will be hidden): ' }
  const body = { role_id: roleId, secret_id: await readSecret(secret, prompt, io) }
  return { method: 'PUT', path: `auth/${mount}/login`, body }
}

/** Throws UsageError, because the first value reads all of standard input. */
function requireOneInput(given: readonly (string | undefined)[]): void {
  if (given.filter((value) => value === '-').length > 1) throw new UsageError('standard input can be read only once')
}

function loginPairs(operands: readonly string[]): ReadonlyMap<string, string> {
  return new Map(
    operands.map((operand, index) => {
      const at = operand.indexOf('=')
      // The operand is not in the message, because it may be a password.
      if (at <= 0) throw new UsageError(`expected KEY=VALUE, argument ${index + 1} is not`)
      return [operand.slice(0, at), operand.slice(at + 1)]
    }),
  )
}

function knownPairs<K extends string>(
  given: ReadonlyMap<string, string>,
  keys: readonly K[],
): { readonly [N in K]?: string } {
  for (const key of given.keys()) {
    if (!keys.some((each) => each === key))
      throw new UsageError(`unknown key ${JSON.stringify(key)}: this method accepts ${keys.join(' and ')}`)
  }
  const pairs: { [N in K]?: string } = {}
  for (const key of keys) {
    const value = given.get(key)
    if (value !== undefined) pairs[key] = value
  }
  return pairs
}

const ATTEMPTS_MAX = 3

interface MfaMethod {
  readonly id: string
  readonly name: string
}

/** True for the response to the first step of a login with a code. */
function needsCode({ fields }: CoreResponse): boolean {
  return fields.under('auth').under('mfa_requirement').text('mfa_request_id') !== ''
}

/**
 * Prompts for a code of each enforcement and sends them; prompts again after invalid codes. Resolves with the response that contains
 * the token. Throws CommandError.
 */
async function finishLogin(core: CoreAccess, firstStep: CoreResponse, io: CommandIo): Promise<CoreResponse> {
  const requirement = firstStep.fields.under('auth').under('mfa_requirement')
  const enforcements = requirement
    .names('mfa_constraints')
    .map((name) => methodsOf(requirement.under('mfa_constraints').under(name)))
  if (!process.getBuiltinModule('node:tty').isatty(0)) throw noTerminal(enforcements)
  for (let attempt = 1; ; attempt++) {
    const payload: Record<string, string[]> = {}
    for (const methods of enforcements) await promptCode(methods, payload, io)
    const body = { mfa_request_id: requirement.text('mfa_request_id'), mfa_payload: payload }
    try {
      return await requireResponse(core, { method: 'PUT', path: 'sys/mfa/validate', body })
    } catch (error) {
      if (!isForbidden(error) || attempt >= ATTEMPTS_MAX) throw error
      io.err('invalid or used code: each code can be used once, wait for the next one\n')
    }
  }
}

function methodsOf(constraint: JsonFields): MfaMethod[] {
  const any = constraint.value('any')
  if (!Array.isArray(any)) return []
  return any.map((each) => {
    const fields = fieldsOf(each)
    return { id: fields.text('id'), name: fields.text('name') || fields.text('id') }
  })
}

function namesOf(methods: readonly MfaMethod[]): string {
  return methods.map(({ name }) => name).join(', ')
}

function noTerminal(enforcements: readonly MfaMethod[][]): CommandError {
  const [methods = []] = enforcements
  return new CommandError(
    `the login requires a code of ${namesOf(methods)}: use -mfa METHOD:CODE (or OUTPOST_MFA), or log in on a terminal`,
  )
}

/** Adds a code of one of the methods, unless there is one already. */
async function promptCode(
  methods: readonly MfaMethod[],
  payload: Record<string, string[]>,
  io: CommandIo,
): Promise<void> {
  const [only] = methods
  if (!only) throw new CommandError('the login requires a code of a deleted MFA method')
  if (methods.some(({ id }) => id in payload)) return
  const what = { what: 'code' }
  if (methods.length === 1) {
    payload[only.id] = [await readSecret(undefined, { ...what, prompt: `Code of ${only.name} (will be hidden): ` }, io)]
    return
  }
  const prompt = `Code of one of ${namesOf(methods)}, as METHOD:CODE (will be hidden): `
  const typed = await readSecret(undefined, { ...what, prompt }, io)
  const colon = typed.indexOf(':')
  const method = typed.slice(0, Math.max(colon, 0))
  const chosen = methods.find(({ id, name }) => name === method || id === method)
  if (!chosen) throw new CommandError(`expected METHOD:CODE with one of the methods ${namesOf(methods)}`)
  payload[chosen.id] = [typed.slice(colon + 1)]
}
