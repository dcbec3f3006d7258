/** The changes of a reloaded configuration that a running process can apply. */
import { isDeepStrictEqual } from 'node:util'
import type { Config, NatsConfig } from './config.ts'

export interface ReloadDiff {
  /** The effective configuration. */
  readonly config: Config
  /** Changed settings that are applied, as the file names them. */
  readonly applied: readonly string[]
  /** Changed settings that need a restart. */
  readonly needsRestart: readonly string[]
}

/**
 * A reload applies tokens, policies, the keys of servers, the agent's login, allowed hosts, TLS files, all settings of the log, all limits
 * but two, and whether rekey and root generation require a token.
 */
export function diffReload(running: Config, loaded: Config): ReloadDiff {
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
  return { config, applied: differing(running, config), needsRestart: differing(config, loaded) }
}

/** Applies the keys of the servers; addresses and credentials of NATS need a restart. */
function withKeysOf(running: NatsConfig, loaded: NatsConfig): NatsConfig {
  const { serverKeys: _, coreKeys: __, ...rest } = running
  return {
    ...rest,
    ...(loaded.serverKeys ? { serverKeys: loaded.serverKeys } : {}),
    ...(loaded.coreKeys ? { coreKeys: loaded.coreKeys } : {}),
  }
}

/** Dotted names of the different settings, as in the file. */
function differing(before: object, after: object): string[] {
  const earlier = new Map<string, unknown>(Object.entries(before))
  const later = new Map<string, unknown>(Object.entries(after))
  return [...new Set([...earlier.keys(), ...later.keys()])].flatMap((key) => {
    const [one, other] = [earlier.get(key), later.get(key)]
    if (isDeepStrictEqual(one, other)) return []
    const name = spelled(key)
    if (!isRecord(one) || !isRecord(other) || name === 'meta') return [name]
    // `log_rotate_*` are single settings, not a block.
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
