/** An engine for tests of mounts: stores bodies, can delay requests, and has an option and an alias. */
import { type Engine, path, Rejection } from '../../src/engines/framework/engine.ts'
import { inPath } from '../../src/engines/framework/fields.ts'

export class MountTestEngine {
  /** A request to `slow/…` waits for this call and then writes. */
  release: () => void = () => undefined
  readonly #released = new Promise<void>((resolve) => {
    this.release = resolve
  })
  /** Resolves when a request to `slow/…` has arrived. */
  readonly arrived: Promise<void>
  #arrive: () => void = () => undefined

  constructor() {
    this.arrived = new Promise((resolve) => {
      this.#arrive = resolve
    })
  }

  readonly engine: Engine = {
    type: 'shelf',
    description: 'keeps things for tests',
    aliases: { 'shelf-deep': { depth: '2' } },
    checkOptions(given, before) {
      const { depth = '1' } = given
      if (depth !== '1' && depth !== '2') throw new Rejection(400, 'depth is 1 or 2')
      if (before?.['depth'] === '2' && depth === '1') throw new Rejection(400, 'a shelf does not become less deep')
      const warnings = before?.['depth'] === '1' && depth === '2' ? ['the shelf becomes deeper'] : []
      return { options: { ...given, depth }, warnings }
    },
    paths: [
      path({
        pattern: 'slow/:name',
        summary: 'Keeps a thing after a while',
        fields: { name: inPath('Its name') },
        anyFields: true,
        update: async ({ name }, { bodyText = '' }) => {
          this.#arrive()
          await this.#released
          return { batch: { puts: [{ path: name, value: Buffer.from(bodyText) }], deletes: [] } }
        },
      }),
      path({
        pattern: ':name*',
        summary: 'Keeps a thing',
        fields: { name: inPath('Its name') },
        anyFields: true,
        read({ name }, { storage }) {
          const kept = storage.get(name)
          return kept && { data: { thing: kept.toString('utf8') } }
        },
        list: ({ name }, { storage }) => ({ data: { keys: storage.list(name) } }),
        update: ({ name }, { bodyText = '' }) => ({
          batch: { puts: [{ path: name, value: Buffer.from(bodyText) }], deletes: [] },
        }),
      }),
    ],
  }
}
