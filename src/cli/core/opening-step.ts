/** What opens a sealed server, by the kind of its seal, for the operator who has met it sealed. */
import type { Answer } from '../output/answer.ts'

/** `seal` is the answer of `sys/seal-status`: whether key shares are what it takes. */
export function takesShares(seal: Answer): boolean {
  return !seal.boolean('recovery_seal') || seal.boolean('migration')
}

/** Completes "sealed, next: ". */
export function openingStep(seal: Answer): string {
  if (seal.boolean('migration')) return 'outpost operator unseal -migrate'
  if (takesShares(seal)) return 'outpost operator unseal'
  return (
    'the server opens by itself with the static key of its machine: give it the key (its log says what is missing), or ' +
    'restart it when an operator has sealed it'
  )
}
