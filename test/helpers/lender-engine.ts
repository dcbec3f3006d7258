/** An engine that gives numbers out, and takes them back as a test likes. */
import { type Engine, path } from '../../src/engines/framework/engine.ts'
import { boolean, inPath, integer } from '../../src/engines/framework/fields.ts'

export interface Lender {
  readonly engine: Engine
  /** Things that are out, by their number. */
  readonly out: Set<number>
  /** How often each was taken back. */
  readonly taken: Map<number, number>
  fault: Error | undefined
  hangs: boolean
  /** Whether it has been asked while it hangs. */
  isHanging: boolean
  /** What a renewal waits for. */
  renewing: Promise<void> | undefined
}

export function lender(): Lender {
  const own: Lender = {
    out: new Set(),
    taken: new Map(),
    fault: undefined,
    hangs: false,
    isHanging: false,
    renewing: undefined,
    engine: undefined as never,
  }
  let next = 1
  const engine: Engine = {
    type: 'lender',
    description: 'gives numbers out',
    paths: [
      path({
        pattern: 'creds/:role',
        summary: 'A number',
        fields: {
          role: inPath('Any'),
          ttl: integer('Seconds', { fallback: 60 }),
          max: integer('Seconds', { fallback: 0 }),
          fixed: boolean('Not renewable', { fallback: false }),
        },
        read({ fixed, max, ttl }) {
          const number = next++
          own.out.add(number)
          return {
            data: { number },
            lease: { ttlSeconds: ttl, maxTtlSeconds: max, renewable: !fixed, internal: { number } },
            batch: { puts: [{ path: `out/${number}`, value: Buffer.from('x') }], deletes: [] },
          }
        },
      }),
    ],
    renew: () => own.renewing,
    async revoke({ internal, signal }) {
      const number = Number(internal['number'])
      own.isHanging = own.hangs
      if (own.hangs) await new Promise((resolve) => signal.addEventListener('abort', resolve))
      if (own.fault) throw own.fault
      own.out.delete(number)
      own.taken.set(number, (own.taken.get(number) ?? 0) + 1)
      return { puts: [], deletes: [`out/${number}`] }
    },
  }
  return Object.assign(own, { engine })
}
