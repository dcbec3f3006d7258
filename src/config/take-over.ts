/**
 * What of a configuration that was read again can be taken over by a running process.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Config } from './config.ts'

export interface TakenOver {
  /** The settings that are in force from now on. */
  readonly config: Config
  /** Top-level settings that have changed in a part which needs a restart. */
  readonly waiting: readonly string[]
}

/** Takes over tokens, policies, TLS files, the log level and the limits that are looked at for each caller. */
export function takeOver(running: Config, loaded: Config): TakenOver {
  const { httpMaxConnsPerClient, httpMaxFollowers } = loaded.limits
  const config: Config = {
    ...running,
    acl: loaded.acl,
    tls: loaded.tls,
    logLevel: loaded.logLevel,
    limits: { ...running.limits, httpMaxConnsPerClient, httpMaxFollowers },
  }
  const keys = new Set([...Object.keys(config), ...Object.keys(loaded)])
  const settings = new Map(Object.entries(loaded))
  const inForce = new Map(Object.entries(config))
  return { config, waiting: [...keys].filter((key) => !isDeepStrictEqual(inForce.get(key), settings.get(key))) }
}
