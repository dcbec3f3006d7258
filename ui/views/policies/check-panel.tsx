/** Which rule decides about a request, also for a text that is not saved: evaluated by the server. */
import { useMemo, useState } from 'preact/hooks'
import { address, setQuery } from '../../app/location.ts'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText, Loading } from '../../components/states.tsx'
import { readPolicy } from './policies.ts'
import { pairsOf, placeOf, THIS_POLICY } from './policy-check.ts'
import { type PolicyDocument, type PolicyNote, type PolicyVerb, VERBS } from './policy-types.ts'
import { type CheckState, usePolicyAnswer } from './use-policy-check.ts'

interface CheckPanelProps {
  readonly name: string
  readonly text: string
}

export function CheckPanel({ name, text }: CheckPanelProps) {
  const { query } = address.value
  const path = query.get('path') ?? ''
  const verb = VERBS.find((each) => each === query.get('verb')) ?? 'read'
  const [parameters, setParameters] = useState('')
  const [entity, setEntity] = useState('')
  const [others, setOthers] = useState<readonly PolicyDocument[]>([])
  const documents = useMemo(() => [{ name: THIS_POLICY, policy: text }, ...others], [text, others])
  const isAsked = path !== ''
  const check = usePolicyAnswer(documents, isAsked ? { path, verb, parameters, entity } : undefined)
  const fault = pairsOf(parameters).fault ?? pairsOf(entity).fault
  return (
    <section class="card" aria-label="Check a request">
      <h2>Check a request</h2>
      <div class="form">
        <Field
          label="Path"
          value={path}
          placeholder="secret/data/app/db"
          isSearch
          onInput={(given) => setQuery({ path: given })}
        />
        <VerbSelect value={verb} />
        {isAsked && <Verdict check={check} retry={check.retry} />}
        <Field
          label="Parameters"
          rows={2}
          value={parameters}
          onInput={setParameters}
          hint="A line NAME=VALUE for each; VALUE is JSON or a string"
        />
        <Field
          label="Entity of the token"
          rows={1}
          value={entity}
          onInput={setEntity}
          hint="For templates: name=alice, id=… or metadata.team=ops"
        />
        <OtherPolicies name={name} others={others} onChange={setOthers} />
        {fault !== undefined && (
          <p class="error" role="alert">
            {fault}
          </p>
        )}
      </div>
    </section>
  )
}

function VerbSelect({ value }: { readonly value: PolicyVerb }) {
  return (
    <div class="field">
      <label for="policy-verb">Operation</label>
      <select id="policy-verb" value={value} onChange={(event) => setQuery({ verb: event.currentTarget.value })}>
        {VERBS.map((verb) => (
          <option key={verb} value={verb}>
            {verb}
          </option>
        ))}
      </select>
      <p class="hint">create writes a path without data, update one with data</p>
    </div>
  )
}

interface OtherPoliciesProps {
  readonly name: string
  readonly others: readonly PolicyDocument[]
  readonly onChange: (others: readonly PolicyDocument[]) => void
}

/** Further policies of the caller, as they are saved. */
function OtherPolicies({ name, onChange, others }: OtherPoliciesProps) {
  const [wanted, setWanted] = useState('')
  const [error, setError] = useState<Error>()
  const add = async () => {
    const other = wanted.trim().toLowerCase()
    if (other === '' || other === name || others.some((each) => each.name === other)) return
    const policy = await readPolicy(other)
    if (!policy) throw new Error(`There is no policy ${other}.`)
    onChange([...others, { name: other, policy: policy.policy }])
    setWanted('')
  }
  const submit = (event: Event) => {
    event.preventDefault()
    setError(undefined)
    add().catch((failure: unknown) => setError(failure instanceof Error ? failure : new Error(String(failure))))
  }
  return (
    <form onSubmit={submit}>
      <div class="policy-others">
        <Field label="Together with the policy" value={wanted} onInput={setWanted} placeholder="default" />
        <Button type="submit">Add</Button>
      </div>
      {others.map((other) => (
        <Button
          key={other.name}
          label={`Without the policy ${other.name}`}
          onClick={() => onChange(others.filter((each) => each.name !== other.name))}
        >
          {other.name} <span aria-hidden="true">×</span>
        </Button>
      ))}
      {error && <ErrorText error={error} />}
    </form>
  )
}

interface VerdictProps {
  readonly check: CheckState
  readonly retry: () => void
}

function Verdict({ check: { answer, error, isPending }, retry }: VerdictProps) {
  if (error) {
    return (
      <>
        <ErrorText error={new Error(`The request was not checked: ${error.message}`)} />
        <div class="form-actions">
          <Button onClick={retry}>Retry</Button>
        </div>
      </>
    )
  }
  const fault = answer?.faults[0]
  if (fault) {
    return (
      <p class="error" role="status">
        Correct the document first: {placeOf(fault)}: {fault.text}
      </p>
    )
  }
  if (!answer) return <Loading label="Checking" />
  const { allowed, hint, reasons, unmatched, verdict } = answer
  return (
    <div role="status" class="verdict" aria-busy={isPending}>
      <p>
        <span class={`badge badge-${allowed ? 'good' : 'bad'}`}>{allowed ? 'allowed' : 'denied'}</span>{' '}
        {verdict.replace(/^(?:allowed|denied): /, '')}
      </p>
      <Notes notes={reasons} />
      {hint !== undefined && <p>{hint}</p>}
      {unmatched.length > 0 && (
        <details>
          <summary>{unmatched.length === 1 ? '1 rule does' : `${unmatched.length} rules do`} not match</summary>
          <Notes notes={unmatched} />
        </details>
      )}
    </div>
  )
}

function Notes({ notes }: { readonly notes: readonly PolicyNote[] }) {
  return (
    <ul class="policy-lines">
      {notes.map((note) => (
        <li key={`${placeOf(note)}: ${note.text}`}>
          <span class="muted">{placeOf(note)}: </span>
          {note.text}
        </li>
      ))}
    </ul>
  )
}
