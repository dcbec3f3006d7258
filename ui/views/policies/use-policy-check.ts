/** Checks of policies by the server: delayed while the user types, and aborted when the text has changed. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { secrets } from '../../api/client.ts'
import { isSealed, token } from '../../app/session.ts'
import { type CheckForm, questionOf, THIS_POLICY } from './policy-check.ts'
import type { FormattedPolicy, PolicyAnswer, PolicyDocument, PolicyNote } from './policy-types.ts'

const CHECK = 'sys/internal/ui/policy-check'
const FORMAT = 'sys/internal/ui/policy-format'
/** A long policy is not sent for each key. */
const DELAY_MS = 250

export interface CheckState {
  /** The last answer; kept while the next one is awaited. */
  readonly answer?: PolicyAnswer
  /** Why the last check failed. */
  readonly error?: Error
  /** Whether the text or the form has changed since. */
  readonly isPending: boolean
}

/** `form` undefined asks nothing. */
export function usePolicyAnswer(
  documents: readonly PolicyDocument[],
  form: CheckForm | undefined,
): CheckState & { readonly retry: () => void } {
  const [state, setState] = useState<CheckState>({ isPending: true })
  const [round, setRound] = useState(0)
  const isAsking = form !== undefined
  useEffect(() => {
    if (!form) {
      setState({ isPending: true })
      return undefined
    }
    const abort = new AbortController()
    setState((before) => ({ ...before, isPending: true }))
    const timer = setTimeout(() => {
      secrets<PolicyAnswer>(CHECK, { method: 'POST', body: questionOf(documents, form), signal: abort.signal }).then(
        ({ data }) => abort.signal.aborted || setState({ answer: data, isPending: false }),
        (failure: unknown) => {
          if (abort.signal.aborted) return
          setState({ error: failure instanceof Error ? failure : new Error(String(failure)), isPending: false })
        },
      )
    }, DELAY_MS)
    return () => {
      clearTimeout(timer)
      abort.abort()
    }
  }, [documents, isAsking, form?.path, form?.verb, form?.parameters, form?.entity, round, token.value, isSealed.value])
  return { ...state, retry: () => setRound((count) => count + 1) }
}

export interface PolicyFaults {
  readonly faults: readonly PolicyNote[]
  readonly warnings: readonly PolicyNote[]
  readonly error: Error | undefined
  readonly isPending: boolean
  readonly retry: () => void
}

/** Any request: the faults and warnings of a policy do not depend on it. */
const ANY_REQUEST: CheckForm = { path: 'sys/health', verb: 'read', parameters: '', entity: '' }

export function usePolicyFaults(text: string): PolicyFaults {
  const documents = useMemo(() => [{ name: THIS_POLICY, policy: text }], [text])
  const { answer, error, isPending, retry } = usePolicyAnswer(documents, ANY_REQUEST)
  return { faults: answer?.faults ?? [], warnings: answer?.warnings ?? [], error, isPending, retry }
}

/** The formatted text. Rejects with the first fault, or with why it cannot be formatted. */
export async function formatPolicy(text: string): Promise<string> {
  const { data, warnings } = await secrets<FormattedPolicy>(FORMAT, { method: 'POST', body: { policy: text } })
  const fault = data.faults[0]
  if (fault) throw new Error(`Line ${fault.line}, column ${fault.column}: ${fault.text}`)
  if (warnings?.[0] !== undefined) throw new Error(`${warnings[0]}.`)
  return data.policy
}
