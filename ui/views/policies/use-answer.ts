/** The evaluation of policies, loaded when a policy is opened. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { checkPolicies, type CheckForm, placedLine, type PlacedLine, THIS_POLICY } from './policy-check.ts'
import type { AnswerPolicy, PolicyAnswer, PolicyDocument } from './policy-types.ts'

const NOTHING: CheckForm = { path: 'sys/health', verb: 'read', parameters: '', entity: '' }

function useAnswerPolicy(): AnswerPolicy | undefined {
  const [loaded, setLoaded] = useState<{ readonly answer: AnswerPolicy }>()
  useEffect(() => {
    import('outpost/policy-answer').then(
      ({ answerPolicy }) => setLoaded({ answer: answerPolicy }),
      // The server checks the text when it is saved.
      () => undefined,
    )
  }, [])
  return loaded?.answer
}

/** A long policy is not evaluated for each key. */
const DELAY_MS = 150

/** The value after it has not changed for a time. */
function useSettled<T>(value: T): T {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), DELAY_MS)
    return () => clearTimeout(timer)
  }, [value])
  return settled
}

/** Undefined until the evaluation is loaded. */
export function usePolicyAnswer(documents: readonly PolicyDocument[], form: CheckForm): PolicyAnswer | undefined {
  const answer = useAnswerPolicy()
  const settled = useSettled(documents)
  return useMemo(
    () => answer && checkPolicies(answer, settled, form),
    [answer, settled, form.path, form.verb, form.parameters, form.entity],
  )
}

interface PolicyFaults {
  readonly faults: readonly PlacedLine[]
  readonly warnings: readonly string[]
}

export function usePolicyFaults(text: string): PolicyFaults {
  const documents = useMemo(() => [{ file: THIS_POLICY, text }], [text])
  const found = usePolicyAnswer(documents, NOTHING)
  return { faults: (found?.faults ?? []).map(placedLine), warnings: found?.warnings ?? [] }
}
