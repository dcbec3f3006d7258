/** How an agent's login reaches the core: by HTTP to the configured address, else by a call to a server. Joins `login` to the rest. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Check } from '../telemetry/readiness.ts'
import { STARTING } from '../telemetry/readiness.ts'
import type { Family } from '../telemetry/metric.ts'
import { single } from '../telemetry/metric.ts'
import { openResponse, responseText } from '../cli/client/http-client.ts'
import type { AgentTarget } from '../cli/client/agent-target.ts'
import type { Config } from '../config/load.ts'
import type { Cluster } from './cluster.ts'
import { messageOf, Refusal, SEALED } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import { AgentLogin } from '../login/agent-login.ts'
import { LOGIN_FILE, type LoginAddress } from '../login/login-file.ts'
import type { Ask } from '../login/session.ts'

export interface LoginParts {
  readonly config: Config
  readonly cluster: Cluster | undefined
  readonly logger: Logger
}

/** For a server to answer. */
const ANSWER_MS = 15_000
const BODY_BYTES_SHOWN = 300

export function agentLogin({ cluster, config, logger }: LoginParts): AgentLogin {
  return new AgentLogin({
    file: join(config.client.stateDir, LOGIN_FILE),
    logger,
    ask: ({ address }) => (address ? overHttp(address) : overTheCluster(cluster)),
  })
}

/** What a server said, or why it said nothing. */
class CoreFault extends Error {
  override readonly name = 'CoreFault'
  readonly isFinal: boolean
  readonly shown: string

  constructor(message: string, shown: string, isFinal = false, options?: ErrorOptions) {
    super(message, options)
    this.shown = shown
    this.isFinal = isFinal
  }
}

function overHttp(address: LoginAddress): Ask {
  return async ({ body, path }, token, signal) => {
    const request = { method: 'PUT', path: `/v1/${path}`, body, signal: within(signal) } as const
    try {
      // Read for each: a certificate that was renewed counts from the next one on.
      const target = targetOf(address, token)
      const response = await openResponse(target, { ...request, headers: { 'X-Vault-Request': 'true' } })
      return answerOf(response.statusCode ?? 0, await responseText(response, target))
    } catch (error) {
      if (error instanceof CoreFault) throw error
      throw new CoreFault(messageOf(error), 'no server answers', false, { cause: error })
    }
  }
}

function targetOf({ caFile, certFile, keyFile, url }: LoginAddress, token: string | undefined): AgentTarget {
  const [ca, cert, key] = [caFile, certFile, keyFile].map((file) => file && readFileSync(file, 'utf8'))
  const tls = { ...(ca !== undefined && { ca }), ...(cert !== undefined && key !== undefined && { cert, key }) }
  const from = { from: 'secrets.address', tokenFrom: undefined, withheld: [], caFrom: 'secrets.ca_file' }
  return { url: new URL(url), token, tls, ...from }
}

function overTheCluster(cluster: Cluster | undefined): Ask {
  return async (question, token, signal) => {
    try {
      const answer = await cluster?.agentLogin(question, token, within(signal))
      return answerOf(answer?.status ?? 0, Buffer.from(answer?.body ?? '').toString('utf8'), true)
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      if (error.code === 'sealed') throw sealed()
      const isFinal = error.status >= 400 && error.status < 500 && error.status !== 429
      throw new CoreFault(error.message, isFinal ? `refused: ${error.message}` : error.message, isFinal, {
        cause: error,
      })
    }
  }
}

function within(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)])
}

function sealed(): CoreFault {
  return new CoreFault('the secrets core of the server is sealed', 'the server is sealed')
}

/** The parsed body of an answer. Throws a CoreFault for what is no success. `isUnseen`: the server sees no address. */
function answerOf(status: number, text: string, isUnseen = false): unknown {
  const body = parsed(text)
  if (status >= 200 && status < 300) return body
  const errors = typeof body === 'object' && body !== null && 'errors' in body ? body.errors : undefined
  const listed = (Array.isArray(errors) ? errors : []).map(String).join('; ')
  if (status === 503 && listed.includes(SEALED)) throw sealed()
  const said = `${(listed || text).slice(0, BODY_BYTES_SHOWN).trim().replaceAll(/\s+/g, ' ')} (HTTP ${status})`
  const isFinal = status >= 400 && status < 500 && status !== 408 && status !== 429
  // Servers do not say that it is the address which they refuse.
  const hint =
    isUnseen && (status === 400 || status === 403)
      ? '; over NATS a server sees no address: for a role that is bound to addresses, set secrets.address'
      : ''
  throw new CoreFault(`${said}${hint}`, `${isFinal ? 'refused' : 'the server fails'}: ${said}`, isFinal)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Named `secrets-login`; none where the agent does not log in. */
export function loginChecks(login: AgentLogin | undefined): Check[] {
  if (!login?.state) return []
  const now = () => {
    const { fault, isKnown, secondsLeft } = login.state ?? { isKnown: true, fault: undefined, secondsLeft: undefined }
    if (!isKnown) return { ok: false, reason: STARTING }
    if (fault !== undefined) return { ok: false, reason: fault }
    const left = Number.isFinite(secondsLeft) ? `, the token is good for ${Math.floor(secondsLeft ?? 0)} s` : ''
    return { ok: true, reason: `logged in${left}` }
  }
  return [{ name: 'secrets-login', now }]
}

export function loginFamilies(login: AgentLogin | undefined): Family[] {
  const state = login?.state
  if (!state) return []
  const { failures, secondsLeft = 0 } = state
  const ttl = 'Seconds until the token of the agent ends; 0 without one.'
  return [
    // One that does not end has no such figure.
    ...(Number.isFinite(secondsLeft) ? [single('gauge', 'outpost.secrets_login.ttl_seconds', ttl, secondsLeft)] : []),
    {
      name: 'outpost.secrets_login.failures',
      kind: 'counter',
      help: 'Attempts to log in, to renew the token and to write its file that failed.',
      points: Object.entries(failures).map(([step, value]) => ({ labels: { step }, value })),
    },
  ]
}
