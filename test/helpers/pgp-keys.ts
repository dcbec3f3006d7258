/** PGP keys for tests, valid ones and some that cannot encrypt. */
import * as openpgp from 'openpgp'

export interface TestPgpKey {
  readonly fingerprint: string
  /** The binary public key in base64, as in requests. */
  readonly publicKey: string
  /** The binary private key in base64. */
  readonly privateKey: string
  decrypt(message: Uint8Array): Promise<string>
}

export interface PgpKeyOptions {
  readonly kind?: 'encrypting' | 'signing only' | 'expired' | 'revoked'
  readonly rsaBits?: number
}

/** Generates a key; `signing only` has no encryption subkey, `expired` was valid for one second in 2020. */
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
