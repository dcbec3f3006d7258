/** `outpost exec`: runs a program with secrets in its environment or in files, and updates them when they change. */
import { join } from 'node:path'
import type { LoginRole } from '../../login/credentials.ts'
import { LOGIN_FILE } from '../../login/login-file.ts'
import { messageOf } from '../../platform/errors.ts'
import { isUuid } from '../../platform/schema.ts'
import { allocRoot, dataDirectory } from '../../supervisor/alloc-directory.ts'
import { SignalForwarder } from '../../supervisor/signal-forwarder.ts'
import { faultOfTaskName } from '../../supervisor/alloc-layout.ts'
import { dataDirOption } from '../client/local-allocations.ts'
import { cleanPath, coreOf, coreOptions } from '../core/core-access.ts'
import { CommandError, type CommandIo, defineCommand } from '../framework/define-command.ts'
import { choice, duration, flag, text, texts, UsageError, type OptionValues } from '../framework/options.ts'
import { Program } from './exec/program.ts'
import { openAllocationSecrets, openDirectory, type SecretDirectory, SecretFiles } from './exec/secret-files.ts'
import {
  allowedPatterns,
  awsEnvironment,
  filesOf,
  type PathSecret,
  namedVariables,
  type VariableRules,
  variablesOf,
} from './exec/secret-texts.ts'
import { LeaseRevoker, type SecretData, type SecretUpdateOptions, secretUpdates } from './exec/secret-updates.ts'
import {
  agentToken,
  environmentOfCommand,
  givenToken,
  ownLogin,
  type TokenSource,
  withCredentials,
} from './exec/token-source.ts'

/** Limit for the revocation of the token at the end. */
const REVOKE_MS = 2000

const OPTIONS = {
  secret: texts('PATH', 'Path of a secret such as secret/data/app'),
  env: texts('NAME=KEY', 'Set the variable NAME to the value of KEY'),
  'env-prefix': text({ placeholder: 'TEXT', help: 'Allow all keys and prefix their names', fallback: undefined }),
  'allow-env': texts('PATTERN', 'Allow variables with these names; * matches any characters'),
  format: choice({
    placeholder: 'FORMAT',
    help: 'Form in which CMD receives the secrets',
    choices: ['env', 'aws', 'file'],
    shownDefault: 'env',
  }),
  dir: text({
    placeholder: 'DIR',
    help: 'Directory of the files; created if missing',
    fallback: undefined,
    shownDefault: 'NOMAD_SECRETS_DIR',
  }),
  alloc: text({
    placeholder: 'ID',
    help: 'Write files to the secrets directory of this allocation',
    fallback: undefined,
    check: (value) => (isUuid(value) ? undefined : 'must be a full allocation ID'),
  }),
  task: text({
    placeholder: 'NAME',
    help: 'Task of the allocation',
    fallback: undefined,
    shownDefault: 'the only task',
    check: faultOfTaskName,
  }),
  'data-dir': dataDirOption,
  'agent-login': text({
    placeholder: 'FILE',
    help: 'File with the token of the agent',
    fallback: undefined,
    shownDefault: `client/${LOGIN_FILE} in the data directory`,
  }),
  'on-change': choice({
    placeholder: 'ACTION',
    help: 'Action after a secret has changed',
    choices: ['restart', 'hup', 'none'],
    shownDefault: 'restart, or hup with -format=file',
  }),
  renew: flag('Renew the token while CMD runs'),
  'keep-lease': flag('Keep the leases and the token after CMD exits'),
  'role-id': text({ placeholder: 'ID', help: 'Log in with this AppRole role', fallback: undefined }),
  'secret-id-file': text({ placeholder: 'FILE', help: 'File with the secret ID', fallback: undefined }),
  'auth-path': text({ placeholder: 'PATH', help: 'Mount path of AppRole', fallback: 'auth/approle' }),
  poll: duration({ help: 'Poll interval of secrets that cannot be watched', fallback: '10s', minMs: 100 }),
  'start-timeout': duration({
    help: 'Time to wait for the server at the start',
    fallback: '1m',
    minMs: 0,
  }),
  'kill-timeout': duration({ help: 'Time between SIGTERM and SIGKILL', fallback: '30s', minMs: 0 }),
  ...coreOptions,
}

type ExecOptions = OptionValues<typeof OPTIONS>

export const command = defineCommand({
  name: 'exec',
  summary: 'Run a command with secrets',
  details: [
    'Reads the secrets, runs CMD and exits with its exit code, or with 128 plus the signal number if a signal',
    'killed CMD. CMD receives the environment without tokens and MFA codes. Signals are forwarded to CMD.',
    '',
    'The name of a variable is its key in uppercase, with _ for characters other than letters, digits and _:',
    'db-password becomes DB_PASSWORD. By default, a name is allowed if its last word is PASSWORD, PASSWD,',
    'PASSPHRASE, USER, USERNAME, TOKEN, SECRET, KEY or KEY_ID and the environment does not already set it. -allow-env',
    'allows other names; -env-prefix allows all names. With -env, only the keys of -env options become',
    'variables.',
    '',
    'With -format=aws, -secret is a path of a cloud engine, and CMD receives AWS_ACCESS_KEY_ID,',
    'AWS_SECRET_ACCESS_KEY and, for a session, AWS_SESSION_TOKEN.',
    '',
    'With -format=file, each key becomes a file (mode 0600) in a directory that only its owner can access.',
    'Files are replaced atomically. Strings are written unchanged, other values as JSON.',
    '',
    'A versioned secret is watched if the token may read PATH with watch/ instead of data/. Other secrets are',
    'polled (-poll). Leases are renewed, and a secret is read again before its lease expires. While the server',
    'is unreachable or sealed, or refuses requests, CMD keeps the last values. After a change, CMD is restarted',
    '(-on-change=restart), receives SIGHUP after its files are written (hup), or is not notified (none).',
    '',
    'When CMD exits, the leases of its secrets are revoked. This requires update on sys/leases/revoke.',
    '',
    'Without -role-id and without a token, the command uses the token of the agent of this host if this user',
    'may read it.',
    '',
    'Examples:',
    '  outpost exec -secret=secret/data/app -renew -- ./server',
    '  outpost exec -secret=cloud/creds/app -format=aws -- aws s3 ls',
    '  outpost exec -secret=secret/data/tls -format=file -dir=/run/app/tls -- nginx -g "daemon off;"',
  ].join('\n'),
  options: OPTIONS,
  operands: {
    shown: '-- CMD [ARG...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
  },
  operandsEndOptions: true,
  async run(values, [program = '', ...args], given) {
    const io = withCredentials(given)
    const plan = planOf(values, io)
    const ended = new AbortController()
    const run = new ExecRun(plan, io, ended.signal)
    try {
      return await run.run([program, ...args])
    } finally {
      ended.abort()
      plan.directory?.close()
      await run.close()
    }
  },
})

interface ExecPlan {
  readonly role: LoginRole | undefined
  readonly values: ExecOptions
  readonly paths: readonly string[]
  /** Undefined if keys become variables. */
  readonly directory: SecretDirectory | undefined
  readonly onChange: 'restart' | 'hup' | 'none'
  readonly rules: VariableRules
}

/** Throws UsageError and CommandError. */
function planOf(values: ExecOptions, io: CommandIo): ExecPlan {
  const paths = [...new Set(values.secret.map(cleanPath))]
  if (paths.length === 0) throw new UsageError('missing -secret=PATH')
  const isFile = values.format === 'file'
  if (!isFile && (values.dir ?? values.alloc) !== undefined)
    throw new UsageError('options -dir and -alloc require -format=file')
  const forVariables = [values['env-prefix'] ?? [], values.env, values['allow-env']]
  if ((isFile || values.format === 'aws') && forVariables.some(({ length }) => length > 0)) {
    throw new UsageError('options -env, -env-prefix and -allow-env require -format=env')
  }
  if (!isFile && values['on-change'] === 'hup') {
    throw new UsageError(
      'option -on-change=hup requires -format=file: the environment of a running process cannot change',
    )
  }
  if (values.format === 'aws' && paths.length > 1) throw new UsageError('option -format=aws accepts one secret')
  const onChange = values['on-change'] ?? (isFile ? 'hup' : 'restart')
  const rules = {
    named: namedVariables(values.env),
    prefix: values['env-prefix'] ?? '',
    allowed: allowedPatterns(values['allow-env']),
    environment: environmentOfCommand(io.env),
  }
  const role = roleOf(values)
  return { values, paths, onChange, rules, role, directory: isFile ? directoryOf(values, io) : undefined }
}

function roleOf(values: ExecOptions): LoginRole | undefined {
  const [roleId, secretIdFile] = [values['role-id'], values['secret-id-file']]
  if (roleId === undefined && secretIdFile === undefined) return undefined
  if (roleId === undefined || secretIdFile === undefined)
    throw new UsageError('options -role-id and -secret-id-file must be used together')
  return { roleId, secretIdFile, mount: cleanPath(values['auth-path']) }
}

function directoryOf(values: ExecOptions, io: CommandIo): SecretDirectory {
  if (values.alloc !== undefined) {
    if (values.dir !== undefined) throw new UsageError('options -dir and -alloc are mutually exclusive')
    return openAllocationSecrets(allocRoot(values['data-dir'], io.env), values.alloc.toLowerCase(), values.task)
  }
  const directory = values.dir ?? (io.env['NOMAD_SECRETS_DIR'] || undefined)
  if (directory === undefined) throw new UsageError('missing -dir DIR or -alloc ID')
  return openDirectory(directory)
}

/** The watched secrets and the program that receives them. */
class ExecRun {
  readonly #plan: ExecPlan
  readonly #io: CommandIo
  readonly #signal: AbortSignal
  readonly #files: SecretFiles | undefined
  /** In the order of the paths. */
  #current: PathSecret[] = []
  #program: Program | undefined
  #session: TokenSource | undefined
  #signals: SignalForwarder | undefined
  readonly #leases = new LeaseRevoker()

  constructor(plan: ExecPlan, io: CommandIo, signal: AbortSignal) {
    this.#plan = plan
    this.#io = io
    this.#signal = signal
    this.#files = plan.directory && new SecretFiles(plan.directory)
  }

  async run(program: readonly [string, ...string[]]): Promise<number> {
    const { paths, values } = this.#plan
    const session = (this.#session = this.#tokenSource())
    const options: SecretUpdateOptions = {
      get core() {
        return session.core
      },
      io: this.#io,
      signal: this.#signal,
      warn: (message) => this.#warn(message),
      another: (signal) => session.another(signal),
      pollMs: values.poll,
      onLease: (path, leaseId) => this.#leases.add(path, leaseId),
      firstUntilMs: performance.now() + values['start-timeout'],
    }
    await session.begin(options, options.firstUntilMs)
    const watched = paths.map((path) => ({ path, updates: secretUpdates(path, options) }))
    this.#current = await Promise.all(
      watched.map(async ({ path, updates }) => ({ path, data: (await updates.next()).value ?? {} })),
    )
    const env = this.#apply(this.#current)
    const killTimeoutMs = values['kill-timeout']
    const signals = (this.#signals = new SignalForwarder(killTimeoutMs))
    try {
      this.#program = new Program({ command: program, signals, killTimeoutMs }, env)
      const ended = this.#program.run()
      for (const [index, { path, updates }] of watched.entries()) void this.#watch(index, path, updates)
      void session.keep(options).catch((error: unknown) => this.#warn(messageOf(error)))
      return await ended
    } finally {
      signals.release()
    }
  }

  /**
   * Revokes leases and the token. Called after the signal has aborted, when nothing uses the token. A second SIGTERM neither skips the
   * revocation nor changes the exit code.
   */
  async close(): Promise<void> {
    if (this.#plan.values['keep-lease']) return
    // Before the token is revoked, because the requests may need it.
    if (this.#session) await this.#leases.revokeAll(this.#session.core, (message) => this.#warn(message))
    try {
      await this.#session?.end(AbortSignal.timeout(REVOKE_MS))
    } catch (error) {
      this.#warn(`cannot revoke the token, it will expire after its TTL: ${messageOf(error)}`)
    } finally {
      this.#signals?.detach()
    }
  }

  /** Login with a role, else the given token, else the token of the agent of this host. */
  #tokenSource(): TokenSource {
    const { role, values } = this.#plan
    const { env } = this.#io
    const given = coreOf(values, this.#io)
    if (role) return ownLogin(given, role, (message) => this.#warn(message))
    if (given.target.token !== undefined) return givenToken(given, values.renew)
    const file = values['agent-login'] ?? join(dataDirectory(values['data-dir'], env), 'client', LOGIN_FILE)
    const ofAgent = agentToken(file, (agents) => {
      if (given.target.from !== undefined || !agents) return given
      const { url, caFile, certFile, keyFile } = agents
      const options = { 'ca-cert': caFile, 'client-cert': certFile, 'client-key': keyFile }
      return coreOf({ ...values, ...options, address: url }, this.#io)
    })
    return ofAgent ?? givenToken(given, values.renew)
  }

  async #watch(index: number, path: string, updates: AsyncGenerator<SecretData>): Promise<void> {
    try {
      for await (const data of updates) {
        const before = this.#current[index]?.data
        if (JSON.stringify(before) === JSON.stringify(data)) continue
        this.#replace(this.#current.with(index, { path, data }))
      }
    } catch (error) {
      // An unexpected error must not stop the running program.
      this.#warn(`${path} is no longer watched: ${messageOf(error)}`)
    }
  }

  #replace(next: PathSecret[]): void {
    try {
      const env = this.#apply(next)
      this.#current = next
      if (this.#plan.onChange === 'restart') this.#program?.restart(env)
      else if (this.#plan.onChange === 'hup') this.#program?.hangUp()
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      this.#warn(`${error.message}; keeping the last values`)
    }
  }

  /** Writes the files, and returns the environment. Throws CommandError. */
  #apply(secrets: readonly PathSecret[]): NodeJS.ProcessEnv {
    const { rules, values } = this.#plan
    const [first] = secrets
    if (values.format === 'aws' && first) return awsEnvironment(first, rules.environment)
    if (!this.#files) return { ...rules.environment, ...Object.fromEntries(variablesOf(secrets, rules)) }
    this.#files.write(filesOf(secrets))
    return rules.environment
  }

  #warn(message: string): void {
    this.#io.err(`outpost: ${message}\n`)
  }
}
