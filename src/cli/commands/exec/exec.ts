/** `outpost exec`. */
import { allocRoot, dataDirectory, dataDirOption } from '../../../supervisor/alloc-directory.ts'
import { join } from 'node:path'
import type { LoginRole } from '../../../login/credentials.ts'
import { LOGIN_FILE } from '../../../login/login-file.ts'
import { type CommandIo, CommandError, defineCommand } from '../../framework/command-shape.ts'
import { messageOf } from '../../../platform/errors.ts'
import { isUuid } from '../../../platform/schema.ts'
import { faultOfTaskName } from '../../client/identifier.ts'
import { choice, duration, flag, text, texts, UsageError, type ValuesOf } from '../../framework/options.ts'
import { cleanPath, coreOf, coreOptions } from '../../core/core-access.ts'
import { SignalForwarder } from '../../../supervisor/signal-forwarder.ts'
import { environmentOfCommand, withCredentials } from './credentials.ts'
import { Program } from './program.ts'
import { openAllocationSecrets, openDirectory, type SecretDirectory, SecretFiles } from './secret-files.ts'
import { awsEnvironment } from './aws-environment.ts'
import { HeldLeases } from './held-leases.ts'
import { filesOf, type NamedData, variablesOf } from './secret-values.ts'
import { type FollowOptions, type SecretData, secretVersions } from './secret-versions.ts'
import { agentToken, givenToken, ownLogin, type TokenSource } from './token-source.ts'
import { allowedPatterns, namedVariables, type VariableRules } from './variable-names.ts'

/** For a server to answer at the end. */
const REVOKE_MS = 2000

const OPTIONS = {
  secret: texts('PATH', 'Path of a secret, as in secret/data/app'),
  env: texts('NAME=KEY', 'Set the variable NAME to the value of KEY'),
  'env-prefix': text({ placeholder: 'TEXT', help: 'Allow all keys with this before their names', fallback: undefined }),
  'allow-env': texts('PATTERN', 'Allow variables with these names; * stands for any characters'),
  format: choice({
    placeholder: 'FORMAT',
    help: 'What keys become: variables, variables of AWS, or files',
    choices: ['env', 'aws', 'file'],
  }),
  dir: text({
    placeholder: 'DIR',
    help: 'Directory for files, made where it is missing',
    fallback: undefined,
    shownDefault: 'NOMAD_SECRETS_DIR, in an allocation',
  }),
  alloc: text({
    placeholder: 'ID',
    help: 'Files go to the secrets/ of this allocation of the host',
    fallback: undefined,
    check: (value) => (isUuid(value) ? undefined : 'must be the full ID of an allocation'),
  }),
  task: text({
    placeholder: 'NAME',
    help: 'Its task',
    fallback: undefined,
    shownDefault: 'the only one',
    check: faultOfTaskName,
  }),
  'data-dir': dataDirOption,
  'agent-login': text({
    placeholder: 'FILE',
    help: "File with the login of this host's agent",
    fallback: undefined,
    shownDefault: `client/${LOGIN_FILE} in the data directory`,
  }),
  'on-change': choice({
    placeholder: 'ACTION',
    help: 'What becomes of CMD when a secret changes (env: restart, file: hup unless given)',
    choices: ['restart', 'hup', 'none'],
  }),
  renew: flag('Renew the token while CMD runs'),
  'keep-lease': flag('Do not revoke leases and the own login when CMD ends'),
  'role-id': text({ placeholder: 'ID', help: 'Log in by AppRole with this role', fallback: undefined }),
  'secret-id-file': text({ placeholder: 'FILE', help: 'File with the secret ID of the role', fallback: undefined }),
  'auth-path': text({ placeholder: 'PATH', help: 'Where AppRole is enabled', fallback: 'auth/approle' }),
  poll: duration({ help: 'How often secrets are read whose changes are not told', fallback: '10s', minMs: 100 }),
  'start-timeout': duration({
    help: 'How long a server may not answer before CMD is given up',
    fallback: '1m',
    minMs: 0,
  }),
  'kill-timeout': duration({ help: 'Time between SIGTERM and SIGKILL', fallback: '30s', minMs: 0 }),
  ...coreOptions,
}

type Values = ValuesOf<typeof OPTIONS>

export const command = defineCommand({
  name: 'exec',
  summary: 'Run a command with secrets in its environment or in files, and keep them fresh',
  details: [
    'Reads the secrets, runs CMD and ends with its exit code, or with 128 and the number of its signal.',
    'CMD gets the environment without tokens and codes, and is sent the signals that exec gets.',
    '',
    'Variables have the name of their key, in upper case, with _ for all but letters, digits and _:',
    'db-password becomes DB_PASSWORD. Allowed are names that end with PASSWORD, PASSWD, PASSPHRASE, USER,',
    'USERNAME, TOKEN, SECRET, KEY or KEY_ID as a word, unless the environment has them. -allow-env allows',
    'others, -env-prefix all of them. With -env only keys that an option names become variables.',
    '',
    'With -format=aws the secret is one of the cloud engine: CMD gets AWS_ACCESS_KEY_ID,',
    'AWS_SECRET_ACCESS_KEY and, for a session, AWS_SESSION_TOKEN.',
    '',
    'When CMD has ended, the leases of its secrets are revoked, which needs update on sys/leases/revoke.',
    '',
    'Files (0600) have the name of their key, are replaced whole, and are in a directory that its owner',
    'alone can enter. Texts are given as they are, everything else as JSON.',
    '',
    'While CMD runs: changes of versioned secrets come at once where the token may read PATH with watch/',
    'in the place of data/, else with -poll; leases are renewed, and read anew before they end. A server',
    'that is away, sealed or refuses leaves the last values as they are. Then: CMD is restarted',
    '(-on-change=restart), is sent SIGHUP once its files are written (hup; it must handle that), or is',
    'left alone (none).',
    '',
    'Without -role-id and a token of its own, it uses the one that the agent of this host has got by its',
    'secrets block, if this user may read it.',
    '',
    'Examples:',
    '  outpost exec -secret=secret/data/app -renew -- ./server',
    '  outpost exec -secret=cloud/creds/app -format=aws -- aws s3 ls',
    '  outpost exec -secret=secret/data/tls -format=file -dir=/run/app/tls -- nginx -g "daemon off;"',
  ].join('\n'),
  options: OPTIONS,
  operands: {
    shown: 'CMD [ARG...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
    missing: 'which command? as in: -- CMD ARG',
  },
  operandsEndOptions: true,
  async run(values, [program = '', ...args], given) {
    const io = withCredentials(given)
    const plan = planOf(values, io)
    const ended = new AbortController()
    const run = new Run(plan, io, ended.signal)
    try {
      return await run.run([program, ...args])
    } finally {
      ended.abort()
      plan.directory?.close()
      await run.close()
    }
  },
})

interface Plan {
  readonly role: LoginRole | undefined
  readonly values: Values
  readonly paths: readonly string[]
  /** Absent where keys become variables. */
  readonly directory: SecretDirectory | undefined
  readonly onChange: 'restart' | 'hup' | 'none'
  readonly rules: VariableRules
}

/** Throws UsageError and CommandError. */
function planOf(values: Values, io: CommandIo): Plan {
  const paths = [...new Set(values.secret.map(cleanPath))]
  if (paths.length === 0) throw new UsageError('which secret? as in -secret=secret/data/app')
  const isFile = values.format === 'file'
  if (!isFile && (values.dir ?? values.alloc) !== undefined)
    throw new UsageError('-dir and -alloc are for -format=file')
  const forVariables = [values['env-prefix'] ?? [], values.env, values['allow-env']]
  if ((isFile || values.format === 'aws') && forVariables.some(({ length }) => length > 0)) {
    throw new UsageError('-env, -env-prefix and -allow-env are for variables of -format=env')
  }
  if (!isFile && values['on-change'] === 'hup') {
    throw new UsageError('-on-change=hup is for -format=file: variables of a process that runs cannot be changed')
  }
  if (values.format === 'aws' && paths.length > 1) throw new UsageError('-format=aws is for one secret')
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

function roleOf(values: Values): LoginRole | undefined {
  const [roleId, secretIdFile] = [values['role-id'], values['secret-id-file']]
  if (roleId === undefined && secretIdFile === undefined) return undefined
  if (roleId === undefined || secretIdFile === undefined)
    throw new UsageError('-role-id and -secret-id-file go together')
  return { roleId, secretIdFile, mount: cleanPath(values['auth-path']) }
}

function directoryOf(values: Values, io: CommandIo): SecretDirectory {
  if (values.alloc !== undefined) {
    if (values.dir !== undefined) throw new UsageError('give one of -dir and -alloc')
    return openAllocationSecrets(allocRoot(values['data-dir'], io.env), values.alloc.toLowerCase(), values.task)
  }
  const directory = values.dir ?? (io.env['NOMAD_SECRETS_DIR'] || undefined)
  if (directory === undefined) throw new UsageError('where to? give -dir or -alloc')
  return openDirectory(directory)
}

/** One run: secrets that are followed, and the program that gets them. */
class Run {
  readonly #plan: Plan
  readonly #io: CommandIo
  readonly #signal: AbortSignal
  readonly #files: SecretFiles | undefined
  /** In the order of the paths. */
  #current: NamedData[] = []
  #program: Program | undefined
  #session: TokenSource | undefined
  #signals: SignalForwarder | undefined
  readonly #leases = new HeldLeases()

  constructor(plan: Plan, io: CommandIo, signal: AbortSignal) {
    this.#plan = plan
    this.#io = io
    this.#signal = signal
    this.#files = plan.directory && new SecretFiles(plan.directory)
  }

  async run(program: readonly [string, ...string[]]): Promise<number> {
    const { paths, values } = this.#plan
    const session = (this.#session = this.#tokenSource())
    const options: FollowOptions = {
      get core() {
        return session.core
      },
      io: this.#io,
      signal: this.#signal,
      warn: (message) => this.#warn(message),
      another: (signal) => session.another(signal),
      pollMs: values.poll,
      leased: (path, leaseId) => this.#leases.add(path, leaseId),
      firstUntilMs: performance.now() + values['start-timeout'],
    }
    await session.begin(options, options.firstUntilMs)
    const followed = paths.map((path) => ({ path, versions: secretVersions(path, options) }))
    this.#current = await Promise.all(
      followed.map(async ({ path, versions }) => ({ path, data: (await versions.next()).value ?? {} })),
    )
    const env = this.#written(this.#current)
    const killTimeoutMs = values['kill-timeout']
    const signals = (this.#signals = new SignalForwarder(killTimeoutMs))
    try {
      this.#program = new Program({ command: program, signals, killTimeoutMs }, env)
      const ended = this.#program.run()
      for (const [at, { path, versions }] of followed.entries()) void this.#follow(at, path, versions)
      void session.keep(options).catch((error: unknown) => this.#warn(messageOf(error)))
      return await ended
    } finally {
      signals.release()
    }
  }

  /**
   * To be called once the signal has aborted: nothing uses a token of its own then. A second SIGTERM neither leaves the token nor changes
   * the exit code.
   */
  async close(): Promise<void> {
    if (this.#plan.values['keep-lease']) return
    // Before the token, which may be needed for it.
    if (this.#session) await this.#leases.revokeAll(this.#session.core, (message) => this.#warn(message))
    try {
      await this.#session?.end(AbortSignal.timeout(REVOKE_MS))
    } catch (error) {
      this.#warn(`revoking the token failed, it expires: ${messageOf(error)}`)
    } finally {
      this.#signals?.detach()
    }
  }

  /** Its own login, else the token that it was given, else that of the agent of this host. */
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

  async #follow(at: number, path: string, versions: AsyncGenerator<SecretData>): Promise<void> {
    try {
      for await (const data of versions) {
        const before = this.#current[at]?.data
        if (JSON.stringify(before) === JSON.stringify(data)) continue
        this.#changed(this.#current.with(at, { path, data }))
      }
    } catch (error) {
      // What is unforeseen must not end a program that runs.
      this.#warn(`${path} is no longer followed: ${messageOf(error)}`)
    }
  }

  #changed(next: NamedData[]): void {
    try {
      const env = this.#written(next)
      this.#current = next
      if (this.#plan.onChange === 'restart') this.#program?.replace(env)
      else if (this.#plan.onChange === 'hup') this.#program?.hangUp()
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      this.#warn(`${error.message}; the last values stay`)
    }
  }

  /** Writes the files, and returns the environment. Throws CommandError. */
  #written(secrets: readonly NamedData[]): NodeJS.ProcessEnv {
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
