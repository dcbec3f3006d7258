/**
 * A register with versions and check-and-set, as a key of the key-value engine. Each write has a unique value and
 * increments the version.
 */
import { checkerOf, type HistoryKind, resolveSeen } from './history-kind.ts'
import type { Model } from './linearizability.ts'

export type RegisterInput =
  | { readonly kind: 'read' }
  | { readonly kind: 'write'; readonly value: string }
  | { readonly kind: 'cas'; readonly version: number; readonly value: string }

export type RegisterResult =
  /** Version 0: the register was never written. */
  | { readonly kind: 'value'; readonly version: number; readonly value: string }
  | { readonly kind: 'written'; readonly version: number }
  | { readonly kind: 'mismatch' }

interface RegisterState {
  readonly version: number
  readonly value: string
}

type RegisterModel = Model<RegisterState, RegisterInput, RegisterResult>

const INITIAL: RegisterState = { version: 0, value: '' }
/** The value of a write with an unknown outcome. No read saw it. */
const UNSEEN = '?'

const keyOf = ({ value, version }: RegisterState) => `${version}:${value}`

function classOf(input: RegisterInput): string | undefined {
  return input.kind === 'cas' ? `cas ${input.version}` : input.kind
}

const strict: RegisterModel = {
  initial: INITIAL,
  keyOf,
  classOf,
  mayChange: ({ kind }) => kind !== 'read',
  // Its version has passed then.
  isNowOrNever: ({ kind }) => kind === 'cas',
  step(state, input, result) {
    if (input.kind === 'read') {
      if (result?.kind !== 'value') return undefined
      return result.version === state.version && result.value === state.value ? state : undefined
    }
    const isMatch = input.kind === 'write' || input.version === state.version
    if (result?.kind === 'mismatch') return isMatch ? undefined : state
    if (!isMatch) return undefined
    const version = state.version + 1
    if (result === undefined) return { version, value: UNSEEN }
    return result.kind === 'written' && result.version === version ? { version, value: input.value } : undefined
  },
}

/** The version never falls, and one version has one value. */
const partial: RegisterModel = {
  initial: INITIAL,
  keyOf,
  classOf,
  mayChange: () => false,
  isNowOrNever: () => false,
  step(state, input, result) {
    if (result?.kind === 'value') {
      if (result.version < state.version) return undefined
      const isSame = result.version === state.version
      return isSame && result.value !== state.value ? undefined : { version: result.version, value: result.value }
    }
    if (result?.kind === 'mismatch') return state
    if (result?.kind !== 'written' || input.kind === 'read' || result.version <= state.version) return undefined
    if (input.kind === 'cas' && result.version !== input.version + 1) return undefined
    return { version: result.version, value: input.value }
  },
}

export const register: HistoryKind<RegisterInput, RegisterResult> = {
  name: 'register',
  strict: checkerOf(strict),
  partial: checkerOf(partial),
  isObservation: ({ input, result }) => input.kind === 'read' || result?.kind === 'mismatch',
  resolve(operations) {
    const seen = new Map<string, { readonly result: RegisterResult; readonly byMs: number }>()
    for (const { respondedMs, result } of operations) {
      if (result?.kind !== 'value') continue
      const earlier = seen.get(result.value)
      if (earlier && earlier.byMs <= respondedMs) continue
      seen.set(result.value, { result: { kind: 'written', version: result.version }, byMs: respondedMs })
    }
    return resolveSeen(operations, ({ input }) => (input.kind === 'read' ? undefined : seen.get(input.value)))
  },
  describe({ input, result }) {
    const what =
      input.kind === 'read'
        ? 'read'
        : input.kind === 'write'
          ? `write ${input.value}`
          : `cas ${input.version} ${input.value}`
    if (result?.kind === 'value') return `${what} → version ${result.version}, value ${result.value || 'none'}`
    return `${what} → ${result?.kind === 'written' ? `version ${result.version}` : (result?.kind ?? 'unknown')}`
  },
}
