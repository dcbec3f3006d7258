/** The core as operations: one for each verb, for every path that no other operation has. */
import { Fault } from '../kit/errors.ts'
import type { AnyOperation, Call, Identity, Operation, Route } from '../kit/operation.ts'
import { header, pathParam, type RawInput } from '../kit/schema.ts'
import type { Answer } from './answer.ts'
import { type Core, handle } from './handle.ts'
import type { Verb } from './request.ts'

/** A snapshot's restore goes its own way; of everything else this is the most that anybody may send. */
const BODY_BYTES_MAX = 32 << 20

const FIELDS = {
  path: pathParam('Path of the secret or of the endpoint'),
  x_vault_namespace: header('Only the root namespace is there'),
  x_vault_wrap_ttl: header('How long the wrapped answer may be taken, in seconds or as a duration'),
  x_vault_wrap_format: header('`jwt` for a wrapping token of that form'),
  accept: header('`text/event-stream` for what is told as it happens as server-sent events'),
  last_event_id: header('The last event that was received, to go on behind it'),
  content_type: header('Must be `application/merge-patch+json` for a PATCH'),
}

const VERBS: readonly (readonly [Verb, readonly Route[]])[] = [
  ['read', ['GET /v1/:path']],
  ['write', ['POST /v1/:path', 'PUT /v1/:path']],
  ['patch', ['PATCH /v1/:path']],
  ['delete', ['DELETE /v1/:path']],
  ['list', ['LIST /v1/:path']],
  ['scan', ['SCAN /v1/:path']],
]

/** Few paths take one of a DELETE: the nonce of an attempt that is to be cancelled. */
const HAS_BODY: ReadonlySet<Verb> = new Set<Verb>(['write', 'patch', 'delete'])

export function secretsOperations(core: Core): AnyOperation[] {
  return formed((verb) => (raw, call) => handle(core, verb, raw, call))
}

/** The same without a core: for a process that hands them on to the one that has it. */
export function coreForms(): AnyOperation[] {
  return formed(() => () => Promise.reject(new Fault('this process has no secrets core')))
}

type Run = (raw: RawInput, call: Call) => Promise<Answer>

function formed(runOf: (verb: Verb) => Run): AnyOperation[] {
  return VERBS.map(([verb, http]) => {
    const operation: Operation<RawInput, Answer> = {
      name: `secrets.${verb}`,
      summary: 'A secret, or an endpoint of the secrets core',
      http,
      target: 'server',
      // The core reads it itself: what is wrong depends on the path.
      input: { fields: FIELDS, parse: (raw) => raw },
      output: 'answer',
      errorFormat: 'errors',
      ownToken: true,
      bodyBytesMax: HAS_BODY.has(verb) ? BODY_BYTES_MAX : 0,
      authorize: (_input: RawInput, _identity: Identity) => undefined,
      run: runOf(verb),
    }
    return operation
  })
}
