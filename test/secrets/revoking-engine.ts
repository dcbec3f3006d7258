/** An engine with leases of external resources, which reports a revocation before it continues. */
import { type Engine, path } from '../../src/engines/framework/engine.ts'
import { inPath } from '../../src/engines/framework/fields.ts'

export function outsider(taken: () => void | Promise<void>, isRevokedInside?: () => boolean): Engine {
  return {
    type: 'outsider',
    description: 'gives leases',
    paths: [
      path({
        pattern: 'creds/:role',
        summary: 'A lease',
        fields: { role: inPath('Any') },
        read: () => ({
          data: {},
          lease: { ttlSeconds: 3600, maxTtlSeconds: 0, renewable: true, internal: {} },
        }),
      }),
    ],
    async revoke() {
      await taken()
      return undefined
    },
    ...(isRevokedInside && { isRevokedInside }),
  }
}
