/** PGP keys for tests, good ones and such that nothing can be encrypted to. */
import * as openpgp from 'openpgp'

export interface TestPgpKey {
  readonly fingerprint: string
  /** Base64 of the binary public key, as it goes over the wire. */
  readonly publicKey: string
  /** The same of the private key. */
  readonly privateKey: string
  decrypt(message: Uint8Array): Promise<string>
}

export interface PgpKeyOptions {
  readonly kind?: 'encrypting' | 'signing only' | 'expired' | 'revoked'
  readonly rsaBits?: number
}

/** Makes a key; `signing only` has no encryption subkey, `expired` was good for a second in 2020. */
export async function newPgpKey(
  name: string,
  { kind = 'encrypting', rsaBits }: PgpKeyOptions = {},
): Promise<TestPgpKey> {
  const generated = await openpgp.generateKey({
    userIDs: [{ name }],
    format: 'object',
    ...(rsaBits ? { type: 'rsa' as const, rsaBits } : { type: 'curve25519' as const }),
    ...(kind === 'signing only' ? { subkeys: [] } : {}),
    ...(kind === 'expired' ? { date: new Date('2020-01-01'), keyExpirationTime: 1 } : {}),
  })
  const { privateKey } = generated
  const revoked = kind === 'revoked' ? await openpgp.revokeKey({ key: privateKey, format: 'object' }) : undefined
  const publicKey = revoked?.publicKey ?? generated.publicKey
  return {
    fingerprint: publicKey.getFingerprint(),
    publicKey: Buffer.from(publicKey.write()).toString('base64'),
    privateKey: Buffer.from(privateKey.write()).toString('base64'),
    async decrypt(binaryMessage) {
      const message = await openpgp.readMessage({ binaryMessage: new Uint8Array(binaryMessage) })
      const { data } = await openpgp.decrypt({ message, decryptionKeys: privateKey, format: 'binary' })
      return Buffer.from(data as Uint8Array).toString()
    },
  }
}
