/**
 * From a verb and a path to an operation. The table is built once, from the operations that the daemon passes.
 *
 * A *fallback* may follow the table: one operation per verb, for every path that no operation of the table has
 * under any verb. Its paths are not known here and change at run time.
 *
 * Some operations may be loaded *later*: with the first request for a path that the table does not have yet. That request waits for
 * them, so clients see no difference.
 */
import { TrieRouter } from 'hono/router/trie-router'
import { Fault, Refusal, type UnsupportedFeature, unsupportedText } from '../platform/errors.ts'
import type { AnyOperation, Method } from '../platform/operation.ts'

export interface RouteMatch {
  readonly operation: AnyOperation
  /** True for an operation of the fallback. */
  readonly isFallback?: true
  /** Still percent-encoded. */
  readonly params: Readonly<Record<string, string>>
}

/** Cached lookups; above it the cache is cleared. */
const REMEMBERED_MAX = 2048
/** Longer paths are not cached, so clients cannot fill memory. */
const REMEMBERED_LENGTH_MAX = 256

const METHODS: readonly Method[] = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'LIST', 'SCAN']
/** The one route that an operation of the fallback may have. */
const ANY_PATH = '/v1/:path'

/** Paths without fallback: an unknown one is 404 in the error format of the family. */
export interface PathFamily {
  /** First segment after `/v1/`. */
  readonly root: string
  readonly errorFormat: AnyOperation['errorFormat']
}

/** Endpoints of a compatible system that this program does not have. */
export interface UnsupportedEndpoints {
  readonly errorFormat: AnyOperation['errorFormat']
  /** Undefined for any other request. `root`: first segment of the path, without `/v1`. */
  find(verb: string, root: string, path: string): UnsupportedFeature | undefined
}

/** How a router treats paths without an operation. */
export interface RouterOptions {
  /** Loads operations that follow those of the table. Called again after a failure. */
  readonly later?: (() => Promise<readonly AnyOperation[]>) | undefined
  readonly families?: readonly PathFamily[]
  readonly unsupported?: UnsupportedEndpoints
  /** True if the fallback serves the path, or may serve it: it precedes an unsupported endpoint. */
  readonly isServedByFallback?: (path: string) => boolean
}

export class Router {
  /** All operations that are loaded, without the fallback. */
  readonly operations: AnyOperation[] = []
  readonly #trie = new TrieRouter<AnyOperation>()
  /** All patterns, for any verb. */
  readonly #paths = new TrieRouter<true>()
  /** First segments of all patterns, for a fast miss. */
  readonly #roots = new Set<string>()
  readonly #remembered = new Map<string, RouteMatch | null>()
  /** Cache of `#knows`. */
  readonly #known = new Map<string, boolean>()
  readonly #fallback: ReadonlyMap<string, AnyOperation>
  readonly #families: readonly PathFamily[]
  readonly #options: RouterOptions
  /** Undefined once they are loaded. */
  #later: (() => Promise<readonly AnyOperation[]>) | undefined
  #loading: Promise<void> | undefined

  constructor(
    operations: readonly AnyOperation[],
    fallback: readonly AnyOperation[] = [],
    options: RouterOptions = {},
  ) {
    this.#fallback = byVerb(fallback)
    this.#families = options.families ?? []
    this.#options = options
    this.#later = options.later
    for (const operation of operations) this.#add(operation)
  }

  #add(operation: AnyOperation): void {
    this.operations.push(operation)
    for (const route of operation.http) {
      const [method = '', path = ''] = route.split(' ')
      // The last parameter matches the rest of the path, with slashes or empty: its operation validates it.
      const pattern = path.replace(/:([^/]+)$/, ':$1{.*}')
      // Every path is served under /v1 and bare.
      for (const form of [pattern, pattern.replace(/^\/v1(?=\/)/, '')]) {
        this.#trie.add(method === '*' ? 'ALL' : method, form, operation)
        this.#paths.add('ALL', form, true)
        const root = rootOf(form)
        if (root.startsWith(':')) throw new Fault(`${operation.name}: the first segment of "${route}" must be a name`)
        this.#roots.add(root)
      }
    }
  }

  /** True if the path may be that of an operation that is loaded later: `complete` must be called before the path is matched. */
  isLoadedLater(path: string): boolean {
    return this.#later !== undefined && !this.#knows(path)
  }

  /** Loads the later operations, once. Rejects with the reason of a failure. */
  async complete(): Promise<void> {
    if (!this.#later) return
    this.#loading ??= this.#load(this.#later).finally(() => (this.#loading = undefined))
    await this.#loading
  }

  async #load(later: () => Promise<readonly AnyOperation[]>): Promise<void> {
    for (const operation of await later()) this.#add(operation)
    this.#later = undefined
    this.#remembered.clear()
    this.#known.clear()
  }

  /**
   * The operation for a request. HEAD is GET without the body.
   * Throws a Refusal: 404 for an unknown path, 405 (with `Allow`) for a known path and another verb, and for an unsupported
   * endpoint of a compatible system.
   */
  match(verb: string, path: string): RouteMatch {
    const unsupported = this.#unsupported(verb, path)
    // No 5xx: it would count as a fault of the server. No 404: stock clients of secrets do not show its text.
    if (unsupported) {
      throw new Refusal('method_not_allowed', unsupportedText(unsupported), { Allow: this.methodsOf(path).join(', ') })
    }
    const found = this.#roots.has(rootOf(path)) ? this.#find(routeVerb(verb), path) : undefined
    if (found && !(verb === 'HEAD' && refusesHead(found.operation))) return found
    if (found || this.#knows(path)) {
      throw new Refusal('method_not_allowed', 'Invalid method', { Allow: this.methodsOf(path).join(', ') })
    }
    if (this.fallsBack(path)) return this.#fallBack(verb, path)
    throw new Refusal('not_found', `no handler for route "${path.slice(0, 200)}"`)
  }

  /** Verbs that a path serves; empty for one that no operation of the table has. */
  methodsOf(path: string): Method[] {
    return METHODS.filter((method) => this.#find(method, path) !== undefined)
  }

  fallsBack(path: string): boolean {
    return this.#fallback.size > 0 && !this.#knows(path) && this.#familyOf(path) === undefined
  }

  /** Error format of a path without operation. */
  errorFormatOf(verb: string, path: string): AnyOperation['errorFormat'] {
    if (this.#unsupported(verb, path)) return this.#options.unsupported?.errorFormat ?? 'errors'
    return this.#familyOf(path)?.errorFormat ?? 'errors'
  }

  #unsupported(verb: string, path: string): UnsupportedFeature | undefined {
    const { isServedByFallback, unsupported } = this.#options
    const known = unsupported?.find(verb, rootOf(path), path)
    if (!known || this.#knows(path) || !this.fallsBack(path)) return known
    return isServedByFallback?.(path) ? undefined : known
  }

  /** Whether the CORS rule of the path comes from a setting. */
  isCrossOriginConfigured(path: string): boolean {
    if (this.fallsBack(path)) return true
    return METHODS.some((method) => this.#find(method, path)?.operation.crossOrigin === 'configured')
  }

  #familyOf(path: string): PathFamily | undefined {
    const root = rootOf(path)
    return this.#families.find((family) => family.root === root)
  }

  #fallBack(verb: string, path: string): RouteMatch {
    const operation = this.#fallback.get(routeVerb(verb))
    // Without a text, as in the compatible system.
    if (!operation) throw new Refusal('method_not_allowed', '', { Allow: [...this.#fallback.keys()].join(', ') })
    return { operation, isFallback: true, params: { path: path.replace(/^\/(?:v1(?:\/|$))?/, '') } }
  }

  #knows(path: string): boolean {
    if (!this.#roots.has(rootOf(path))) return false
    return remembered(this.#known, path, () => this.#paths.match('GET', path)[0].length > 0)
  }

  /** Verbs that pages of other origins may use, for the CORS preflight of `verb`. */
  crossOrigin(verb: string, path: string): readonly string[] {
    const { crossOrigin } = this.#find(routeVerb(verb), path)?.operation ?? {}
    return crossOrigin === undefined || crossOrigin === 'configured' ? [] : crossOrigin
  }

  #find(method: string, path: string): RouteMatch | undefined {
    return remembered(this.#remembered, `${method} ${path}`, () => this.#search(method, path) ?? null) ?? undefined
  }

  #search(method: string, path: string): RouteMatch | undefined {
    const [matches] = this.#trie.match(method, path)
    const first = matches[0]
    if (!first) return undefined
    const [operation, params] = first
    return { operation, params: params as Record<string, string> }
  }
}

function remembered<T>(known: Map<string, T>, key: string, look: () => T): T {
  if (key.length > REMEMBERED_LENGTH_MAX) return look()
  const before = known.get(key)
  if (before !== undefined) return before
  const found = look()
  if (known.size >= REMEMBERED_MAX) known.clear()
  known.set(key, found)
  return found
}

function byVerb(operations: readonly AnyOperation[]): ReadonlyMap<string, AnyOperation> {
  const verbs = new Map<string, AnyOperation>()
  for (const operation of operations) {
    for (const route of operation.http) {
      const [verb = '', path = ''] = route.split(' ')
      if (path !== ANY_PATH)
        throw new Fault(`${operation.name}: a fallback's route is "VERB ${ANY_PATH}", not "${route}"`)
      verbs.set(verb, operation)
    }
  }
  const post = verbs.get('POST')
  if (post && !verbs.has('PUT')) verbs.set('PUT', post)
  return verbs
}

/** The first segment of a path or pattern, with or without `/v1`. */
function rootOf(path: string): string {
  const from = path.startsWith('/v1/') ? 4 : 1
  const to = path.indexOf('/', from)
  return to < 0 ? path.slice(from) : path.slice(from, to)
}

function refusesHead({ changesOnGet, head }: AnyOperation): boolean {
  return head === false || changesOnGet === true
}

function routeVerb(verb: string): string {
  return verb === 'HEAD' ? 'GET' : verb
}
