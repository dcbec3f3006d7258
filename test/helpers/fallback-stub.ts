/** Operations for any path and verb that echo the request: a stub for the fallback of the route table. */
import { type AnyOperation, type Call, type Method, type Operation, WholeAnswer } from '../../src/platform/operation.ts'
import { type Field, pathParam, type RawInput, schema } from '../../src/platform/schema.ts'

/** The request as the stub received it. */
export interface EchoedRequest {
  readonly operation: string
  readonly path: string
  readonly query: RawInput['query']
  readonly headers: RawInput['headers']
  readonly body: string | null
  readonly token: string | null
  readonly remote: string | null
  readonly accessor: string
}

const header: Field<string | undefined> = {
  in: 'header',
  type: 'string',
  description: '',
  required: false,
  parse: (raw, name) => raw.headers[name],
}

const input = schema({ path: pathParam(''), 'Content-Type': header, 'X-Vault-Namespace': header })
type Input = ReturnType<typeof input.parse>

const VERBS: Readonly<Record<string, readonly Method[]>> = {
  read: ['GET'],
  write: ['POST'],
  patch: ['PATCH'],
  delete: ['DELETE'],
  list: ['LIST'],
  scan: ['SCAN'],
}
const WITH_BODY = ['write', 'patch', 'list', 'scan']

function tell(operation: string, call: Call): WholeAnswer {
  const { raw, token, remote, identity } = call
  const told: EchoedRequest = {
    operation,
    path: raw.params['path'] ?? '',
    query: raw.query,
    headers: raw.headers,
    body: raw.body ?? null,
    token: token ?? null,
    remote: remote ?? null,
    accessor: identity.accessor,
  }
  return new WholeAnswer(200, { 'Content-Type': 'application/json' }, JSON.stringify(told), `via-${operation}`)
}

/** One operation per verb; `answer` may return another response. */
export function anyPath(answer: (call: Call, operation: string) => WholeAnswer | undefined = () => undefined) {
  return Object.entries(VERBS).map(([name, verbs]): AnyOperation => {
    const operation: Operation<Input, WholeAnswer> = {
      name: `stub.${name}`,
      summary: '',
      http: verbs.map((verb): `${Method} /${string}` => `${verb} /v1/:path`),
      target: 'server',
      input,
      output: 'answer',
      errorFormat: 'errors',
      ownToken: true,
      crossOrigin: 'configured',
      bodyTooLarge: 'http: request body too large',
      ...(WITH_BODY.includes(name) ? { bodyBytesMax: 32 << 20 } : {}),
      authorize: () => undefined,
      run: async (_input, call) => answer(call, name) ?? tell(name, call),
    }
    return operation
  })
}
