/**
 * From a verb and a path to an operation. The table is built once, from the operations that the daemon gives; nothing
 * here knows what any of them does.
 */
import { TrieRouter } from 'hono/router/trie-router'
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Method } from '../kit/operation.ts'

export interface Match {
  readonly operation: AnyOperation
  /** Still percent-encoded. */
  readonly params: Readonly<Record<string, string>>
}

/** Paths whose way through the trie is remembered; past that, all are forgotten. Callers ask the same few over and over. */
const REMEMBERED_MAX = 2048
/** Longer ones are looked up each time: none of ours is that long, and remembering them would be a caller's to abuse. */
const REMEMBERED_LENGTH_MAX = 256

const METHODS: readonly Method[] = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'LIST']

export class Router {
  readonly #trie = new TrieRouter<AnyOperation>()
  readonly #remembered = new Map<string, Match | undefined>()

  constructor(operations: readonly AnyOperation[]) {
    for (const operation of operations) {
      for (const route of operation.http) {
        const [method = '', path = ''] = route.split(' ')
        // The last parameter takes the rest of the path, slashes and emptiness included: its operation judges it.
        const pattern = path.replace(/:([^/]+)$/, ':$1{.*}')
        // Every path is served under /v1 and bare.
        for (const form of [pattern, pattern.replace(/^\/v1(?=\/)/, '')]) {
          this.#trie.add(method === '*' ? 'ALL' : method, form, operation)
        }
      }
    }
  }

  /**
   * The operation for a request. HEAD is GET without the body.
   * Throws a Refusal: 404 for an unknown path, 405 (with `Allow`) for a known path and another verb.
   */
  match(verb: string, path: string): Match {
    const found = this.#find(routeVerb(verb), path)
    if (found && !(verb === 'HEAD' && found.operation.head === false)) return found
    const allowed = this.methodsOf(path)
    if (allowed.length === 0) throw new Refusal('not_found', `no handler for route "${path.slice(0, 200)}"`)
    throw new Refusal('method_not_allowed', 'Invalid method', { Allow: allowed.join(', ') })
  }

  /** Verbs that a path serves; empty for an unknown path. */
  methodsOf(path: string): Method[] {
    return METHODS.filter((method) => this.#find(method, path) !== undefined)
  }

  /** What a browser of another origin asks for before it sends `verb`. */
  crossOrigin(verb: string, path: string): readonly string[] {
    return this.#find(routeVerb(verb), path)?.operation.crossOrigin ?? []
  }

  #find(method: string, path: string): Match | undefined {
    const key = `${method} ${path}`
    if (key.length > REMEMBERED_LENGTH_MAX) return this.#search(method, path)
    if (this.#remembered.has(key)) return this.#remembered.get(key)
    if (this.#remembered.size >= REMEMBERED_MAX) this.#remembered.clear()
    const found = this.#search(method, path)
    this.#remembered.set(key, found)
    return found
  }

  #search(method: string, path: string): Match | undefined {
    const [matches] = this.#trie.match(method, path)
    const first = matches[0]
    if (!first) return undefined
    const [operation, params] = first
    return { operation, params: params as Record<string, string> }
  }
}

function routeVerb(verb: string): string {
  return verb === 'HEAD' ? 'GET' : verb
}
