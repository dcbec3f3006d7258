/** Connects the login module: the agent logs in by HTTP at the configured address, else by a call to a server over NATS. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Check } from '../../telemetry/readiness.ts'
import { STARTING } from '../../telemetry/readiness.ts'
import type { Family } from '../../telemetry/metric.ts'
import { single } from '../../telemetry/metric.ts'
import { openResponse, responseText } from '../../cli/client/http-client.ts'
import type { AgentTarget } from '../../cli/client/agent-target.ts'
import type { Config } from '../../config/load.ts'
import type { Cluster } from './cluster.ts'
import { messageOf, Refusal, SEALED } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { AgentLogin } from '../../login/agent-login.ts'
import { LOGIN_FILE, type LoginAddress } from '../../login/login-file.ts'
import type { LoginTransport } from '../../login/session.ts'

export interface LoginParts {
  readonly config: Config
  readonly cluster: Cluster | undefined
  readonly logger: Logger
}

/** Timeout of a request. */
const ANSWER_MS = 15_000
const BODY_BYTES_SHOWN = 300

export function agentLogin({ cluster, config, logger }: LoginParts): AgentLogin {
  return new AgentLogin({
    file: join(config.client.stateDir, LOGIN_FILE),
    logger,
    send: ({ address }) => (address ? overHttp(address) : overTheCluster(cluster)),
  })
}

/** An error answer of a server, or the reason why there is no answer. */
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

function overHttp(address: LoginAddress): LoginTransport {
  return async ({ body, path }, token, signal) => {
    const request = { method: 'PUT', path: `/v1/${path}`, body, signal: within(signal) } as const
    try {
      // TLS files are read for each request, so a renewed certificate takes effect.
      const target = targetOf(address, token)
      const response = await openResponse(target, { ...request, headers: { 'X-Vault-Request': 'true' } })
      return answerOf(response.statusCode ?? 0, await responseText(response, target))
    } catch (error) {
      if (error instanceof CoreFault) throw error
      throw new CoreFault(messageOf(error), 'no server responds', false, { cause: error })
    }
  }
}

function targetOf({ caFile, certFile, keyFile, url }: LoginAddress, token: string | undefined): AgentTarget {
  const [ca, cert, key] = [caFile, certFile, keyFile].map((file) => file && readFileSync(file, 'utf8'))
  const tls = { ...(ca !== undefined && { ca }), ...(cert !== undefined && key !== undefined && { cert, key }) }
  const from = { from: 'secrets.address', tokenFrom: undefined, withheld: [], caFrom: 'secrets.ca_file' }
  return { url: new URL(url), token, tls, ...from }
}

function overTheCluster(cluster: Cluster | undefined): LoginTransport {
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

/** Parses the body of a successful answer; throws a CoreFault for any other. `isUnseen`: the server does not see the client address. */
function answerOf(status: number, text: string, isUnseen = false): unknown {
  const body = parsed(text)
  if (status >= 200 && status < 300) return body
  const errors = typeof body === 'object' && body !== null && 'errors' in body ? body.errors : undefined
  const listed = (Array.isArray(errors) ? errors : []).map(String).join('; ')
  if (status === 503 && listed.includes(SEALED)) throw sealed()
  const message = `${(listed || text).slice(0, BODY_BYTES_SHOWN).trim().replaceAll(/\s+/g, ' ')} (HTTP ${status})`
  const isFinal = status >= 400 && status < 500 && status !== 408 && status !== 429
  // The refusal does not say that the address is the cause.
  const hint =
    isUnseen && (status === 400 || status === 403)
      ? '; over NATS the server does not see the client address: for a role with bound addresses, set secrets.address'
      : ''
  throw new CoreFault(`${message}${hint}`, `${isFinal ? 'refused' : 'server error'}: ${message}`, isFinal)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The check `secrets-login`; none without a login. */
export function loginChecks(login: AgentLogin | undefined): Check[] {
  if (!login?.state) return []
  const now = () => {
    const { fault, isKnown, secondsLeft } = login.state ?? { isKnown: true, fault: undefined, secondsLeft: undefined }
    if (!isKnown) return { ok: false, reason: STARTING }
    if (fault !== undefined) return { ok: false, reason: fault }
    const left = Number.isFinite(secondsLeft) ? `, token TTL ${Math.floor(secondsLeft ?? 0)} s` : ''
    return { ok: true, reason: `logged in${left}` }
  }
  return [{ name: 'secrets-login', now }]
}

export function loginFamilies(login: AgentLogin | undefined): Family[] {
  const state = login?.state
  if (!state) return []
  const { failures, secondsLeft = 0 } = state
  const ttl = 'TTL of the token of the agent in seconds; 0 without a token.'
  return [
    // A token without expiry has no TTL metric.
    ...(Number.isFinite(secondsLeft) ? [single('gauge', 'outpost.secrets_login.ttl_seconds', ttl, secondsLeft)] : []),
    {
      name: 'outpost.secrets_login.failures',
      kind: 'counter',
      help: 'Failed logins, renewals and writes of the token file, by step.',
      points: Object.entries(failures).map(([step, value]) => ({ labels: { step }, value })),
    },
  ]
}
