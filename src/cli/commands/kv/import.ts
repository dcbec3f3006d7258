/** `outpost kv import`. */
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { messageOf } from '../../../platform/errors.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { choice, flag, UsageError } from '../../framework/options.ts'
import { type CoreAccess, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { cell } from '../../core/secret-output.ts'
import { Progress, terminalOf } from '../../output/terminal.ts'
import { sourceName } from './json-file.ts'
import { type KvPlace, mountOption, versionedFolder } from './secret-path.ts'
import { contentOf, type NamedSecret, secretsIn } from './tree-file.ts'

/** Of one request, which is one step: well below what a server takes, so that each is quick. */
const SECRETS_AT_ONCE = 500
const CHARACTERS_AT_ONCE = 1 << 20

const DONE = ['created', 'updated', 'metadata', 'unchanged'] as const
type Counts = Record<(typeof DONE)[number], number>

export const command = defineCommand({
  name: 'kv import',
  summary: 'Write what an export has, where it is different from what is there',
  details: [
    'The file is looked at as a whole before anything is written. Secrets that are there and not in the',
    `file stay as they are. At most ${SECRETS_AT_ONCE} secrets are written in one step; when one fails, it is said how`,
    'many there are, and the same command goes on from there. -format=env makes one secret of a .env',
    'file.',
    '',
    'Example: outpost kv import -dry-run secret/app app.json',
  ].join('\n'),
  options: {
    format: choice({ placeholder: 'FORMAT', help: 'A folder, or one secret', choices: ['json', 'env'] }),
    'dry-run': flag('Write nothing, and show what would be written'),
    ...mountOption,
    ...coreOptions,
  },
  operands: {
    shown: 'PATH FILE|-',
    min: 2,
    max: 2,
    missing: 'where to, and which file? as in: outpost kv import secret/app app.json',
  },
  async run(values, [path = '', given = ''], io) {
    const file = given.startsWith('@') ? given.slice(1) : given
    const content = await contentOf(file)
    const secrets = values.format === 'env' ? undefined : secretsIn(content, file, io)
    const core = coreOf(values, io)
    const place = await versionedFolder(core, path, values.mount)
    const progress = new Progress(io, terminalOf(2, io.env, values['no-color']))
    const importing = new Importing({ core, io, place, isDry: values['dry-run'], progress })
    if (secrets) await importing.tree(secrets)
    else await importing.env(content, sourceName(file))
    importing.tell()
    return 0
  },
})

interface Surroundings {
  readonly core: CoreAccess
  readonly io: CommandIo
  readonly place: KvPlace
  readonly isDry: boolean
  readonly progress: Progress
}

class Importing {
  readonly #with: Surroundings
  readonly #counts: Counts = { created: 0, updated: 0, metadata: 0, unchanged: 0 }

  constructor(surroundings: Surroundings) {
    this.#with = surroundings
  }

  /** Throws CommandError, which says what is written by then. */
  async tree(secrets: readonly NamedSecret[]): Promise<void> {
    const { progress } = this.#with
    let done = 0
    try {
      for (const part of parts(secrets)) {
        progress.show(done / secrets.length, `${done}/${secrets.length} secrets`)
        await this.#send({ secrets: Object.fromEntries(part) }).catch((error: unknown) => {
          throw this.#broken(error, { done, part, all: secrets })
        })
        done += part.length
      }
    } finally {
      progress.end()
    }
  }

  /** Throws CommandError. */
  async env(text: string, source: string): Promise<void> {
    if (this.#with.place.secret === '') throw new UsageError('which secret? -format=env makes one of a file')
    try {
      await this.#send({ format: 'env', text })
    } catch (error) {
      if (!(error instanceof RefusedByAgent) || error.status !== 400) throw error
      throw new CommandError(`${source}: ${error.message}`, 1, { cause: error })
    }
  }

  tell(): void {
    const { io, isDry, place } = this.#with
    const { created, metadata, unchanged, updated } = this.#counts
    const at = [place.mount, place.secret].filter(Boolean).join('/')
    const counts = `created ${created}, updated ${updated}, custom metadata only ${metadata}, unchanged ${unchanged}`
    io.out(`${isDry ? 'Would be imported to' : 'Success! Imported to'}: ${cell(at)} (${counts})\n`)
  }

  async #send(body: object): Promise<void> {
    const { core, io, isDry, place } = this.#with
    const request = { method: 'POST', path: place.at('import'), body: { ...body, dry_run: isDry } } as const
    const data = (await requireCore(core, request)).fields.under('data')
    for (const name of DONE) this.#counts[name] += data.number(name)
    const secrets = data.value('secrets')
    if (!isDry || !isJsonObject(secrets)) return
    for (const [name, what] of Object.entries(secrets)) {
      if (what !== 'unchanged') io.out(`${cell(what).padEnd(8)}  ${cell(`${place.mount}/${name}`)}\n`)
    }
  }

  #broken(
    error: unknown,
    { all, done, part }: { done: number; part: readonly NamedSecret[]; all: readonly NamedSecret[] },
  ): CommandError {
    const name = (at: number) => JSON.stringify(all[at]?.[0] ?? '')
    const before = done === 0 ? 'no secret was imported' : `${done} of ${all.length} secrets were imported`
    // Refused is refused whole; of a request without an answer nobody knows.
    const isKnown = error instanceof RefusedByAgent && error.status < 500
    const unsure = isKnown ? '' : `; whether the next ${part.length} were, from ${name(done)} on, is not known`
    const last = done === 0 ? '' : `, ${name(done - 1)} being the last`
    const again = 'run it again then: what is there already is not written twice'
    return new CommandError(`${before}${last}${unsure}: ${messageOf(error)}; ${again}`, 1, { cause: error })
  }
}

function* parts(secrets: readonly NamedSecret[]): Generator<NamedSecret[]> {
  let [part, characters]: [NamedSecret[], number] = [[], 0]
  for (const each of secrets) {
    const more = JSON.stringify(each).length
    if (part.length > 0 && (part.length >= SECRETS_AT_ONCE || characters + more > CHARACTERS_AT_ONCE)) {
      yield part
      ;[part, characters] = [[], 0]
    }
    part.push(each)
    characters += more
  }
  if (part.length > 0) yield part
}
