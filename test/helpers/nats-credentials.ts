/** Credentials of the operator mode of NATS: an operator signs an account, and the account signs its users. */
import { createHash } from 'node:crypto'
import { createAccount, createOperator, createUser, type KeyPair } from '@nats-io/nkeys'

interface Claims {
  readonly name: string
  readonly sub: string
  readonly nats: Readonly<Record<string, unknown>>
}

const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')

function signed(claims: Claims, by: KeyPair): string {
  const body = { iat: Math.floor(Date.now() / 1000), iss: by.getPublicKey(), ...claims }
  const jti = createHash('sha256').update(JSON.stringify(body)).digest('base64url')
  const text = `${part({ typ: 'JWT', alg: 'ed25519-nkey' })}.${part({ jti, ...body })}`
  return `${text}.${Buffer.from(by.sign(Buffer.from(text))).toString('base64url')}`
}

/** A server configuration and a credentials file that it accepts. */
export function natsCredentials(): { readonly config: string; readonly credentials: string } {
  const [operator, account, user] = [createOperator(), createAccount(), createUser()]
  const limits = { subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 }
  const operatorJwt = signed(
    { name: 'test', sub: operator.getPublicKey(), nats: { type: 'operator', version: 2 } },
    operator,
  )
  const accountJwt = signed(
    { name: 'outpost', sub: account.getPublicKey(), nats: { type: 'account', version: 2, limits } },
    operator,
  )
  const userClaims = { type: 'user', version: 2, pub: {}, sub: {}, subs: -1, data: -1, payload: -1 }
  const userJwt = signed({ name: 'agent', sub: user.getPublicKey(), nats: userClaims }, account)
  const seed = Buffer.from(user.getSeed()).toString()
  return {
    config: [
      `operator: ${operatorJwt}`,
      'resolver: MEMORY',
      `resolver_preload: { ${account.getPublicKey()}: ${accountJwt} }`,
    ].join('\n'),
    credentials: [
      '-----BEGIN NATS USER JWT-----',
      userJwt,
      '------END NATS USER JWT------',
      '',
      '-----BEGIN USER NKEY SEED-----',
      seed,
      '------END USER NKEY SEED------',
      '',
    ].join('\n'),
  }
}
