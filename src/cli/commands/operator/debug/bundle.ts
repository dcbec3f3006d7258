/** A debug bundle: files in memory, with an index that describes each of them, written as one archive. */
import { createHash } from 'node:crypto'
import { lstatSync } from 'node:fs'
import { basename } from 'node:path'
import { gzipSync } from 'node:zlib'
import { tarArchive } from '../../../../platform/tar.ts'
import { CommandError } from '../../../framework/define-command.ts'
import { FileSink } from '../../../output/file-output.ts'
import type { Redactor } from './redaction.ts'

const FORMAT = 1
const INDEX = 'index.json'

interface IndexEntry {
  readonly path: string
  readonly description: string
  /** Path of the request whose response is the file. */
  readonly source: string
  readonly bytes?: number
  readonly sha256?: string
  /** The limit of the file was reached, or the stream ended early. */
  readonly incomplete?: string
  /** Why there is no file. */
  readonly error?: string
}

export interface BundleFile {
  readonly path: string
  readonly description: string
  readonly source: string
  readonly incomplete?: string | undefined
}

export class DebugBundle {
  readonly #redactor: Redactor
  readonly #members: { readonly name: string; readonly bytes: Buffer }[] = []
  readonly #index: IndexEntry[] = []

  constructor(redactor: Redactor) {
    this.#redactor = redactor
  }

  addJson(file: BundleFile, value: unknown): void {
    this.#add(file, `${JSON.stringify(this.#redactor.json(value), undefined, 2)}\n`)
  }

  /** One JSON object in a line for each sample. */
  addSamples(file: BundleFile, samples: readonly unknown[]): void {
    this.#add(file, samples.map((sample) => `${JSON.stringify(this.#redactor.json(sample))}\n`).join(''))
  }

  addText(file: BundleFile, text: string): void {
    this.#add(file, this.#redactor.text(text))
  }

  /** Records that a file could not be collected. */
  addError({ description, path, source }: BundleFile, message: string): void {
    this.#index.push({ path, description, source, error: this.#redactor.text(message) })
  }

  /** Files that could not be collected. */
  get missing(): readonly { readonly path: string; readonly error: string }[] {
    return this.#index.flatMap(({ error, path }) => (error === undefined ? [] : [{ path, error }]))
  }

  #add({ description, incomplete, path, source }: BundleFile, text: string): void {
    const bytes = Buffer.from(text)
    const sha256 = createHash('sha256').update(bytes).digest('hex')
    this.#members.push({ name: path, bytes })
    this.#index.push({ path, description, source, bytes: bytes.length, sha256, ...(incomplete && { incomplete }) })
  }

  /** Writes the archive; all members are in one directory. Returns the number of bytes. Throws CommandError. */
  write(file: string, facts: Readonly<Record<string, unknown>>): number {
    // Also a link without a target, which an open would follow.
    if (lstatSync(file, { throwIfNoEntry: false }))
      throw new CommandError(`${file} exists, nothing was written: choose another -output`)
    const index = {
      format: FORMAT,
      ...(this.#redactor.json(facts) as Record<string, unknown>),
      redactions: this.#redactor.count,
      files: this.#index.toSorted((a, b) => (a.path < b.path ? -1 : 1)),
    }
    const members = [
      { name: INDEX, bytes: Buffer.from(`${JSON.stringify(index, undefined, 2)}\n`) },
      ...this.#members.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
    ]
    const top = directoryOf(file)
    const archive = gzipSync(
      tarArchive(
        members.map(({ bytes, name }) => ({ path: `${top}/${name}`, bytes })),
        Date.now(),
      ),
    )
    const sink = new FileSink(file, 0o600)
    try {
      sink.write(archive)
      sink.finish()
    } catch (error) {
      sink.discard()
      throw error
    }
    return archive.length
  }
}

/** The name of the archive without its extension, so that it unpacks into one directory. */
function directoryOf(file: string): string {
  const name = basename(file).replace(/\.(?:tar\.gz|tgz)$/, '')
  return /^[\w.-]{1,40}$/.test(name) && !/^\.+$/.test(name) ? name : 'outpost-debug'
}
