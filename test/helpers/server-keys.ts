/** Keys that servers sign with, and what a host knows of them. */
import { verify } from 'node:crypto'
import type { ServerKeyVerifier } from '../../src/cluster/rpc/node-admission.ts'
import { newSeed, type SigningKey, signingKeyOf, verifyingKeyOf } from '../../src/cluster/nats/nkey.ts'

export function newKey(): SigningKey {
  return signingKeyOf(newSeed())
}

/** What a host knows that has these keys in its configuration; the set may change. */
export function knownKeys(servers: ReadonlySet<string>): ServerKeyVerifier {
  return {
    isServer: (publicKey) => servers.has(publicKey),
    verify(publicKey, bytes, signature) {
      const key = verifyingKeyOf(publicKey)
      return key !== undefined && verify(null, bytes, key, signature)
    },
  }
}
