/**
 * TOTP: keys of time-based one-time codes. The engine stands in for an authenticator application (it tells the present code of a key
 * that another service has issued) or for a provider (it generates a key for an application and checks its codes).
 *
 * Promises. A code is accepted once: the time step it belongs to is durable, as used, before the answer goes out, so a restart
 * lets none in again. A key is never told again after it was generated.
 *
 * Assumes that the machine's clock is right to within a period. What can go wrong: many wrong codes are tried (`code-rate-limit.ts`).
 */
import type { Engine } from '../framework/engine.ts'
import { codePaths } from './code-paths.ts'
import { keyPaths } from './key-paths.ts'

export const totp: Engine = {
  type: 'totp',
  description: 'time-based one-time codes',
  paths: [...keyPaths, ...codePaths],
}
