/** `sys/wrapping`: response wrapping. */
import { path, type Path, Rejection } from '../../engines/framework/engine.ts'
import { text } from '../../engines/framework/fields.ts'
import { JsonText } from '../../platform/operation.ts'
import type { ResponseWrapping } from '../wrapping/wrapping.ts'

interface WrappingParts {
  readonly open: { readonly wrapping: ResponseWrapping }
}

const TOKEN = { token: text('Wrapping token; the calling token by default', { fallback: '' }) }

export function wrappingPaths(core: WrappingParts): Path[] {
  const wrapping = () => core.open.wrapping
  return [
    path({
      pattern: 'wrapping/wrap',
      summary: 'Wrap the request data for the TTL in X-Vault-Wrap-TTL',
      fields: {},
      anyFields: true,
      update(_input, call) {
        if (!call.isWrapped) throw new Rejection(400, 'endpoint requires response wrapping to be used')
        return { data: call.bodyText === undefined ? call.data : new JsonText(call.bodyText) }
      },
    }),
    path({
      pattern: 'wrapping/unwrap',
      summary: 'Return the wrapped response once and revoke the wrapping token',
      // The wrapping token itself is the credential.
      unauthenticated: true,
      fields: TOKEN,
      async update({ token }, call) {
        // Checked before the token is consumed.
        if (call.isWrapped)
          throw new Rejection(400, 'the response of unwrap cannot be wrapped: use sys/wrapping/rewrap')
        const given = token === '' ? (call.token ?? '') : token
        if (given === '' && call.token === undefined) {
          throw new Rejection(403, 'error validating wrapping token: token is empty')
        }
        return { bare: new JsonText(await wrapping().unwrap(given)) }
      },
    }),
    path({
      pattern: 'wrapping/lookup',
      summary: 'Read the creation time, TTL and creation path of a wrapping token',
      unauthenticated: true,
      fields: TOKEN,
      read: (_input, call) => ({ data: { ...wrapping().lookup(call.token ?? '') } }),
      update: ({ token }, call) => ({ data: { ...wrapping().lookup(token === '' ? (call.token ?? '') : token) } }),
    }),
    path({
      pattern: 'wrapping/rewrap',
      summary: 'Replace a wrapping token with a new one with the same TTL',
      fields: TOKEN,
      update: async ({ token }, call) => ({
        wrapped: await wrapping().rewrap(token === '' ? (call.token ?? '') : token),
      }),
    }),
    path({
      pattern: 'wrapping/pubkey',
      summary: 'Read the public key of wrapping tokens in JWT format',
      unauthenticated: true,
      // The first read generates the key.
      readChanges: true,
      fields: {},
      async read() {
        const { curve, x, y } = await wrapping().publicKey()
        return { data: { jwt_curve: curve, jwt_x: x, jwt_y: y } }
      },
    }),
  ]
}
