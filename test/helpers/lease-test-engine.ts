/** An engine that leases numbers and revokes them under control of a test. */
import { type Engine, path } from '../../src/engines/framework/engine.ts'
import { boolean, inPath, integer } from '../../src/engines/framework/fields.ts'

export interface LeaseTestEngine {
  readonly engine: Engine
  /** Numbers that are leased. */
  readonly leased: Set<number>
  /** Number of revocations of each number. */
  readonly revocations: Map<number, number>
  fault: Error | undefined
  hangs: boolean
  /** Whether a revocation hangs. */
  isHanging: boolean
  /** A renewal waits for this promise. */
  renewing: Promise<void> | undefined
}

export function leaseTestEngine(): LeaseTestEngine {
  const own: LeaseTestEngine = {
    leased: new Set(),
    revocations: new Map(),
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
          own.leased.add(number)
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
      own.leased.delete(number)
      own.revocations.set(number, (own.revocations.get(number) ?? 0) + 1)
      return { puts: [], deletes: [`out/${number}`] }
    },
  }
  return Object.assign(own, { engine })
}
