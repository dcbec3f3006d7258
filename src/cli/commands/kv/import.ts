/** `outpost kv import`: reads and validates a whole export file, then writes the secrets that differ. */
import { statSync } from 'node:fs'
import { messageOf } from '../../../platform/errors.ts'
import { AgentRefusal } from '../../client/http-client.ts'
import { type CoreAccess, coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { cell } from '../../core/secret-output.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { choice, flag, UsageError } from '../../framework/options.ts'
import { textOf } from '../../input/data-input.ts'
import { isJsonObject } from '../../output/json.ts'
import { Progress, terminalOf } from '../../output/terminal.ts'
import { parseJsonFile, sourceName } from './json-file.ts'
import { type KvPath, mountOption, resolveVersionedFolder } from './secret-path.ts'

/** Limits of a request, which is one transaction; well below the limits of a server. */
const SECRETS_PER_REQUEST = 500
const CHARACTERS_PER_REQUEST = 1 << 20

const OUTCOMES = ['created', 'updated', 'metadata', 'unchanged'] as const
type Counts = Record<(typeof OUTCOMES)[number], number>

export const command = defineCommand({
  name: 'kv import',
  summary: 'Import secrets from an export file',
  details: [
    'Validates the whole file, then writes the secrets that differ. Secrets that are not in the file do not',
    `change. Up to ${SECRETS_PER_REQUEST} secrets are written in one transaction. If a transaction fails, the number of imported`,
    'secrets is reported; run the same command again to continue. -format=env imports a .env file as one secret.',
    '',
    'Example: outpost kv import -dry-run secret/app app.json',
  ].join('\n'),
  options: {
    format: choice({
      placeholder: 'FORMAT',
      help: 'File format; env imports one secret',
      choices: ['json', 'env'],
    }),
    'dry-run': flag('Print the changes without writing them'),
    ...mountOption,
    ...coreOptions,
  },
  operands: {
    shown: 'PATH FILE|-',
    min: 2,
    max: 2,
  },
  async run(values, [path = '', given = ''], io) {
    const file = given.startsWith('@') ? given.slice(1) : given
    const content = await readImportFile(file)
    const secrets = values.format === 'env' ? undefined : secretsIn(content, file, io)
    const core = coreOf(values, io)
    const folder = await resolveVersionedFolder(core, path, values.mount)
    const progress = new Progress(io, terminalOf(2, io.env, values['no-color']))
    const kvImport = new KvImport({ core, io, folder, isDryRun: values['dry-run'], progress })
    if (secrets) await kvImport.tree(secrets)
    else await kvImport.env(content, sourceName(file))
    kvImport.printSummary()
    return 0
  },
})

interface ImportContext {
  readonly core: CoreAccess
  readonly io: CommandIo
  readonly folder: KvPath
  readonly isDryRun: boolean
  readonly progress: Progress
}

class KvImport {
  readonly #context: ImportContext
  readonly #counts: Counts = { created: 0, updated: 0, metadata: 0, unchanged: 0 }

  constructor(context: ImportContext) {
    this.#context = context
  }

  /** Throws CommandError, which states what was imported. */
  async tree(secrets: readonly NamedSecret[]): Promise<void> {
    const { progress } = this.#context
    let done = 0
    try {
      for (const part of batchesOf(secrets)) {
        progress.show(done / secrets.length, `${done}/${secrets.length} secrets`)
        await this.#send({ secrets: Object.fromEntries(part) }).catch((error: unknown) => {
          throw this.#failure(error, { done, part, all: secrets })
        })
        done += part.length
      }
    } finally {
      progress.end()
    }
  }

  /** Throws CommandError. */
  async env(text: string, source: string): Promise<void> {
    if (this.#context.folder.secret === '')
      throw new UsageError('PATH must name a secret: -format=env imports one secret')
    try {
      await this.#send({ format: 'env', text })
    } catch (error) {
      if (!(error instanceof AgentRefusal) || error.status !== 400) throw error
      throw new CommandError(`${source}: ${error.message}`, 1, { cause: error })
    }
  }

  printSummary(): void {
    const { folder, io, isDryRun } = this.#context
    const { created, metadata, unchanged, updated } = this.#counts
    const at = [folder.mount, folder.secret].filter(Boolean).join('/')
    const counts = `created ${created}, updated ${updated}, custom metadata only ${metadata}, unchanged ${unchanged}`
    io.out(`${isDryRun ? 'Would import to' : 'Success! Imported to'}: ${cell(at)} (${counts})\n`)
  }

  async #send(body: object): Promise<void> {
    const { core, folder, io, isDryRun } = this.#context
    const request = { method: 'POST', path: folder.at('import'), body: { ...body, dry_run: isDryRun } } as const
    const data = (await requireResponse(core, request)).fields.under('data')
    for (const name of OUTCOMES) this.#counts[name] += data.number(name)
    const secrets = data.value('secrets')
    if (!isDryRun || !isJsonObject(secrets)) return
    for (const [name, what] of Object.entries(secrets)) {
      if (what !== 'unchanged') io.out(`${cell(what).padEnd(8)}  ${cell(`${folder.mount}/${name}`)}\n`)
    }
  }

  #failure(
    error: unknown,
    { all, done, part }: { done: number; part: readonly NamedSecret[]; all: readonly NamedSecret[] },
  ): CommandError {
    const name = (at: number) => JSON.stringify(all[at]?.[0] ?? '')
    const before = done === 0 ? 'no secret was imported' : `${done} of ${all.length} secrets were imported`
    // A refused request changed nothing. Without an answer, the result is unknown.
    const isKnown = error instanceof AgentRefusal && error.status < 500
    const next = part.length === 1 ? `secret ${name(done)}` : `${part.length} secrets from ${name(done)}`
    const unsure = isKnown ? '' : `; the result of the request for ${next} is unknown`
    const last = done === 0 ? '' : ` (last: ${name(done - 1)})`
    const again = 'run the command again, it does not write imported secrets twice'
    return new CommandError(`${before}${last}${unsure}: ${messageOf(error)}; ${again}`, 1, { cause: error })
  }
}

function* batchesOf(secrets: readonly NamedSecret[]): Generator<NamedSecret[]> {
  let [part, characters]: [NamedSecret[], number] = [[], 0]
  for (const each of secrets) {
    const more = JSON.stringify(each).length
    if (part.length > 0 && (part.length >= SECRETS_PER_REQUEST || characters + more > CHARACTERS_PER_REQUEST)) {
      yield part
      ;[part, characters] = [[], 0]
    }
    part.push(each)
    characters += more
  }
  if (part.length > 0) yield part
}

/** The file is in memory as text and as values. */
const BYTES_MAX = 256 << 20

/** A name, and `{"data": {...}, "custom_metadata": {...}}`. */
type NamedSecret = readonly [name: string, secret: Readonly<Record<string, unknown>>]

/** Throws UsageError for an unreadable file, CommandError for a file that is too large. */
async function readImportFile(file: string): Promise<string> {
  const bytes = file === '-' ? 0 : (statSync(file, { throwIfNoEntry: false })?.size ?? 0)
  if (bytes > BYTES_MAX) {
    throw new CommandError(`${file} exceeds ${BYTES_MAX} bytes: export and import smaller folders`)
  }
  return await textOf(file, BYTES_MAX)
}

/** Throws a CommandError with the line and column, or the name of the secret. */
function secretsIn(text: string, file: string, io: CommandIo): NamedSecret[] {
  const value = parseJsonFile(text, file)
  const source = sourceName(file)
  // An export file, or the response of the endpoint.
  const tree = isJsonObject(value) && isJsonObject(value['data']) && !value['secrets'] ? value['data'] : value
  const secrets = isJsonObject(tree) ? tree['secrets'] : undefined
  if (!isJsonObject(tree) || !isJsonObject(secrets)) {
    throw new CommandError(`${source} does not contain {"secrets": {NAME: {"data": {...}}}}`)
  }
  if (typeof tree['next'] === 'string') {
    io.err(`warning: ${source} contains only one page of an export\n`)
  }
  return Object.entries(secrets).map(([name, secret]) => [name, validSecret(name, secret, source)])
}

function validSecret(name: string, secret: unknown, source: string): Readonly<Record<string, unknown>> {
  const fault = (text: string) => new CommandError(`${source}: secret ${JSON.stringify(name)}: ${text}`)
  if (!isJsonObject(secret)) throw fault('must be an object with "data"')
  const { custom_metadata: custom, data, ...more } = secret
  if (!isJsonObject(data)) throw fault('"data" must be an object')
  const unknown = Object.keys(more)[0]
  if (unknown !== undefined)
    throw fault(`unknown key ${JSON.stringify(unknown)}, expected "data" and "custom_metadata"`)
  if (custom !== undefined && custom !== null) {
    const isTexts = isJsonObject(custom) && Object.values(custom).every((each) => typeof each === 'string')
    if (!isTexts) throw fault('"custom_metadata" must be an object of strings')
  }
  return secret
}
