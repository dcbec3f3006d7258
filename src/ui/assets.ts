/** The files of the web interface: beside a bundle, or built from `ui/` in a checkout. */
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Fault } from '../platform/errors.ts'

/** The page of `/ui/`. */
export const UI_PAGE = 'index.html'

/**
 * The page of a view, by its path below `/ui/`. All pages are the same, except for the scripts that they request at once: those of the list
 * (`hosts`) or of what is below it (`hosts/NODE`). The builder makes one for each view.
 */
export function pageOf(path: string): string {
  const [view = '', ...below] = path.split('/')
  return `pages/${view}${below.length > 0 ? '-below' : ''}.html`
}

export interface UiAsset {
  readonly contentType: string
  readonly bytes: Uint8Array
  /** Absent if compression does not pay. */
  readonly brotli?: Uint8Array
  readonly hash: string
}

export interface AssetSource {
  /** By path below `/ui/`. Rejects if there are none. */
  files(): Promise<ReadonlyMap<string, UiAsset>>
}

/** A built file, as `scripts/ui-bundle.ts` returns and writes it. */
interface BuiltFile {
  readonly path: string
  readonly bytes: Uint8Array
  readonly brotli?: Uint8Array
}

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
}
const COMPRESSED = '.br'
const IS_CHECKOUT = import.meta.url.endsWith('.ts')
/** What is beside a bundle is flat, except this folder. */
const BUNDLED = new URL('./ui/', import.meta.url)
/** Outside of the program, so it is not imported by name: a bundle does not contain it. */
const BUILDER = pathToFileURL(join(import.meta.dirname, '../../scripts/ui-bundle.ts'))

/** Reads the files at the first request and keeps them. In a checkout, files are built again after a source has changed. */
export function openAssets(): AssetSource {
  return IS_CHECKOUT ? new CheckoutAssets() : new BundledAssets()
}

class BundledAssets implements AssetSource {
  #files: Promise<ReadonlyMap<string, UiAsset>> | undefined

  files(): Promise<ReadonlyMap<string, UiAsset>> {
    this.#files ??= this.#read().catch((error: unknown) => {
      this.#files = undefined
      throw error
    })
    return this.#files
  }

  async #read(): Promise<ReadonlyMap<string, UiAsset>> {
    const names = await readdir(BUNDLED, { recursive: true })
    const plain = names.filter((name) => extname(name) in CONTENT_TYPES)
    const files = plain.map(async (path): Promise<BuiltFile> => {
      const bytes = await readFile(new URL(path, BUNDLED))
      const compressed = path + COMPRESSED
      return names.includes(compressed)
        ? { path, bytes, brotli: await readFile(new URL(compressed, BUNDLED)) }
        : { path, bytes }
    })
    return assetsOf(await Promise.all(files))
  }
}

/** What the builder exports. */
interface UiBuilder {
  /** Changes with each change of a source. */
  stamp(): string
  build(): Promise<readonly BuiltFile[]>
}

function isBuilder(value: unknown): value is UiBuilder {
  return typeof value === 'object' && value !== null && 'stamp' in value && 'build' in value
}

class CheckoutAssets implements AssetSource {
  #built: { readonly stamp: string; readonly files: Promise<ReadonlyMap<string, UiAsset>> } | undefined

  async files(): Promise<ReadonlyMap<string, UiAsset>> {
    const builder: unknown = await import(BUILDER.href).catch((error: unknown) => {
      throw new Fault('this checkout has no development packages: run npm ci', { cause: error })
    })
    if (!isBuilder(builder)) throw new Fault('scripts/ui-bundle.ts has another interface')
    const stamp = builder.stamp()
    if (this.#built?.stamp !== stamp) this.#built = { stamp, files: builder.build().then(assetsOf) }
    return await this.#built.files.catch((error: unknown) => {
      this.#built = undefined
      throw error
    })
  }
}

function assetsOf(files: readonly BuiltFile[]): ReadonlyMap<string, UiAsset> {
  return new Map(
    files.map(({ path, ...file }) => {
      const contentType = CONTENT_TYPES[extname(path)] ?? 'application/octet-stream'
      const hash = createHash('sha256').update(file.bytes).digest('base64url').slice(0, 22)
      return [path, { ...file, contentType, hash }]
    }),
  )
}
