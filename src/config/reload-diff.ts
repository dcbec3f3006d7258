/**
 * What of a configuration that was read again can be taken over by a running process.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Config, NatsConfig } from './config.ts'

export interface TakenOver {
  /** The settings that are in force from now on. */
  readonly config: Config
  /** Settings that were changed and are in force now, as the file names them. */
  readonly taken: readonly string[]
  /** Settings that were changed and need a restart. */
  readonly waiting: readonly string[]
}

/**
 * Takes over tokens, policies, the keys of servers, the agent's login, allowed hosts, TLS files, everything about the log, all limits but two,
 * and whether callers without a token may rekey and make root tokens.
 */
export function takeOver(running: Config, loaded: Config): TakenOver {
  const { httpMaxHeaderBytes, httpsHandshakeTimeoutMs } = running.limits
  const { logFile: _, logJson: __, secrets: ___, ...rest } = running
  const { disableUnauthedGenerateRootEndpoints, disableUnauthedRekeyEndpoints } = loaded.server
  const config: Config = {
    ...rest,
    ...(loaded.logFile === undefined ? {} : { logFile: loaded.logFile }),
    ...(loaded.logJson === undefined ? {} : { logJson: loaded.logJson }),
    ...(loaded.secrets === undefined ? {} : { secrets: loaded.secrets }),
    acl: loaded.acl,
    ...(running.nats && loaded.nats ? { nats: withKeysOf(running.nats, loaded.nats) } : {}),
    httpAllowedHosts: loaded.httpAllowedHosts,
    tls: loaded.tls.http === running.tls.http ? loaded.tls : running.tls,
    logLevel: loaded.logLevel,
    logPaths: loaded.logPaths,
    logRotate: loaded.logRotate,
    server: { ...running.server, disableUnauthedGenerateRootEndpoints, disableUnauthedRekeyEndpoints },
    limits: { ...loaded.limits, httpMaxHeaderBytes, httpsHandshakeTimeoutMs },
  }
  return { config, taken: differing(running, config), waiting: differing(config, loaded) }
}

/** The servers' keys are taken over; to whom we connect, and as whom, is settled when the process starts. */
function withKeysOf(running: NatsConfig, loaded: NatsConfig): NatsConfig {
  const { serverKeys: _, coreKeys: __, ...rest } = running
  return {
    ...rest,
    ...(loaded.serverKeys ? { serverKeys: loaded.serverKeys } : {}),
    ...(loaded.coreKeys ? { coreKeys: loaded.coreKeys } : {}),
  }
}

/** Dotted names of the settings that are not the same, the way the file spells them. */
function differing(before: object, after: object): string[] {
  const earlier = new Map<string, unknown>(Object.entries(before))
  const later = new Map<string, unknown>(Object.entries(after))
  return [...new Set([...earlier.keys(), ...later.keys()])].flatMap((key) => {
    const [one, other] = [earlier.get(key), later.get(key)]
    if (isDeepStrictEqual(one, other)) return []
    const name = spelled(key)
    if (!isRecord(one) || !isRecord(other) || name === 'meta') return [name]
    // `log_rotate_bytes` and the like are no block in the file.
    const separator = name === 'log_rotate' ? '_' : '.'
    return differing(one, other).map((inner) => `${name}${separator}${inner}`)
  })
}

function isRecord(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function spelled(key: string): string {
  return key.replace(/Ms$/, '').replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}
