/**
 * The list of mutants: planted defects of the sources, each with the promise that it breaks and the test that must fail.
 *
 * A folder beside this file belongs to the document of the same name: `guarantees/` to `docs/guarantees.md`. Each bullet and
 * each table row of a document is a promise. A promise needs a mutant or an exemption with a reason.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

export interface Mutant {
  /** A quote that only one promise of the document contains, preferably its beginning. */
  readonly promise: string
  /** Text that occurs once in `src/`. Files may be moved and renamed. */
  readonly before: string
  readonly after: string
  /** The test file that must fail, from the root of the repository. */
  readonly test: string
  /** A regular expression for the names of the tests to run; without it the whole file runs. */
  readonly testName?: string
}

export interface Exemption {
  readonly promise: string
  readonly reason: string
}

export interface ListedMutant extends Mutant {
  readonly document: string
  /** The file of the list that has the mutant. */
  readonly listedIn: string
}

export interface ListedExemption extends Exemption {
  readonly document: string
  readonly listedIn: string
}

export interface MutantList {
  readonly mutants: readonly ListedMutant[]
  readonly exemptions: readonly ListedExemption[]
}

interface MutantModule {
  readonly MUTANTS?: readonly Mutant[]
  readonly EXEMPTIONS?: readonly Exemption[]
}

/** A source file and the place of a mutant's text in it. */
export interface MutantPlace {
  readonly file: string
  readonly mutated: string
}

export interface PlaceFault {
  readonly fault: string
}

export const DOCUMENTS = ['guarantees', 'security'] as const
const LIST_FOLDER = 'test/long/mutants'

export async function readMutants(root: string): Promise<MutantList> {
  const mutants: ListedMutant[] = []
  const exemptions: ListedExemption[] = []
  for (const document of DOCUMENTS) {
    const folder = join(root, LIST_FOLDER, document)
    const names = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith('.ts')) : []
    for (const name of names.toSorted()) {
      const module = (await import(pathToFileURL(join(folder, name)).href)) as MutantModule
      const listed = { document: `docs/${document}.md`, listedIn: join(LIST_FOLDER, document, name) }
      mutants.push(...(module.MUTANTS ?? []).map((mutant) => ({ ...mutant, ...listed })))
      exemptions.push(...(module.EXEMPTIONS ?? []).map((exemption) => ({ ...exemption, ...listed })))
    }
  }
  return { mutants, exemptions }
}

/** Source files, and their texts as one: a search of one text is much faster than of a thousand. */
export class Sources {
  readonly #all: string
  readonly #files: { readonly file: string; readonly start: number; readonly text: string }[] = []

  /** `texts`: by their path from the root. */
  constructor(texts: ReadonlyMap<string, string>) {
    let start = 0
    for (const [file, text] of texts) {
      this.#files.push({ file, start, text })
      start += text.length + 1
    }
    this.#all = [...texts.values()].join('\0')
  }

  /** The files that contain a text, one for each occurrence. */
  containing(text: string): { readonly file: string; readonly text: string }[] {
    const found = []
    for (let at = this.#all.indexOf(text); at >= 0; at = this.#all.indexOf(text, at + text.length)) {
      const place = at
      const file = this.#files.findLast(({ start }) => start <= place)
      if (file) found.push(file)
    }
    return found
  }
}

export function readSources(root: string): Sources {
  const entries = readdirSync(join(root, 'src'), { withFileTypes: true, recursive: true })
  const files = entries.filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
  return new Sources(
    new Map(
      files.map((entry) => {
        const path = join(entry.parentPath, entry.name)
        return [path.slice(root.length + 1), readFileSync(path, 'utf8')]
      }),
    ),
  )
}

/** Where the mutant is planted; a fault when that is not exactly one place. */
export function placeOf(sources: Sources, { before, after }: Mutant): MutantPlace | PlaceFault {
  const places = sources.containing(before)
  const [place] = places
  if (place === undefined) return { fault: `no source contains ${JSON.stringify(before)}` }
  if (places.length > 1) {
    const files = [...new Set(places.map(({ file }) => file))].slice(0, 5).join(', ')
    return { fault: `the sources contain ${JSON.stringify(before)} ${places.length} times: ${files}` }
  }
  if (before === after) return { fault: `${JSON.stringify(before)} is not changed` }
  return { file: place.file, mutated: place.text.replace(before, () => after) }
}

/** What keeps the list from being run: one line per fault. */
export function listFaults(root: string, { mutants, exemptions }: MutantList): string[] {
  const sources = readSources(root)
  const texts = new Map(DOCUMENTS.map((name) => [`docs/${name}.md`, documentText(root, name)]))
  const faults: string[] = []
  for (const { promise, document, listedIn } of [...mutants, ...exemptions]) {
    const fault = quoteFault(promise, texts.get(document) ?? '')
    if (fault !== undefined) faults.push(`${listedIn}: ${document} ${fault}`)
  }
  for (const mutant of mutants) {
    const place = placeOf(sources, mutant)
    if ('fault' in place) faults.push(`${mutant.listedIn}: ${place.fault}`)
    const fault = testFault(root, mutant)
    if (fault !== undefined) faults.push(`${mutant.listedIn}: ${fault}`)
  }
  return faults
}

/** A title that is composed of parts is found by a part. */
function testFault(root: string, { test, testName }: Mutant): string | undefined {
  const path = join(root, test)
  if (!existsSync(path)) return `there is no file ${test}`
  if (testName === undefined || new RegExp(testName).test(readFileSync(path, 'utf8'))) return undefined
  return `no test of ${test} has a name with ${JSON.stringify(testName)}`
}

/** Promises without a mutant and without an exemption, each with its document. */
export function uncoveredPromises(root: string, { mutants, exemptions }: MutantList): string[] {
  return DOCUMENTS.flatMap((name) => {
    const document = `docs/${name}.md`
    const quotes = [...mutants, ...exemptions].filter((listed) => listed.document === document)
    return promisesOf(root, name)
      .filter((promise) => !quotes.some((quote) => promise.includes(oneLine(quote.promise))))
      .map((promise) => `${document}: ${promise.slice(0, 100)}`)
  })
}

/** The bullets and table rows of a document, each on one line. */
export function promisesOf(root: string, document: (typeof DOCUMENTS)[number]): string[] {
  const lines = readFileSync(join(root, 'docs', `${document}.md`), 'utf8').split('\n')
  const promises: string[] = []
  let isOpen = false
  lines.forEach((line, index) => {
    const isHeader = lines[index + 1]?.startsWith('|---') ?? false
    if (line.startsWith('- ')) promises.push(line.slice(2))
    else if (line.startsWith('|') && !line.startsWith('|---') && !isHeader) promises.push(line)
    else if (isOpen && line.startsWith('  ')) promises.push(`${promises.pop() ?? ''} ${line}`)
    isOpen = line.startsWith('- ') || (isOpen && line.startsWith('  '))
  })
  return promises.map(oneLine)
}

function quoteFault(quote: string, text: string): string | undefined {
  const count = text.split(oneLine(quote)).length - 1
  return count === 1 ? undefined : `contains ${JSON.stringify(quote)} ${count} times`
}

function documentText(root: string, name: string): string {
  return oneLine(readFileSync(join(root, 'docs', `${name}.md`), 'utf8'))
}

/** Quotes do not depend on where the lines of a document break. */
function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim()
}
