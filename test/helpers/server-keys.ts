/** Signing keys of servers, and the keys that a host trusts. */
import { verify } from 'node:crypto'
import type { ServerKeyVerifier } from '../../src/cluster/rpc/node-admission.ts'
import { newSeed, type SigningKey, signingKeyOf, verifyingKeyOf } from '../../src/cluster/nats/nkey.ts'

export function newKey(): SigningKey {
  return signingKeyOf(newSeed())
}

/** The verifier of a host with these keys in its configuration; the set may change. */
export function knownKeys(servers: ReadonlySet<string>): ServerKeyVerifier {
  return {
    isServer: (publicKey) => servers.has(publicKey),
    verify(publicKey, bytes, signature) {
      const key = verifyingKeyOf(publicKey)
      return key !== undefined && verify(null, bytes, key, signature)
    },
  }
}
