/** `sys/wrapping`: answers that are kept below a token of their own. */
import { path, type Path, Rejection } from '../../engines/framework/engine.ts'
import { text } from '../../engines/framework/fields.ts'
import { JsonText } from '../../platform/operation.ts'
import type { ResponseWrapping } from '../wrapping/wrapping.ts'

/** Open while the core is active. */
interface WrappingParts {
  readonly open: { readonly wrapping: ResponseWrapping }
}

const TOKEN = { token: text('The wrapping token; the one that the request brings unless given', { fallback: '' }) }

export function wrappingPaths(core: WrappingParts): Path[] {
  const wrapping = () => core.open.wrapping
  return [
    path({
      pattern: 'wrapping/wrap',
      summary: 'Wrap what is sent, for the time of X-Vault-Wrap-TTL',
      fields: {},
      anyFields: true,
      update(_input, call) {
        if (!call.isWrapped) throw new Rejection(400, 'endpoint requires response wrapping to be used')
        return { data: call.bodyText === undefined ? call.data : new JsonText(call.bodyText) }
      },
    }),
    path({
      pattern: 'wrapping/unwrap',
      summary: 'The answer below a wrapping token, once',
      // Who knows the token may have the answer.
      unauthenticated: true,
      fields: TOKEN,
      async update({ token }, call) {
        // Before the token is used up.
        if (call.isWrapped) throw new Rejection(400, 'an unwrapped answer cannot be wrapped: use sys/wrapping/rewrap')
        const given = token === '' ? (call.token ?? '') : token
        if (given === '' && call.token === undefined) {
          throw new Rejection(403, 'error validating wrapping token: token is empty')
        }
        return { bare: new JsonText(await wrapping().unwrap(given)) }
      },
    }),
    path({
      pattern: 'wrapping/lookup',
      summary: 'When, for how long and by which request a wrapping token was made',
      unauthenticated: true,
      fields: TOKEN,
      read: (_input, call) => ({ data: { ...wrapping().lookup(call.token ?? '') } }),
      update: ({ token }, call) => ({ data: { ...wrapping().lookup(token === '' ? (call.token ?? '') : token) } }),
    }),
    path({
      pattern: 'wrapping/rewrap',
      summary: 'A fresh token, of the same time, for the answer below a wrapping token',
      fields: TOKEN,
      update: async ({ token }, call) => ({
        wrapped: await wrapping().rewrap(token === '' ? (call.token ?? '') : token),
      }),
    }),
    path({
      pattern: 'wrapping/pubkey',
      summary: 'The public key of wrapping tokens that are JSON Web Tokens',
      unauthenticated: true,
      // The first one makes the key.
      readChanges: true,
      fields: {},
      async read() {
        const { curve, x, y } = await wrapping().publicKey()
        return { data: { jwt_curve: curve, jwt_x: x, jwt_y: y } }
      },
    }),
  ]
}
