/** What an engine is in a core that must change nothing outside its database (`CoreOptions.isIsolated`). */
import type { Engine } from '../engines/framework/engine.ts'

/** Work of an engine that may be done elsewhere. */
const OUTWARD = ['forget', 'periodic', 'release', 'renew', 'revoke'] as const

/**
 * The engine as it is where all that it does ends in its entries. One that reaches other systems keeps its name, so that its
 * mounts are there, and has no paths and no work: what it gave out is neither made, renewed nor taken back.
 */
export function isolatedEngine(engine: Engine): Engine {
  const { aliases, description, furtherTypes, kind, type } = engine
  const reachesOut = OUTWARD.some((work) => engine[work] !== undefined)
  if (!reachesOut) return engine
  return {
    type,
    description,
    paths: [],
    ...(kind && { kind }),
    ...(aliases && { aliases }),
    ...(furtherTypes && { furtherTypes }),
  }
}
