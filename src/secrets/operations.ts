/** The core as operations. */
import { type AnyOperation, handle } from '../kit/operation.ts'
import { CORE_VERBS } from './core-endpoints.ts'
import { type Core, handle as answer } from './handle.ts'

export function secretsOperations(core: Core): AnyOperation[] {
  return CORE_VERBS.map(({ verb, endpoint }) =>
    handle(endpoint, () => ({ run: (raw, call) => answer(core, verb, raw, call) })).in(core),
  )
}
